"""Reads: lists, statistics, explanations, the event log."""
