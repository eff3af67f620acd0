"""Adaptive schedules: planned in the transaction that ends their chain, however it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.schedule import Schedule
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.manual_fire import trigger_schedule
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.schedules.after_run import replan_orphan
from holdbeat.store.schedules.schedules import (
    clear_hints,
    disable_schedule,
    enable_schedule,
    patch_schedule,
    pause_schedule,
    reset_failure_count,
    resume_schedule,
    resume_schedules,
    set_hints,
)
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_all,
    claim_one,
    complete,
    count,
    events_of,
    fail,
    skip,
)
from tests.conformance.schedule_acts import (
    assert_each_due_time_once,
    fire,
    jobs_of,
    make_adaptive,
    make_endpoint,
    occurrences,
    seen,
    wake_at,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def fire_at(store: PersistenceAdapter, clock: ManualClock, moment: datetime) -> None:
    """Moves the clock to the moment and fires what is due: one."""
    clock.advance((moment - clock.now()).total_seconds())
    assert fire(store).fired == 1


def fail_times(store: PersistenceAdapter, clock: ManualClock, times: int) -> None:
    for _ in range(times):
        moment = seen(store, "s").next_run_at
        assert moment is not None
        fire_at(store, clock, moment)
        fail(store, claim_one(store))


@pytest.mark.rule("GOV-09")
def test_while_its_job_is_unfinished_nothing_is_planned(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make_adaptive(store)
    fire_at(store, clock, at(60))
    assert seen(store, "s").next_run_at is None and wake_at(store, schedule) is None
    clock.advance(600)
    assert fire(store).judged == 0, "never two at once"
    taken = claim_one(store)
    clock.advance(10)
    complete(store, taken)
    planned = seen(store, "s")
    # Started at 660, took 10 s.
    assert planned.last_run_at == at(660) and planned.next_run_at == at(720) == wake_at(store, schedule)


@pytest.mark.rule("GOV-05")
def test_a_run_longer_than_its_interval_is_followed_one_interval_after_its_end(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """A pitfall: computed from a stale start the next time was past already, and it ran again and again."""
    make_adaptive(store, interval_s=60)
    fire_at(store, clock, at(60))
    taken = claim_one(store)
    clock.advance(90)
    complete(store, taken)
    assert seen(store, "s").next_run_at == at(60 + 150)


@pytest.mark.rule("GOV-01")
def test_the_first_failure_doubles_and_the_first_success_is_back_to_normal(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """A pitfall: the counter was updated after planning, so backoff came and went one step late."""
    make_adaptive(store)
    starts = []
    for _ in range(7):
        moment = seen(store, "s").next_run_at
        assert moment is not None
        fire_at(store, clock, moment)
        starts.append(moment)
        fail(store, claim_one(store))
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(starts)]
    assert gaps == [120, 240, 480, 960, 1920, 1920]
    moment = seen(store, "s").next_run_at
    assert moment is not None
    fire_at(store, clock, moment)
    complete(store, claim_one(store))
    back = seen(store, "s")
    assert back.failure_count == 0 and back.next_run_at == moment + timedelta(seconds=60)


@pytest.mark.rule("GOV-01", "GOV-09")
@pytest.mark.parametrize(
    ("end", "failures"),
    [("complete", 0), ("fail", 2), ("skip", 1), ("cancel", 1), ("cancel queued", 1), ("interrupted", 1), ("lost", 2)],
)
def test_however_the_chain_ends_it_is_planned_and_counted(
    store: PersistenceAdapter, clock: ManualClock, end: str, failures: int
) -> None:
    schedule = make_adaptive(store)
    fail_times(store, clock, 1)
    moment = seen(store, "s").next_run_at
    assert moment is not None
    fire_at(store, clock, moment)
    job = jobs_of(store, schedule)[-1]
    if end == "cancel queued":
        cancel(store, job.id)
    else:
        taken = claim_one(store)
        match end:
            case "complete":
                complete(store, taken)
            case "fail":
                fail(store, taken)
            case "skip":
                skip(store, taken)
            case "cancel":
                cancel(store, job.id)
                assert seen(store, "s").next_run_at is None, "its handler still runs"
                complete(store, taken)
            case "interrupted":
                fail(store, taken, ErrorKind.INTERRUPTED)
            case "lost":
                clock.advance(10_000)
                for verb, arguments in recovery_units(store.read_sync(find_trouble, LeaseTerms())):
                    store.write_sync(verb, *arguments)
    planned = seen(store, "s")
    assert planned.failure_count == failures
    assert planned.next_run_at is not None and planned.next_run_at >= clock.now()
    assert wake_at(store, schedule) == planned.next_run_at
    assert planned.last_decision is not None and planned.last_decision["sentence"]


@pytest.mark.rule("GOV-09", "RET-02")
def test_a_retry_keeps_the_chain_in_flight(store: PersistenceAdapter, clock: ManualClock) -> None:
    make_adaptive(store, retry_policy={"max_attempts": 1, "base_delay_s": 5})
    fire_at(store, clock, at(60))
    fail(store, claim_one(store))
    assert seen(store, "s").next_run_at is None and seen(store, "s").failure_count == 0
    clock.advance(5)
    fail(store, claim_one(store))
    assert seen(store, "s").failure_count == 1 and seen(store, "s").next_run_at == at(65 + 120)


@pytest.mark.rule("GOV-09")
def test_a_job_retried_by_hand_holds_the_next_fire_back(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make_adaptive(store)
    fire_at(store, clock, at(60))
    fail(store, claim_one(store))
    due = seen(store, "s").next_run_at
    store.write_sync(retry_job, jobs_of(store, schedule)[0].id)
    assert due is not None
    clock.advance((due - clock.now()).total_seconds())
    firing = fire(store)
    assert firing.fired == 0 and firing.replanned == 1 and wake_at(store, schedule) is None
    complete(store, claim_one(store))
    assert seen(store, "s").next_run_at == clock.now() + timedelta(seconds=60)


@pytest.mark.rule("GOV-04")
def test_a_run_now_hint_is_used_up_by_one_run(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A pitfall: it was not consumed, and ran in a loop for its whole life; or twice."""
    schedule = make_adaptive(store, interval_s=3600)
    store.write_sync(set_hints, "s", next_run_at=clock.now(), reason="look now")
    assert fire(store).fired == 1
    assert seen(store, "s").hint_next_run_at is None
    complete(store, claim_one(store))
    assert seen(store, "s").next_run_at == at(3600)
    clock.advance(1800)
    assert fire(store).judged == 0 and len(jobs_of(store, schedule)) == 1


