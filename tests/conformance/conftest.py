"""Two real stores for every theorem: a SQLite file and a PostgreSQL database, with the clock in the test's hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import OpenStore
from tests.conformance.databases import Databases


@pytest.fixture
def clock() -> ManualClock:
    """The clock of every store in the test; it stands still unless the test moves it."""
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    """Runs the test once for each engine."""
    return str(request.param)


@pytest.fixture(scope="session")
def postgres_template(databases: Databases) -> str:
    """The name of a migrated, empty database that others are copied from."""
    return databases.template


@pytest.fixture
def store_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the test's store lives: a file that is not there yet, or a database of its own."""
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path / 'holdbeat.db'}"
        return
    databases: Databases = request.getfixturevalue("databases")
    url = databases.take()
    yield url
    databases.give_back(url)


@pytest.fixture
def open_store(store_url: str, clock: ManualClock) -> Iterator[OpenStore]:
    """Opens one more Store object on the test's database; all are closed in the end."""
    opener = OpenStore(store_url, clock)
    yield opener
    opener.close()


@pytest.fixture
def store(open_store: OpenStore) -> PersistenceAdapter:
    """A Store on which no limit is met by accident."""
    return open_store()
