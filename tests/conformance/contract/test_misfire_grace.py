"""How late a due time may be and still fire, on both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.schedules import patch_schedule
from tests.conformance.schedule_acts import fire_all, make, make_adaptive, make_endpoint, occurrences, seen


@pytest.mark.rule("TIME-03")
@pytest.mark.parametrize("policy", ["latest", "none"])
def test_after_a_stop_of_45_seconds_a_schedule_of_one_second_makes_one_job(
    store: PersistenceAdapter, clock: ManualClock, policy: str
) -> None:
    schedule = make(store, interval_s=1, catch_up=policy)
    clock.advance(45.5)
    assert fire_all(store) == 1
    rows = occurrences(store, schedule)
    assert len(rows) == 45 and [row.status.value for row in rows].count("fired") == 1
    assert rows[-1].status == "fired"


@pytest.mark.rule("TIME-03")
def test_the_grace_can_be_set_changed_and_taken_back(store: PersistenceAdapter, clock: ManualClock) -> None:
    make(store, interval_s=10, catch_up="none", misfire_grace_s=25)
    clock.advance(45)
    assert fire_all(store) == 3
    store.write_sync(patch_schedule, "s", {"misfire_grace_s": 0})
    assert seen(store, "s").misfire_grace_s == 0
    clock.advance(14)
    assert fire_all(store) == 0
    store.write_sync(patch_schedule, "s", {"misfire_grace_s": None})
    assert seen(store, "s").grace_s == 10
    clock.advance(2)
    assert fire_all(store) == 1
    assert seen(store, "s").next_run_at == clock.now() + timedelta(seconds=9)


@pytest.mark.rule("TIME-03")
def test_an_adaptive_schedule_and_an_endpoint_have_no_grace_of_their_own(store: PersistenceAdapter) -> None:
    for maker in (make_adaptive, make_endpoint):
        with pytest.raises(Invalid) as refusal:
            maker(store, misfire_grace_s=5)
        assert refusal.value.field == "misfire_grace_s"
    for wrong in (-1, 86_401, float("nan")):
        with pytest.raises(Invalid) as refusal:
            make(store, misfire_grace_s=wrong)
        assert refusal.value.field == "misfire_grace_s"
