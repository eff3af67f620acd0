"""What workers do: claim, heartbeat, report, settle."""
