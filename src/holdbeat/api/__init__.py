"""The HTTP API: JSON under `/api`, one router per resource, one place for refusals and one for access."""
