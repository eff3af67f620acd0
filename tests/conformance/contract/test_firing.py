"""Firing: due times become Occurrences and Jobs, each once, in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdbeat.domain import events
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import Hold, JobStatus
from holdbeat.domain.run import Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.templates import archive_template, create_template
from holdbeat.store.rare_events import event_counts
from holdbeat.store.schedules.schedules import (
    delete_schedule,
    disable_schedule,
    patch_schedule,
    pause_schedule,
    resume_schedule,
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
    job_of_claim,
    look,
    rows,
    settle_as,
)
from tests.conformance.schedule_acts import (
    announce_types,
    assert_each_due_time_once,
    fire,
    fire_all,
    jobs_of,
    make,
    occurrences,
    seen,
    verdicts,
    wake_at,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.rule("TIME-02", "TIME-09")
def test_a_due_time_becomes_one_occurrence_and_one_job(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, interval_s=60, params={"n": 1}, priority=7, labels={"team": "night"})
    assert schedule.next_run_at == at(60) and wake_at(store, schedule) == at(60)
    clock.advance(59.999)
    assert fire(store).judged == 0, "never early"
    clock.advance(0.001)
    firing = fire(store)
    assert (firing.fired, firing.refused, firing.at) == (1, 0, at(60))
    assert firing.wakes == [at(120)]
    [occurrence] = occurrences(store, schedule)
    [job] = jobs_of(store, schedule)
    assert (occurrence.due_at, occurrence.status, occurrence.job_id) == (at(60), "fired", job.id)
    assert (job.scheduled_for, job.priority, job.params, job.labels) == (at(60), 7, {"n": 1}, {"team": "night"})
    assert job.status is JobStatus.QUEUED and job.schedule_id == schedule.id
    assert seen(store, "s").next_run_at == at(120)
    assert fire(store).judged == 0
    assert [row[0] for row in events_of(store, "schedule.fired")] == [job.id]


@pytest.mark.rule("TIME-05")
def test_the_longest_waiting_fire_first_and_in_batches(store: PersistenceAdapter, clock: ManualClock) -> None:
    for number in range(5):
        make(store, f"s{number}", interval_s=60 + number)
    clock.advance(64)
    first = fire(store, 2)
    assert first.is_full and first.fired == 2
    assert [row[0] for row in rows(store, "SELECT scheduled_for FROM jobs ORDER BY id")] == [
        row[0] for row in rows(store, "SELECT due_at FROM occurrences ORDER BY due_at")
    ]
    assert {o.due_at for o in occurrences(store, seen(store, "s0"))} == {at(60)}
    assert occurrences(store, seen(store, "s4")) == []
    assert fire_all(store, 2) == 3
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-02", "ALR-04")
def test_a_due_time_that_somebody_judged_before_is_refused_not_fired(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store)
    clock.advance(60)
    assert fire(store).fired == 1
    # As a restored backup of the one table would leave it.
    change(
        store,
        "UPDATE schedules SET next_run_at = :at, wake_at = :at WHERE id = :id",
        at=at(60),
        id=schedule.id,
    )
    firing = fire(store)
    assert (firing.fired, firing.refused) == (0, 1)
    assert count(store, "events", "name = 'schedule.duplicate_refused'") == 1
    assert store.read_sync(event_counts)[events.DUPLICATE_REFUSED] == 1
    assert count(store, "occurrences") == 1 and count(store, "jobs") == 1
    assert seen(store, "s").next_run_at == at(120)


@pytest.mark.rule("TIME-03")
@pytest.mark.parametrize(
    ("policy", "fired", "others"),
    [("latest", 1, {"coalesced": 863}), ("none", 0, {"missed": 864}), ("all", 100, {"missed": 764})],
)
def test_three_days_down_at_every_five_minutes(
    store: PersistenceAdapter, clock: ManualClock, policy: str, fired: int, others: dict[str, int]
) -> None:
    schedule = make(store, cron="*/5 * * * *", catch_up=policy)
    clock.advance(3 * 86400 + 120)
    assert fire_all(store) == fired
    fires = occurrences(store, schedule)
    counts: dict[str, int] = {}
    for item in fires:
        counts[item.status.value] = counts.get(item.status.value, 0) + item.count
    assert counts.pop("fired", 0) == fired and counts == others
    assert seen(store, "s").next_run_at == at(3 * 86400 + 300)
    due = [job.scheduled_for for job in jobs_of(store, schedule)]
    assert due == sorted(due, key=str), "in due order"
    if fired:
        assert due[-1] == at(3 * 86400)
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-03")
@pytest.mark.parametrize("policy", ["latest", "none", "all"])
def test_what_is_up_to_a_minute_late_simply_fires(store: PersistenceAdapter, clock: ManualClock, policy: str) -> None:
    schedule = make(store, cron="0 * * * *", catch_up=policy)
    clock.advance(3600 + 60)
    assert fire(store).fired == 1
    assert occurrences(store, schedule)[0].late_s == 60
    clock.advance(3600 + 0.001)
    assert fire(store).fired == (0 if policy == "none" else 1)


@pytest.mark.rule("TIME-03")
def test_a_year_down_gives_bounded_rows_whose_counts_add_up(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, interval_s=60, catch_up="latest")
    clock.advance(365 * 86400 + 1)
    assert fire_all(store) == 1
    fires = occurrences(store, schedule)
    assert len(fires) <= 1002 and sum(item.count for item in fires) == 365 * 1440


@pytest.mark.rule("TIME-05")
def test_jitter_delays_the_fire_and_leaves_the_due_time(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, interval_s=3600, jitter_s=600, catch_up="none")
    moment = wake_at(store, schedule)
    assert moment is not None and at(3600) <= moment <= at(4200)
    clock.advance((moment - START).total_seconds() - 0.001)
    assert fire(store).judged == 0
    clock.advance(0.001)
    assert fire(store).fired == 1, "jitter is no lateness, also where late fires are dropped"
    assert occurrences(store, schedule)[0].due_at == at(3600)
    again = wake_at(store, schedule)
    assert again is not None and at(7200) <= again <= at(7800)


@pytest.mark.rule("TIME-05")
def test_jitter_as_long_as_the_period_loses_no_due_time(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, cron="* * * * *", jitter_s=60, catch_up="all")
    for _ in range(60):
        clock.advance(30)
        fire_all(store)
    due_times = [occurrence.due_at for occurrence in occurrences(store, schedule)]
    assert due_times == [at(60 * n) for n in range(1, len(due_times) + 1)] and len(due_times) >= 25
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-11")
def test_overlap_skip_records_and_drops(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, overlap="skip")
    clock.advance(60)
    fire(store)
    clock.advance(60)
    assert fire(store).left_out == 1
    taken = claim_one(store)
    clock.advance(60)
    assert fire(store).left_out == 1
    complete(store, taken)
    clock.advance(60)
    assert fire(store).fired == 1
    assert [status for _, status in verdicts(store, schedule)] == ["fired", "skipped", "skipped", "fired"]
    reasons = [occurrence.reason or "" for occurrence in occurrences(store, schedule)]
    assert "queued" in reasons[1] and "has not ended" in reasons[2]
    assert len(events_of(store, "schedule.skipped")) == 2


@pytest.mark.rule("TIME-11")
def test_overlap_queue_one_keeps_one_waiting_and_lets_it_go_when_the_running_one_ends(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, overlap="queue_one", retry_policy={"max_attempts": 1, "base_delay_s": 0})
    clock.advance(60)
    fire(store)
    running = claim_one(store)
    clock.advance(60)
    assert fire(store).fired == 1
    clock.advance(60)
    assert fire(store).left_out == 1
    waiting = jobs_of(store, schedule)[1]
    assert waiting.hold is Hold.OVERLAPPED and claim_all(store) == []
    fail(store, running)
    retry = claim_one(store)
    assert retry.job is not None and retry.job.retry_of, "the chain goes on first"
    assert claim_all(store, worker="x") == []
    complete(store, retry)
    freed = claim_one(store)
    assert freed.job is not None and freed.job.id == waiting.id
    assert [status for _, status in verdicts(store, schedule)] == ["fired", "fired", "skipped"]


@pytest.mark.rule("TIME-11", "WAIT-08")
def test_overlap_queue_one_keeps_one_waiting_behind_a_chain_that_sleeps(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, overlap="queue_one")
    clock.advance(60)
    fire(store)
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 600),)))
    clock.advance(60)
    assert fire(store).fired == 1
    clock.advance(60)
    assert fire(store).left_out == 1
    asleep, waiting = jobs_of(store, schedule)[1:]
    assert waiting.hold is Hold.OVERLAPPED
    assert asleep.id in store.read_sync(explain_job, waiting.id)["summary"]
    clock.advance(600)
    (woken,) = claim_all(store)
    assert job_of_claim(woken).id == asleep.id
    settle_as(store, woken, Outcome.continued((Wait(WaitKind.SLEEP, "$sleep#2", None, 600),)))
    again = jobs_of(store, schedule)[-1]
    assert again.retry_of == asleep.id and claim_all(store) == []
    assert again.id in store.read_sync(explain_job, waiting.id)["summary"]
    cancel(store, again.id)
    assert job_of_claim(claim_one(store)).id == waiting.id


@pytest.mark.rule("TIME-11")
def test_overlap_queue_one_keeps_one_waiting_behind_a_failed_job_that_is_tried_again(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, overlap="queue_one", retry_policy={"max_attempts": 1, "base_delay_s": 600})
    clock.advance(60)
    fire(store)
    fail(store, claim_one(store))
    clock.advance(60)
    assert fire(store).fired == 1, "as it does if the job fails after this due time"
    clock.advance(60)
    assert fire(store).left_out == 1
    retry, waiting = jobs_of(store, schedule)[1:]
    assert waiting.hold is Hold.OVERLAPPED and claim_all(store) == []
    clock.advance(600)
    (again,) = claim_all(store)
    assert job_of_claim(again).id == retry.id
    complete(store, again)
    assert job_of_claim(claim_one(store)).id == waiting.id


@pytest.mark.rule("TIME-11", "WAIT-08")
@pytest.mark.parametrize(("policy", "first"), [("skip", JobStatus.QUEUED), ("cancel_previous", JobStatus.CANCELLED)])
def test_a_chain_that_sleeps_is_skipped_for_or_replaced(
    store: PersistenceAdapter, clock: ManualClock, policy: str, first: JobStatus
) -> None:
    schedule = make(store, overlap=policy)
    clock.advance(60)
    fire(store)
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 600),)))
    clock.advance(60)
    fire(store)
    asleep, *more = jobs_of(store, schedule)[1:]
    assert asleep.status is first
    assert [job.hold for job in more] == ([Hold.READY] if policy == "cancel_previous" else [])


@pytest.mark.rule("TIME-11", "CAN-04")
def test_overlap_cancel_previous_waits_until_the_cancelled_handler_has_ended(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, overlap="cancel_previous")
    clock.advance(60)
    fire(store)
    running = claim_one(store)
    clock.advance(60)
    fire(store)
    first, second = jobs_of(store, schedule)
    assert first.status is JobStatus.CANCELLED and second.hold is Hold.OVERLAPPED
    assert claim_all(store, worker="x") == [], "the cancelled work still runs"
    clock.advance(60)
    fire(store)
    second, third = jobs_of(store, schedule)[1:]
    assert second.status is JobStatus.CANCELLED and third.hold is Hold.OVERLAPPED
    complete(store, running)
    freed = claim_one(store)
    assert freed.job is not None and freed.job.id == third.id
    complete(store, freed)
    clock.advance(60)
    fire(store)
    assert jobs_of(store, schedule)[3].hold is Hold.READY


@pytest.mark.rule("TIME-11", "TIME-03")
def test_caught_up_fires_that_replace_each_other_make_one_job(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, overlap="cancel_previous", catch_up="all")
    clock.advance(600)
    assert fire_all(store) == 1
    assert [status for _, status in verdicts(store, schedule)] == ["skipped"] * 9 + ["fired"]


@pytest.mark.rule("TIME-11")
def test_a_fire_that_waits_goes_on_when_the_queued_one_before_it_is_cancelled(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, overlap="queue_one")
    clock.advance(60)
    fire(store)
    running = claim_one(store)
    clock.advance(60)
    fire(store)
    waiting = jobs_of(store, schedule)[1]
    cancel(store, jobs_of(store, schedule)[0].id)
    assert look(store, waiting.id).hold is Hold.OVERLAPPED
    complete(store, running)
    assert look(store, waiting.id).hold is Hold.READY
    store.write_sync(delete_schedule, schedule.id)


@pytest.mark.rule("TIME-10")
def test_due_times_of_a_pause_are_recorded_as_skipped_and_never_caught_up(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, catch_up="all")
    store.write_sync(pause_schedule, "s", at(200), "the line is down")
    clock.advance(60)
    assert fire(store).left_out == 1
    clock.advance(400)
    assert fire_all(store) == 4
    assert [status for _, status in verdicts(store, schedule)] == ["skipped"] * 3 + ["fired"] * 4
    assert "the line is down" in (occurrences(store, schedule)[0].reason or "")
    assert occurrences(store, schedule)[3].due_at == at(240), "the first slot behind the pause"


@pytest.mark.rule("TIME-10")
def test_resume_records_what_fell_into_the_pause_and_goes_on(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, catch_up="all")
    store.write_sync(pause_schedule, "s", None, None)
    clock.advance(190)
    store.write_sync(resume_schedule, "s")
    assert verdicts(store, schedule) == [
        ("2026-01-01T00:01:00.000Z", "skipped"),
        ("2026-01-01T00:02:00.000Z", "skipped"),
        ("2026-01-01T00:03:00.000Z", "skipped"),
    ]
    assert fire(store).judged == 0
    clock.advance(50)
    assert fire(store).fired == 1


@pytest.mark.rule("TIME-10")
def test_disabled_and_outside_of_start_and_end_there_are_no_rows(store: PersistenceAdapter, clock: ManualClock) -> None:
    make(store, "off", enabled=False)
    window = make(store, "window", start_at=at(120), end_at=at(180))
    gone = make(store, "gone")
    store.write_sync(disable_schedule, "gone")
    clock.advance(600)
    assert fire_all(store) == 1
    assert [due for due, _ in verdicts(store, window)] == ["2026-01-01T00:02:00.000Z", "2026-01-01T00:03:00.000Z"]
    assert count(store, "occurrences") == 2 and occurrences(store, gone) == []
    assert seen(store, "window").next_run_at is None and wake_at(store, window) is None


def test_one_schedule_that_cannot_make_its_job_does_not_drop_the_rest_of_the_batch(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """A pitfall: a deleted parent in the middle of a batch dropped the rest of it."""
    announce_types(store)
    store.write_sync(create_template, {"name": "t", "type": "noop"})
    make(store, "a")
    broken = make(store, "b", template="t")
    make(store, "c")

    # As a hand would: archiving by the verb disables the schedule.
    change(store, "UPDATE job_templates SET archived_at = :now", now=clock.now())
    clock.advance(60)
    firing = fire(store)
    assert (firing.fired, firing.left_out) == (2, 1)
    assert "archived" in (occurrences(store, broken)[0].reason or "")
    assert seen(store, "b").next_run_at == at(120)


@pytest.mark.rule("INV-005")
def test_archiving_a_template_stops_its_schedules_and_changes_no_job(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """A pitfall: paused or archived parents kept running."""
    announce_types(store)
    store.write_sync(create_template, {"name": "t", "type": "noop", "default_params": {"a": 1}})
    schedule = make(store, template="t", params={"b": 2})
    clock.advance(60)
    fire(store)
    [job] = jobs_of(store, schedule)
    store.write_sync(patch_schedule, "s", {"params": {"b": 3}, "priority": 50})
    store.write_sync(archive_template, "t")
    clock.advance(600)
    assert fire(store).judged == 0
    unchanged = look(store, job.id)
    assert (unchanged.params, unchanged.priority) == ({"a": 1, "b": 2}, 0)


@pytest.mark.rule("TIME-02", "CAP-02")
def test_two_triggers_in_turn_make_each_due_time_once(open_store: OpenStore, clock: ManualClock) -> None:
    one, two = open_store(), open_store()
    for number in range(20):
        make(one, f"s{number}", interval_s=60)
    for _ in range(5):
        clock.advance(60)
        fired = fire(one, 7).fired + fire(two, 7).fired + fire_all(one, 7) + fire_all(two, 7)
        assert fired == 20
    assert_each_due_time_once(one)


@pytest.mark.rule("TIME-11")
def test_a_replacement_that_cannot_be_made_cancels_nothing(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, overlap="cancel_previous")
    clock.advance(60)
    fire(store)
    change(store, "DELETE FROM job_types")
    clock.advance(60)
    assert fire(store).left_out == 1
    assert [job.status for job in jobs_of(store, schedule)] == [JobStatus.QUEUED]


@pytest.mark.rule("TIME-03", "TIME-05")
def test_many_schedules_after_a_long_downtime_are_judged_in_transactions_of_bounded_size(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    for number in range(12):
        make(store, f"s{number}", cron="*/5 * * * *", interval_s=None)
    clock.advance(3 * 86400 + 120)
    sizes = []
    while (firing := fire(store)).judged:
        sizes.append(firing.judged)
        assert firing.is_full == (sum(sizes) < 12)
    assert sum(sizes) == 12 and max(sizes) == 3
    assert_each_due_time_once(store)
