"""Schedules fire: their due times become jobs."""
