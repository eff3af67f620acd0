"""Rates: starts in every window of the period."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.rate import Rate, due_after, interval_s, next_start, permitted

RATES = st.builds(Rate, st.integers(1, 50), st.floats(0.5, 3600), st.integers(0, 20))
BEGIN = 1_700_000_000.0


@pytest.mark.rule("LIM-05")
@given(rate=RATES, steps=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), min_size=1, max_size=60))
def test_no_window_of_the_period_has_more_starts_than_count_and_burst(
    rate: Rate, steps: list[tuple[float, int]]
) -> None:
    now, due = BEGIN, None
    starts: list[float] = []
    for pause, eager in steps:
        now += pause * rate.per_s / 2
        count = min(eager, permitted(rate, due, now))
        if count:
            due = due_after(rate, due, now, count)
            starts += [now] * count
    slack = interval_s(rate) * 1e-5
    for first in starts:
        within = sum(1 for start in starts if first <= start < first + rate.per_s - slack)
        assert within <= rate.count + rate.burst


@pytest.mark.rule("LIM-05")
@given(rate=RATES, count=st.integers(1, 100))
def test_at_the_next_start_one_may_start_and_shortly_before_none(rate: Rate, count: int) -> None:
    due = None
    now = BEGIN
    for _ in range(count):
        at = next_start(rate, due, now)
        if at > now:
            assert permitted(rate, due, at - interval_s(rate) * 1e-3) == 0
        now = at
        assert permitted(rate, due, now) >= 1
        due = due_after(rate, due, now, 1)


@pytest.mark.rule("LIM-05")
def test_who_waited_has_saved_up_only_the_burst() -> None:
    rate = Rate(60, 60, 5)
    due = due_after(rate, None, BEGIN, 1)
    assert permitted(rate, due, BEGIN + 1_000_000) == 6


@pytest.mark.rule("LIM-05")
def test_a_clock_that_is_set_back_stops_nothing_for_longer_than_the_burst_takes() -> None:
    rate = Rate(60, 60, 5)
    due = due_after(rate, None, BEGIN + 86_400, 6)
    assert permitted(rate, due, BEGIN) == 0
    assert next_start(rate, due, BEGIN) == BEGIN + 1
