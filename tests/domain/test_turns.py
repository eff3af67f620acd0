"""The order in which partitions of one priority are served."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.turns import Turn

pytestmark = pytest.mark.rule("LIM-07")

NAMES = st.sampled_from(["", "a", "b", "c", "d"])
QUEUES = st.dictionaries(NAMES, st.integers(1, 9), min_size=1)
WEIGHTS = st.dictionaries(NAMES.filter(bool), st.integers(1, 4))


def queues_of(lengths: dict[str, int]) -> dict[str, list[tuple[str, int]]]:
    return {partition: [(partition, number) for number in range(length)] for partition, length in lengths.items()}


@given(QUEUES, WEIGHTS, NAMES, st.integers(0, 4))
def test_all_are_served_once_and_each_partition_in_its_own_order(
    lengths: dict[str, int], weights: dict[str, int], last: str, taken: int
) -> None:
    order = list(Turn(last, taken, weights).merged(queues_of(lengths)))
    assert Counter(order) == Counter(job for queue in queues_of(lengths).values() for job in queue)
    for partition, queue in queues_of(lengths).items():
        assert [job for job in order if job[0] == partition] == queue


@given(QUEUES, WEIGHTS, NAMES, st.integers(0, 4), st.integers(1, 9))
def test_served_in_parts_the_order_is_the_same(
    lengths: dict[str, int], weights: dict[str, int], last: str, taken: int, part: int
) -> None:
    turn, queues = Turn(last, taken, weights), queues_of(lengths)
    whole = list(turn.merged(queues))
    served: list[tuple[str, int]] = []
    while any(queues.values()):
        some = list(turn.merged({partition: queue for partition, queue in queues.items() if queue}))[:part]
        for partition, _ in some:
            queues[partition].pop(0)
        turn = turn.after(partition for partition, _ in some)
        served += some
    assert served == whole


def test_the_next_by_name_has_its_turn_and_who_has_no_name_comes_between_the_last_and_the_first() -> None:
    queues = queues_of({"a": 1, "b": 1, "c": 1, "": 1})
    assert [partition for partition, _ in Turn("b", 1).merged(queues)] == ["c", "", "a", "b"]
    assert [partition for partition, _ in Turn("", 1).merged(queues)] == ["a", "b", "c", ""]
    assert [partition for partition, _ in Turn("b", 1, {"b": 2}).merged(queues)] == ["b", "c", "", "a"]
