"""The servers of the API's tests, which answer the same operations."""

from __future__ import annotations

from tests.api.conftest import engine, new_store_url, serve, served

__all__ = ["engine", "new_store_url", "serve", "served"]
