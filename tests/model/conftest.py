"""The same two stores as the conformance tests."""

from __future__ import annotations

from tests.conformance.conftest import clock, engine, open_store, store_url

__all__ = ["clock", "engine", "open_store", "store_url"]
