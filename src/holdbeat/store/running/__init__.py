"""What workers do: claim, heartbeat, report, settle, and everything that follows from the end of a run."""
