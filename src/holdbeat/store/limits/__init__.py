"""Limits as rows: the same for every worker of a store."""
