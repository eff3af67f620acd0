"""The verbs of workers: claim, heartbeat, report, settle."""
