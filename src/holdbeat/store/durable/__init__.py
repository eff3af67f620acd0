"""The state that a chain of jobs keeps over its runs: steps, waits, signals, children, dependencies."""
