"""The HTTP API under /api, and its legacy routes."""
