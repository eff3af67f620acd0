"""Backup, restore, move-store and integrity checks."""
