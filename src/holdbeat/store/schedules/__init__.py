"""Schedules and Endpoints: their rows, due times, occurrences, and when each runs next."""
