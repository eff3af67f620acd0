"""Servers for the tests of the API: one for each store that tests share, and as many of their own as they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import httpx2
import pytest

from tests.api.serving import Served
from tests.conformance.databases import Databases


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    """Runs the test once for each engine."""
    return str(request.param)


@pytest.fixture(scope="session")
def new_store_url(engine: str, databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes addresses of empty stores."""

    def new() -> str:
        if engine == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('store') / 'holdbeat.db'}"
        return databases.take()

    return new


@pytest.fixture(scope="session")
def served(new_store_url: Any) -> Iterator[Served]:
    """An open server that all tests of one engine share; each test works with jobs of its own."""
    server = Served(new_store_url(), direct_routes={"/story/generate": "story"}, allow_shell=True)
    yield server
    server.stop()


@pytest.fixture
def client(served: Served) -> httpx2.Client:
    return served.client


class Serve(Protocol):
    def __call__(self, **settings: Any) -> Served: ...


@pytest.fixture
def serve(engine: str, new_store_url: Any, databases: Databases) -> Iterator[Serve]:
    """Starts a server of the test's own."""
    started: list[Served] = []

    def start(**settings: Any) -> Served:
        server = Served(new_store_url(), **settings)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
    if engine == "postgres":
        for server in started:
            databases.give_back(server.settings.store)
