# Made from asynchronous/__init__.py by tools/unasync.py: change that one, then run `python -m tools.unasync`.
"""The client for plain programs."""
