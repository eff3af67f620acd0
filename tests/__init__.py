"""Proof of the rules in docs/rules.md."""
