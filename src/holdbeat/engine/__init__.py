"""The engine: what runs. Each part is a Service whose logic is in one testable step()."""
