"""Columns of a batch travel as the text of a PostgreSQL array: a value arrives as it was, or the batch is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from holdbeat.domain.run import RunStatus
from holdbeat.store.postgres.transaction import array

INSTANT = datetime(2026, 3, 4, 5, 6, 7, 89000, UTC)


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["plain", "", "NULL", 'a "quoted" word', "back\\slash", '\\"', "a,b", "{x}", " blanks ", "a\nb", "€"]),
        ("text", ["before a null", None, 'after "one"']),
        ("text", [None, None]),
        ("text", [RunStatus.COMPLETED, RunStatus.FAILED]),
        ("bigint", [1, -2, 2**62]),
        ("bigint", [1, None]),
        ("float8", [1, 2.5, None, 1e-9]),
        ("bool", [True, False, None]),
        ("timestamptz", [INSTANT, None]),
    ],
)
def test_every_value_of_a_column_arrives_as_it_was(postgres_url: str, kind: str, values: list[Any]) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute(f"SELECT %s::{kind}[]".encode(), [array(tuple(values))]).fetchone()
    assert row is not None
    assert row[0] == values


@pytest.mark.rule("SEC-06")
def test_a_text_with_nul_is_refused_and_does_not_become_two() -> None:
    with pytest.raises(psycopg.DataError):
        array(["one", "t\0wo"])
