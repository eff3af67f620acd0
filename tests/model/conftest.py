"""The same two stores as the conformance tests."""

from __future__ import annotations

from tests.conformance.conftest import clock, databases, engine, open_store, store_url

__all__ = ["clock", "databases", "engine", "open_store", "store_url"]
