"""Both stores for real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.databases import Databases
from tests.crash.processes import Field, field


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'crash.db'}"
        return
    databases: Databases = request.getfixturevalue("databases")
    url = databases.take()
    yield url
    databases.give_back(url)


@pytest.fixture
def ground(store_url: str, tmp_path: Path) -> Iterator[Field]:
    """A store on which real processes work; they are ended with the test."""
    with field(store_url, tmp_path) as made:
        yield made


@pytest.fixture
def sqlite_ground(tmp_path: Path) -> Iterator[Field]:
    with field(f"sqlite:///{tmp_path / 'crash.db'}", tmp_path) as made:
        yield made
