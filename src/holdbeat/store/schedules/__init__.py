"""Schedules and Endpoints: their rows, occurrences, reports, and when each runs next."""
