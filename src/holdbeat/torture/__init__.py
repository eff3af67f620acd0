"""Torture: real processes of Holdbeat under faults, and an independent checker of what they did."""
