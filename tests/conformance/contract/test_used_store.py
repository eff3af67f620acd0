"""DEC-008: whatever state a row is in, a restart leaves it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdbeat.domain.clock import SystemClock
from tests.conformance.acts import open_at
from tests.conformance.lived_rows import Rows, assert_same, rows_of_database, rows_of_file
from tests.conformance.lived_store import make_lived_store


@pytest.mark.rule("DEC-008")
def test_a_used_store_is_the_same_after_a_restart(store_url: str, engine: str, tmp_path: Path) -> None:
    make_lived_store(store_url, tmp_path / "artifacts")

    def rows() -> Rows:
        return rows_of_file(store_url.removeprefix("sqlite:///")) if engine == "sqlite" else rows_of_database(store_url)

    before = rows()
    open_at(store_url, clock=SystemClock()).close()
    assert_same(before, rows())