@pytest.mark.rule("GOV-04")
def test_a_hint_set_during_a_run_is_kept_for_the_next(store: PersistenceAdapter, clock: ManualClock) -> None:
    make_adaptive(store, interval_s=3600)
    fire_at(store, clock, at(3600))
    taken = claim_one(store)
    clock.advance(5)
    store.write_sync(set_hints, "s", next_run_at=clock.now() + timedelta(seconds=30))
    assert seen(store, "s").next_run_at is None, "it is in flight"
    clock.advance(5)
    complete(store, taken)
    assert seen(store, "s").next_run_at == at(3635)


@pytest.mark.rule("GOV-03")
def test_a_slower_hint_slows_down(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A pitfall: with "earliest wins" a slower hint was useless."""
    make_adaptive(store, interval_s=60)
    store.write_sync(set_hints, "s", interval_s=600)
    assert seen(store, "s").next_run_at == at(600)


@pytest.mark.rule("GOV-02")
def test_each_hint_has_its_own_expiry_and_its_end_plans_anew(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A pitfall: one shared expiry, so that a short one-shot cut a long interval hint off."""
    schedule = make_adaptive(store, interval_s=60)
    store.write_sync(set_hints, "s", interval_s=7200, ttl_s=4 * 3600)
    store.write_sync(set_hints, "s", next_run_at=at(50), ttl_s=60)
    hinted = seen(store, "s")
    assert hinted.hint_interval_expires_at == at(4 * 3600) and hinted.hint_next_run_expires_at == at(60)
    assert hinted.next_run_at == at(50)
    store.write_sync(clear_hints, "s")
    assert seen(store, "s").next_run_at == at(60), "cleared hints plan anew"
    store.write_sync(set_hints, "s", interval_s=7200, ttl_s=100)
    assert wake_at(store, schedule) == at(100) and seen(store, "s").next_run_at == at(7200)
    clock.advance(100)
    firing = fire(store)
    assert (firing.fired, firing.replanned) == (0, 1)
    assert seen(store, "s").next_run_at == at(100), "back to the interval, which has passed"
    assert fire(store).fired == 1


@pytest.mark.rule("GOV-08")
def test_resume_edits_and_resets_take_effect_at_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    """Two pitfalls: the lock stayed at the old time; a field was erased and nothing planned."""
    schedule = make_adaptive(store, interval_s=3600)
    store.write_sync(patch_schedule, "s", {"interval_s": 10})
    assert wake_at(store, schedule) == at(10)
    store.write_sync(pause_schedule, "s", None, "holiday")
    assert seen(store, "s").next_run_at is None and wake_at(store, schedule) is None
    clock.advance(100)
    assert fire(store).judged == 0
    store.write_sync(resume_schedule, "s")
    assert wake_at(store, schedule) == at(100) and fire(store).fired == 1
    fail(store, claim_one(store))
    fail_times(store, clock, 4)
    store.write_sync(reset_failure_count, "s")
    reset = seen(store, "s")
    assert reset.failure_count == 0 and reset.last_run_at is not None
    assert reset.next_run_at == reset.last_run_at + timedelta(seconds=10)
    store.write_sync(disable_schedule, "s")
    assert wake_at(store, schedule) is None
    store.write_sync(enable_schedule, "s")
    assert wake_at(store, schedule) == reset.next_run_at


@pytest.mark.rule("GOV-07")
def test_a_pause_set_during_a_run_holds(store: PersistenceAdapter, clock: ManualClock) -> None:
    make_adaptive(store)
    fire_at(store, clock, at(60))
    taken = claim_one(store)
    store.write_sync(pause_schedule, "s", at(5000), None)
    clock.advance(1)
    complete(store, taken)
    assert seen(store, "s").next_run_at == at(5000)


@pytest.mark.rule("GOV-06")
def test_clamps_hold_against_hints(store: PersistenceAdapter) -> None:
    make_adaptive(store, interval_s=60, min_interval_s=30, max_interval_s=300)
    store.write_sync(set_hints, "s", interval_s=1)
    assert seen(store, "s").next_run_at == at(30)
    store.write_sync(set_hints, "s", interval_s=86400)
    assert seen(store, "s").next_run_at == at(300)


def test_every_short_interval_runs_once_per_interval_not_once_per_look(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """A pitfall: one parameter was both look-ahead and lock, and all short intervals ran at every tick."""
    schedule = make_adaptive(store, interval_s=10)
    for _ in range(60):
        clock.advance(1)
        fire(store)
        for taken in claim_all(store):
            complete(store, taken)
    assert [occurrence.due_at for occurrence in occurrences(store, schedule)] == [at(n) for n in range(10, 61, 10)]


def test_a_cron_slot_runs_once_however_often_somebody_looks_around_it(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """A pitfall: claimed early by the look-ahead, "next after now" was the same slot: it ran three times."""
    schedule = make_adaptive(store, cron="*/5 * * * *", interval_s=None)
    clock.advance(289)
    for _ in range(40):
        clock.advance(1)
        fire(store)
        for taken in claim_all(store):
            complete(store, taken)
    assert [occurrence.due_at for occurrence in occurrences(store, schedule)] == [at(300)]
    assert seen(store, "s").next_run_at == at(600)


@pytest.mark.rule("TIME-05")
def test_resuming_thousands_at_once_spreads_them_over_a_minute(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A pitfall: all were due in the same second."""
    for number in range(60):
        make_adaptive(store, f"s{number}", interval_s=60)
        store.write_sync(pause_schedule, f"s{number}", None, None)
    clock.advance(7200)
    resumed = store.write_sync(resume_schedules)
    assert len(resumed) == 60
    moments = [item.next_run_at for item in resumed if item.next_run_at is not None]
    assert len(moments) == 60 and all(
        clock.now() <= moment <= clock.now() + timedelta(seconds=60) for moment in moments
    )
    assert max(moments) - min(moments) > timedelta(seconds=40)


@pytest.mark.rule("TIME-11")
def test_a_manual_fire_puts_it_in_flight_and_a_second_is_refused(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make_adaptive(store)
    store.write_sync(disable_schedule, "s")
    occurrence, job = store.write_sync(trigger_schedule, "s")
    assert occurrence.status == "manual" and occurrence.job_id == job.id
    with pytest.raises(Conflict, match="still queued"):
        store.write_sync(trigger_schedule, "s")
    assert count(store, "occurrences") == count(store, "jobs") == 1
    store.write_sync(enable_schedule, "s")
    assert seen(store, "s").next_run_at is None, "in flight"
    complete(store, claim_one(store))
    assert seen(store, "s").next_run_at == at(60)
    assert_each_due_time_once(store)
    assert schedule.id == job.schedule_id


@pytest.mark.rule("GOV-09", "REC-03")
def test_recovery_plans_a_schedule_that_has_neither_plan_nor_job_once(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    lost: Schedule = make_adaptive(store, "lost")
    busy = make_adaptive(store, "busy", interval_s=1)
    make_adaptive(store, "over", end_at=at(5))
    make_adaptive(store, "held")
    store.write_sync(pause_schedule, "held", None, None)
    clock.advance(10)
    fire(store)
    change(store, "UPDATE schedules SET next_run_at = NULL, wake_at = NULL WHERE id = :id", id=lost.id)
    trouble = store.read_sync(find_trouble, LeaseTerms())
    assert trouble.schedules == [lost.id]
    for verb, arguments in recovery_units(trouble):
        assert store.write_sync(verb, *arguments)
    assert seen(store, "lost").next_run_at == at(60)
    assert seen(store, busy.id).next_run_at is None
    before = count(store, "events")
    assert not store.read_sync(find_trouble, LeaseTerms())
    for well in (lost, busy):
        assert not store.write_sync(replan_orphan, well.id)
    assert count(store, "events") == before


@pytest.mark.rule("GOV-09")
def test_several_that_end_in_one_commit_are_all_planned(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    for number in range(30):
        make_adaptive(store, f"s{number}")
    clock.advance(60)
    assert fire(store).fired == 30
    for taken in claim_all(store):
        complete(store, taken)
    assert {seen(store, f"s{number}").next_run_at for number in range(30)} == {at(120)}
    assert len(events_of(store, "schedule.planned")) == 60


@pytest.mark.rule("GOV-09", "GOV-10")
def test_an_endpoint_makes_http_jobs_without_retries(store: PersistenceAdapter, clock: ManualClock) -> None:
    endpoint = make_endpoint(store, method="post", body={"a": 1}, headers={"Authorization": "Bearer x"}, timeout_s=5)
    clock.advance(60)
    fire(store)
    [job] = jobs_of(store, endpoint)
    assert (job.type, job.resource, job.retry_policy.max_attempts, job.timeout_s) == ("http", "http", 0, 60)
    assert job.params == {
        "url": "http://127.0.0.1:9/",
        "method": "POST",
        "headers": {"Authorization": "Bearer x"},
        "body": {"a": 1},
        "timeout_s": 5,
        "max_response_kb": 100,
    }
    fail(store, claim_one(store, http=1))
    assert seen(store, "e").failure_count == 1 and seen(store, "e").next_run_at == at(180)


@pytest.mark.rule("GOV-09")
def test_an_adaptive_schedule_that_cannot_make_its_job_backs_off_and_says_why(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make_adaptive(store)
    change(store, "DELETE FROM job_types")
    clock.advance(60)
    firing = fire(store)
    assert (firing.fired, firing.left_out, firing.replanned) == (0, 1, 1)
    [occurrence] = occurrences(store, schedule)
    assert occurrence.status == "skipped" and "no job type" in (occurrence.reason or "")
    assert seen(store, "s").failure_count == 1 and seen(store, "s").next_run_at == at(120)
    assert fire(store).judged == 0, "it does not try again and again"
