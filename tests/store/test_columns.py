"""Rows become objects, and objects rows, by the names of columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest

from holdbeat.store.reads.columns import copier, optional, row_reader, row_writer


class Colour(StrEnum):
    RED = "red"


@dataclass
class Thing:
    id: str
    size: int | None = None
    colour: Colour | None = None
    made_at: datetime | None = None
    note: str = "none"
    is_old: bool = False
    parts: dict[str, int] | None = None
    names: tuple[str, ...] = ()


class Engine:
    """The part of a transaction that a reader uses."""

    def time(self, value: str) -> datetime:
        return datetime.fromisoformat(value)


AT = datetime(2026, 1, 2, tzinfo=UTC)


def read(columns: tuple[str, ...], row: tuple[Any, ...]) -> Thing:
    return row_reader(Thing, columns)(Engine(), row)  # type: ignore[arg-type]


def test_a_row_is_read_by_names_whatever_the_order_of_the_columns() -> None:
    columns = ("made_at", "is_old", "id", "colour")
    assert read(columns, (AT.isoformat(), 1, "a", "red")) == Thing("a", None, Colour.RED, AT, "none", True)


def test_a_column_is_converted_as_the_type_of_its_field_says_or_as_the_reader_was_told() -> None:
    assert read(("id", "parts", "names"), ("a", ' {"b": 1}', '["c", "d"]')) == Thing(
        "a", parts={"b": 1}, names=("c", "d")
    )
    reader = row_reader(Thing, ("id", "names"), {"names": lambda text: tuple(text.split(","))})
    assert reader(Engine(), ("a", "c,d")) == Thing("a", names=("c", "d"))  # type: ignore[arg-type]


def test_a_null_stays_none_and_columns_after_the_named_ones_are_left_out() -> None:
    columns = ("id", "colour", "made_at", "is_old")
    assert read(columns, ("a", None, None, 0, "of a join")) == Thing("a")


def test_a_row_is_written_from_attributes_and_from_what_is_handed_in() -> None:
    write = row_writer(("note", "id", "size"), ("id",), {"note": str.upper, "size": optional(str)})
    assert write(Thing("a", 3, note="b"), "new") == ("B", "new", "3")
    assert write(Thing("a"), "new") == ("NONE", "new", None)


def test_a_copy_takes_the_named_attributes_and_leaves_the_others_to_their_defaults() -> None:
    copy = copier(Thing, ["note", "size"], ("id",))
    assert copy(Thing("a", 3, Colour.RED, AT, "b", True), "new") == Thing("new", 3, note="b")


def test_a_name_that_is_no_column_and_one_that_is_no_field_are_refused() -> None:
    with pytest.raises(ValueError, match="smell"):
        row_reader(Thing, ("id",), {"smell": str})
    with pytest.raises(ValueError, match="smell"):
        row_reader(Thing, ("id", "smell"), {})
    with pytest.raises(ValueError, match="smell"):
        row_writer(("id",), ("smell",), {})
