"""Holdbeat beside other Python queues, in one harness, on one machine, in one run: `make bench-peers`."""
