"""What is only read: lists, statistics, explanations, the event log."""
