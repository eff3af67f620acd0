"""Positions: a number between two others, or the answer that none is left."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.position import GAP, POSITION_MAX, between, permuted, renumbered

PLACES = st.integers(-POSITION_MAX + 1, POSITION_MAX - 1)


@pytest.mark.rule("DEC-005")
@given(one=PLACES, other=PLACES)
def test_a_place_between_two_lies_strictly_between_them_or_the_gap_is_used_up(one: int, other: int) -> None:
    low, high = sorted((one, other))
    place = between(low, high)
    if place is None:
        assert high - low <= 1
    else:
        assert low < place < high


@pytest.mark.rule("DEC-005")
@given(place=PLACES)
def test_above_the_top_and_below_the_bottom_there_is_a_whole_gap_within_64_bits(place: int) -> None:
    top, bottom = between(None, place), between(place, None)
    assert top is None or (top == place - GAP and top > -POSITION_MAX)
    assert bottom is None or (bottom == place + GAP and bottom < POSITION_MAX)
    assert top is not None or bottom is not None


@pytest.mark.rule("DEC-005")
def test_the_first_job_of_a_priority_stands_one_gap_from_the_origin() -> None:
    assert between(None, None) == GAP


@pytest.mark.rule("DEC-005")
@given(count=st.integers(0, 200))
def test_renumbering_gives_ascending_places_with_whole_gaps(count: int) -> None:
    places = renumbered(count)
    assert len(places) == count
    assert all(after - before == GAP for before, after in pairwise(places))


@pytest.mark.rule("DEC-005")
@given(data=st.data(), places=st.lists(PLACES, unique=True, max_size=30))
def test_permuted_jobs_stand_as_asked_on_the_places_they_had_and_no_more_rows_change_than_move(
    data: st.DataObject, places: list[int]
) -> None:
    places.sort()
    present = [f"job-{index}" for index in range(len(places))]
    order = data.draw(st.permutations(present))
    changes = permuted(places, order, present)
    before = dict(zip(present, places, strict=True))
    after = before | changes
    assert sorted(after.values()) == places
    assert sorted(after, key=after.__getitem__) == list(order)
    assert all(before[job_id] != place for job_id, place in changes.items())


@pytest.mark.rule("DEC-005")
def test_moving_into_the_same_gap_again_and_again_uses_it_up_without_a_tie() -> None:
    low, high = 100, 200
    seen = {low, high}
    while (place := between(low, high)) is not None:
        assert place not in seen
        seen.add(place)
        high = place
    assert high - low == 1
