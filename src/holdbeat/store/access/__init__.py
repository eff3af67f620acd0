"""API keys, and which servers other machines can reach."""
