"""Both stores for the engine: a real SQLite file and a real PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdbeat.testing import holdbeat_clock, holdbeat_stage
from tests.conformance.databases import Databases

__all__ = ["holdbeat_clock", "holdbeat_stage"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'engine.db'}"
        return
    databases: Databases = request.getfixturevalue("databases")
    url = databases.take()
    yield url
    databases.give_back(url)
