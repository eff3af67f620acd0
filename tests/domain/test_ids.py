"""Ids: UUIDv7, strictly increasing, whatever the clock does."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.clock import EPOCH
from holdbeat.domain.ids import IdSource, is_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.rule("INV-004")
@given(steps=st.lists(st.tuples(st.integers(-5000, 5000), st.integers(1, 20)), min_size=1, max_size=30))
def test_ids_increase_while_the_clock_stands_jumps_or_goes_back(steps: list[tuple[int, int]]) -> None:
    source = IdSource()
    now = NOW
    ids: list[str] = []
    for millis, amount in steps:
        now += timedelta(milliseconds=millis)
        ids += source.many(now, amount) if amount > 1 else [source.new(now)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.rule("INV-004")
@given(millis=st.integers(1, 2**47))
def test_an_id_is_a_uuid_of_version_7_that_tells_its_millisecond(millis: int) -> None:
    try:
        now = EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return
    text = IdSource().new(now)
    made = uuid.UUID(text)
    assert str(made) == text
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == millis
    assert is_id(text)


@pytest.mark.rule("INV-004")
def test_a_full_counter_borrows_the_next_millisecond_instead_of_wrapping() -> None:
    source = IdSource(random_bytes=lambda count: b"\xff" * count)
    first = source.new(NOW)
    source._counter = 2**26 - 2
    ids = [first, *source.many(NOW, 5)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert uuid.UUID(ids[-1]).int >> 80 == (uuid.UUID(first).int >> 80) + 1


@pytest.mark.rule("INV-004")
@pytest.mark.parametrize("text", ["", "story", "0" * 36, "g" * 8 + "-" + "0" * 27, "a-b-c-d-e"])
def test_names_are_not_taken_for_ids(text: str) -> None:
    assert not is_id(text)
