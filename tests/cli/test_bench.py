"""bench measures SQLite wherever Holdbeat is installed, and says what is missing for PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, str]:
    """An environment in which every process finds no psycopg, as after an install without the extra."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "psycopg.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\", name='psycopg')\n")
    return {"PYTHONPATH": str(hidden)}


def test_bench_measures_sqlite_without_the_driver_of_postgresql(tmp_path: Path, plain: dict[str, str]) -> None:
    output = Command(tmp_path)("bench", "--json", "--jobs", "100", "--rounds", "1", "--workers", "1", env=plain)
    figures = json.loads(output.out)
    for ratio, engine, bare in (
        ("drain_ratio", "drain_per_s", "bare_claim_settle_per_s"),
        ("life_ratio", "life_per_s", "bare_life_per_s"),
    ):
        assert figures[ratio] == pytest.approx(figures[engine] / figures[bare], rel=0.05, abs=0.002)
    assert figures["life_per_s"] < figures["drain_per_s"], "a life is a drain and more"


def test_bench_on_postgresql_names_the_driver_that_is_missing(tmp_path: Path, plain: dict[str, str]) -> None:
    output = Command(tmp_path)("bench", "--store", "postgresql://127.0.0.1:1/none", env=plain, code=2)
    assert "holdbeat[postgres]" in output.err
