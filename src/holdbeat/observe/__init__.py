"""Metrics, traces and explanations of what the scheduler does."""
