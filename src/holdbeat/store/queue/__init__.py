"""How jobs get into the queue and wait there: submission, positions, groups, pauses, templates, job types."""
