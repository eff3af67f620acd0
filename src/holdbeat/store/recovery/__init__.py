"""Repair after crashes, and retention."""
