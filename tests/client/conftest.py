"""The servers of the tests of the command line and of the API, for the clients."""

from __future__ import annotations

from tests.api.conftest import engine, new_store_url, served
from tests.cli.conftest import server

__all__ = ["engine", "new_store_url", "served", "server"]
