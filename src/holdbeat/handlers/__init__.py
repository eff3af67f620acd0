"""How a job's work is carried out: functions, processes, shell commands, HTTP calls."""
