"""Recovery repairs what crashes and hands left behind: once, in order, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.group import GroupMode, GroupStatus, OnFailure
from holdbeat.domain.job import JobStatus, NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from holdbeat.store.verbs.recover import Trouble, find_trouble, recovery_units
from holdbeat.store.verbs.recover_leases import recover_lease
from holdbeat.store.verbs.reservations import load_reservation
from holdbeat.store.verbs.settle import Settled
from holdbeat.store.verbs.workers import beat
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    events_of,
    ids_of,
    instant,
    job_of_claim,
    look,
    look_at_group,
    make_group,
    rows,
)
from tests.conformance.repair import LONG_SILENCE_S, TERMS, ask_directly, introduce, picture, recover, write_rows

HOOK = "https://hooks.example/in"


def retries_of(store: PersistenceAdapter, job_id: str) -> list[str]:
    return [row[0] for row in rows(store, "SELECT id FROM jobs WHERE retry_of = :id ORDER BY id", id=job_id)]


def told(store: PersistenceAdapter, job_id: str) -> list[str]:
    found = rows(store, "SELECT event FROM deliveries WHERE job_id = :id ORDER BY event", id=job_id)
    return [row[0] for row in found]


def running_without_lease(store: PersistenceAdapter, **fields: Any) -> str:
    """A job that a hand set RUNNING, without run or lease."""
    job = enqueue_one(store, webhook_url=HOOK, **fields)
    change(
        store,
        "UPDATE jobs SET status = 'RUNNING', started_at = created_at WHERE id = :id",
        id=job.id,
    )
    return job.id


def run_by_hand(store: PersistenceAdapter, job_id: str, clock: ManualClock, **end: Any) -> str:
    run_id = f"run-of-{job_id}"
    write_rows(
        store,
        "job_runs",
        id=run_id,
        job_id=job_id,
        type="noop",
        params_snapshot="{}",
        fence=1,
        worker_id="gone",
        started_at=clock.now(),
        **end,
    )
    return run_id


# --- scenario 1: crash during execution ------------------------------------------------------------------


@pytest.mark.rule("REC-01", "REC-02", "LEASE-05")
def test_a_dead_workers_run_ends_crashed_and_is_retried(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, webhook_url=HOOK)
    taken = claim_one(store, worker="dead")
    beaten_at = clock.now()
    clock.advance(5)
    assert recover(store, dead={"dead"}) == 1
    after = look(store, job.id)
    assert after.status is JobStatus.FAILED
    assert after.finished_at == clock.now()
    assert after.run is not None
    assert after.run.id == taken.lease.id
    assert (after.run.status, after.run.error_kind) == (RunStatus.FAILED, ErrorKind.CRASH)
    assert after.run.error is not None
    assert after.run.error.startswith("Crash recovery:")
    assert "dead" in after.run.error and iso(beaten_at) in after.run.error
    retry = look(store, after.retried_by or "")
    assert (retry.status, retry.retry_of, retry.position) == (JobStatus.QUEUED, job.id, job.position)
    assert retry.not_before == clock.now() + timedelta(seconds=10)
    assert told(store, job.id) == ["job.run.failed"]
    assert count(store, "leases") == 0
    assert len(events_of(store, "zombie.found")) == 1
    assert len(events_of(store, "recovery.acted")) == 1
    assert events_of(store, "lease.expired") == []


@pytest.mark.rule("REC-01", "LEASE-01")
def test_a_silent_workers_run_is_lost_only_beyond_grace(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    claim_one(store, terms=TERMS)
    clock.advance(TERMS.lease_s + TERMS.grace_s)
    assert recover(store) == 0
    clock.advance(0.001)
    assert recover(store) == 1
    after = look(store, job.id)
    assert after.run is not None
    assert after.run.error_kind is ErrorKind.LOST
    assert after.run.error is not None and after.run.error.startswith("Crash recovery:")
    assert len(events_of(store, "lease.expired")) == 1


@pytest.mark.rule("REC-01", "LEASE-02")
def test_a_live_worker_is_never_robbed_however_long_it_works(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    taken = claim_one(store, terms=TERMS)
    for _ in range(100):
        clock.advance(TERMS.heartbeat_s)
        store.write_sync(beat, "w", TERMS)
        assert recover(store) == 0
    assert complete(store, taken) is Settled.ACCEPTED
    assert look(store, job.id).status is JobStatus.COMPLETED


@pytest.mark.rule("REC-01", "LEASE-03")
def test_a_late_worker_cannot_settle_a_recovered_run(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    taken = claim_one(store, terms=TERMS)
    clock.advance(LONG_SILENCE_S)
    assert recover(store) == 1
    assert complete(store, taken) is Settled.STALE
    assert look(store, job.id).status is JobStatus.FAILED
    assert len(events_of(store, "lease.stale_result")) == 1


@pytest.mark.rule("LEASE-06", "REC-01")
def test_a_beat_between_the_look_and_the_act_saves_the_lease(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    taken = claim_one(store, terms=TERMS)
    clock.advance(LONG_SILENCE_S)
    trouble = store.read_sync(find_trouble, TERMS)
    assert [lease.lease_id for lease in trouble.leases] == [taken.lease.id]
    store.write_sync(beat, "w", TERMS)
    before = picture(store)
    assert not any(store.write_sync(verb, *args) for verb, args in recovery_units(trouble))
    assert picture(store) == before


@pytest.mark.rule("LEASE-06")
def test_a_clock_that_is_set_right_before_the_act_saves_the_lease(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    enqueue_one(store)
    claim_one(store, terms=TERMS)
    clock.jump(3600)
    trouble = store.read_sync(find_trouble, TERMS)
    assert trouble.leases
    clock.jump(-3600)
    assert not any(store.write_sync(verb, *args) for verb, args in recovery_units(trouble))
    assert count(store, "leases") == 1


@pytest.mark.rule("LEASE-06")
def test_a_clock_that_goes_back_neither_kills_nor_doubles(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    taken = claim_one(store, terms=TERMS)
    clock.jump(-7200)
    assert recover(store) == 0
    store.write_sync(beat, "w", TERMS)
    assert recover(store) == 0
    clock.jump(7200)
    store.write_sync(beat, "w", TERMS)
    assert recover(store) == 0
    assert complete(store, taken) is Settled.ACCEPTED


@pytest.mark.rule("CAN-04", "REC-01")
def test_the_run_of_a_cancelled_job_closes_cancelled_and_tells_nobody_twice(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, webhook_url=HOOK)
    claim_one(store, worker="dead")
    cancel(store, job.id, "enough")
    assert recover(store, dead={"dead"}) == 1
    after = look(store, job.id)
    assert after.status is JobStatus.CANCELLED
    assert after.run is not None
    assert (after.run.status, after.run.error_kind) == (RunStatus.FAILED, ErrorKind.CANCELLED)
    assert retries_of(store, job.id) == []
    assert told(store, job.id) == ["job.cancelled"]


@pytest.mark.rule("REC-02")
def test_a_poison_job_ends_for_good_after_four_crashes(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store, webhook_url=HOOK)
    executed = 0
    for _ in range(6):
        claims = claim_some(store, 1, worker="dead")
        executed += len(claims)
        recover(store, dead={"dead"})
        clock.advance(4000)
    assert executed == 4
    assert count(store, "jobs", "permanently_failed") == 1
    assert count(store, "deliveries", "event = 'job.permanently_failed'") == 1


@pytest.mark.rule("REC-02", "DEC-007")
def test_recovery_respects_a_policy_without_retries(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    claim_one(store, worker="dead")
    recover(store, dead={"dead"})
    assert look(store, job.id).permanently_failed
    assert retries_of(store, job.id) == []


@pytest.mark.rule("REC-02")
def test_a_job_that_is_running_without_a_run_gets_a_failed_one(store: PersistenceAdapter) -> None:
    job_id = running_without_lease(store)
    assert recover(store) == 1
    job = look(store, job_id)
    assert job.status is JobStatus.FAILED
    assert job.run is not None
    assert (job.run.status, job.run.error_kind) == (RunStatus.FAILED, ErrorKind.CRASH)
    assert job.run.fence > 0
    assert "Crash recovery" in (job.run.error or "")
    assert retries_of(store, job_id) == [job.retried_by]
    assert told(store, job_id) == ["job.run.failed"]


@pytest.mark.rule("REC-02")
def test_a_job_that_is_running_with_an_open_run_fails_with_it(store: PersistenceAdapter, clock: ManualClock) -> None:
    job_id = running_without_lease(store)
    run_id = run_by_hand(store, job_id, clock)
    introduce(store, "gone")
    assert recover(store) == 1
    job = look(store, job_id)
    assert job.status is JobStatus.FAILED
    assert job.run is not None
    assert (job.run.id, job.run.status) == (run_id, RunStatus.FAILED)
    assert f"gone was at {iso(clock.now())}" in (job.run.error or "")
    assert retries_of(store, job_id) == [job.retried_by]
    assert told(store, job_id) == ["job.run.failed"]


@pytest.mark.rule("REC-02")
@pytest.mark.parametrize("status", ["COMPLETED", "SKIPPED"])
def test_a_job_whose_run_has_ended_takes_its_end(store: PersistenceAdapter, clock: ManualClock, status: str) -> None:
    job_id = running_without_lease(store)
    ended_at = clock.now()
    run_by_hand(store, job_id, clock, status=status, finished_at=ended_at)
    clock.advance(60)
    assert recover(store) == 1
    job = look(store, job_id)
    assert (job.status, job.finished_at) == (JobStatus(status), ended_at)
    assert retries_of(store, job_id) == []
    assert told(store, job_id) == [f"job.run.{status.lower()}"]


@pytest.mark.rule("REC-02")
def test_a_job_whose_run_has_failed_fails_and_is_retried(store: PersistenceAdapter, clock: ManualClock) -> None:
    job_id = running_without_lease(store)
    run_by_hand(store, job_id, clock, status="FAILED", error_kind="error", error="it broke", finished_at=clock.now())
    assert recover(store) == 1
    job = look(store, job_id)
    assert job.status is JobStatus.FAILED
    assert job.run is not None and job.run.error == "it broke"
    assert retries_of(store, job_id) == [job.retried_by]
    assert told(store, job_id) == ["job.run.failed"]


@pytest.mark.rule("REC-02")
def test_a_cancelled_job_with_an_open_run_that_nobody_executes_is_closed(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    claim_one(store)
    cancel(store, job.id)
    change(store, "DELETE FROM leases")
    assert recover(store) == 1
    after = look(store, job.id)
    assert after.run is not None
    assert after.run.error_kind is ErrorKind.CANCELLED


# --- scenario 2: crash during a reservation ---------------------------------------------------------------


@pytest.mark.rule("REC-02", "DIR-02")
def test_a_reservation_of_a_dead_owner_expires_and_the_queue_goes_on(open_store: OpenStore) -> None:
    store = open_store("resources:default=1")
    introduce(store, "dead")
    introduce(store, "alive")
    lost = ask_directly(store, owner="dead")
    kept = ask_directly(store, owner="alive")
    enqueue_one(store)
    assert recover(store, dead={"dead"}) == 2
    assert store.read_sync(load_reservation, lost.id).status == "EXPIRED"
    assert store.read_sync(load_reservation, kept.id).status == "ACTIVE"
    assert len(events_of(store, "reservation.expired")) == 1
    first = claim_one(store)
    assert first.reservation is not None and first.reservation.id == kept.id
    complete(store, first)
    assert claim_one(store).job is not None


@pytest.mark.rule("REC-02", "DIR-02")
def test_a_reservation_without_owner_or_of_an_unknown_one_expires(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    write_rows(store, "direct_reservations", id="by-hand", type="noop", requested_at=clock.now())
    ask_directly(store, owner="nobody-knows")
    assert recover(store) == 2
    assert count(store, "direct_reservations", "status = 'EXPIRED'") == 2


@pytest.mark.rule("DIR-02")
def test_a_reservation_that_is_not_extended_expires(store: PersistenceAdapter, clock: ManualClock) -> None:
    introduce(store, "owner")
    ask_directly(store, reservation_s=600)
    for _ in range(20):
        clock.advance(30)
        store.write_sync(beat, "owner", TERMS)
        last = recover(store)
    assert last == 1
    assert count(store, "direct_reservations", "status = 'EXPIRED'") == 1


@pytest.mark.rule("DIR-02", "DIR-04")
def test_a_direct_request_whose_worker_died_fails_and_is_not_tried_again(store: PersistenceAdapter) -> None:
    introduce(store, "owner")
    asked = ask_directly(store)
    claim_one(store, worker="dead")
    assert recover(store, dead={"dead"}) == 1
    after = store.read_sync(load_reservation, asked.id)
    assert (after.status, after.outcome, after.error_kind) == ("RELEASED", "FAILED", "crash")
    assert (after.error or "").startswith("Crash recovery:")
    assert count(store, "leases") == 0
    assert count(store, "jobs") == 0
    assert claim_all(store) == []


# --- scenario 3: crash between failure and retry ------------------------------------------------------------


def failed_by_hand(store: PersistenceAdapter, clock: ManualClock, **fields: Any) -> str:
    job_id = running_without_lease(store, **fields)
    run_by_hand(store, job_id, clock, status="FAILED", error_kind="error", error="it broke", finished_at=clock.now())
    change(store, "UPDATE jobs SET status = 'FAILED', finished_at = created_at WHERE id = :id", id=job_id)
    return job_id


@pytest.mark.rule("REC-02", "RET-03")
def test_a_failure_without_retry_gets_one(store: PersistenceAdapter, clock: ManualClock) -> None:
    job_id = failed_by_hand(store, clock)
    assert recover(store) == 1
    job = look(store, job_id)
    assert retries_of(store, job_id) == [job.retried_by]
    assert told(store, job_id) == ["job.run.failed"]


@pytest.mark.rule("REC-02", "DEC-007")
def test_a_failure_without_retries_left_gets_its_verdict_and_no_later_look_finds_it(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job_id = failed_by_hand(store, clock, retry_policy=RetryPolicy(max_attempts=0))
    assert recover(store) == 1
    assert look(store, job_id).permanently_failed
    assert not store.read_sync(find_trouble, TERMS)


@pytest.mark.rule("REC-02", "RET-03")
def test_a_retry_that_is_there_is_linked_and_not_made_again(store: PersistenceAdapter, clock: ManualClock) -> None:
    job_id = failed_by_hand(store, clock)
    retry = enqueue_one(store)
    change(store, "UPDATE jobs SET retry_of = :of, retry_kind = 'auto' WHERE id = :id", of=job_id, id=retry.id)
    assert recover(store) == 1
    assert look(store, job_id).retried_by == retry.id
    assert retries_of(store, job_id) == [retry.id]


@pytest.mark.rule("REC-02")
def test_a_webhook_that_was_told_before_the_crash_is_not_told_again(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job_id = failed_by_hand(store, clock)
    write_rows(
        store,
        "deliveries",
        id="told",
        job_id=job_id,
        event="job.run.failed",
        url=HOOK,
        payload="{}",
        created_at=clock.now(),
    )
    recover(store)
    assert told(store, job_id) == ["job.run.failed"]


# --- scenario 4: crash during the claim -----------------------------------------------------------------------


@pytest.mark.rule("REC-02", "LEASE-01")
def test_a_claim_that_was_not_committed_leaves_the_job_queued(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)

    def dies(tx: Transaction) -> None:
        tx.execute("UPDATE jobs SET status = 'RUNNING' WHERE id = :id", id=job.id)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        store.write_sync(dies)
    assert recover(store) == 0
    assert ids_of(claim_all(store)) == [job.id]


# --- scenario 5: several running jobs ---------------------------------------------------------------------------


@pytest.mark.rule("REC-02", "REC-04")
def test_all_running_jobs_are_recovered_and_the_retries_stand_where_their_originals_stood(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    jobs = enqueue_all(store, [NewJob("noop", retry_policy=RetryPolicy(base_delay_s=0)) for _ in range(5)])
    claim_some(store, 2, worker="dead")
    waiting = picture(store, "jobs")["jobs"][2:]
    assert recover(store, dead={"dead"}) == 2
    retries = [look(store, job.id).retried_by for job in jobs[:2]]
    assert [row for row in picture(store, "jobs")["jobs"] if row in waiting] == waiting
    clock.advance(1)
    order = ids_of(claim_all(store))
    assert order == [*retries, *(job.id for job in jobs[2:])]


@pytest.mark.rule("REC-04")
def test_queued_jobs_are_not_touched(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    enqueue_one(store, not_before=clock.now() + timedelta(hours=1))
    make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 3)
    before = picture(store)
    clock.advance(1_000_000)
    assert recover(store) == 0
    assert picture(store) == before


# --- scenario 6: recovery itself -----------------------------------------------------------------------------------


def everything_at_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    """Every hand-written state, and every kind of abandoned work."""
    introduce(store, "dead")
    enqueue_all(store, [NewJob("noop", webhook_url=HOOK) for _ in range(2)])
    claim_some(store, 2, worker="dead")
    running_without_lease(store)
    run_by_hand(store, running_without_lease(store), clock)
    run_by_hand(store, running_without_lease(store), clock, status="COMPLETED", finished_at=clock.now())
    run_by_hand(store, running_without_lease(store), clock, status="FAILED", finished_at=clock.now())
    failed_by_hand(store, clock)
    failed_by_hand(store, clock, retry_policy=RetryPolicy(max_attempts=0))
    write_rows(store, "direct_reservations", id="by-hand", type="noop", requested_at=clock.now())
    ask_directly(store, owner="dead")
    group, _ = make_group(store, GroupMode.SEQUENTIAL, OnFailure.CONTINUE, 2)
    change(store, "UPDATE jobs SET status = 'COMPLETED' WHERE group_id = :id AND sequence = 0", id=group.id)


@pytest.mark.rule("REC-03")
def test_a_second_recovery_changes_nothing_not_even_the_log(store: PersistenceAdapter, clock: ManualClock) -> None:
    everything_at_once(store, clock)
    assert recover(store, dead={"dead"}) == 12
    after = picture(store)
    assert recover(store, dead={"dead"}) == 0
    assert recover(store) == 0
    assert picture(store) == after
    clock.advance(100_000)
    assert recover(store, dead={"dead"}) == 0
    assert picture(store) == after


@pytest.mark.rule("REC-03", "REC-02")
def test_the_same_findings_acted_on_twice_act_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    everything_at_once(store, clock)
    trouble = store.read_sync(find_trouble, TERMS, {"dead"})
    units = recovery_units(trouble)
    assert all(store.write_sync(verb, *args) for verb, args in units)
    after = picture(store)
    assert not any(store.write_sync(verb, *args) for verb, args in units)
    assert picture(store) == after


@pytest.mark.rule("REC-01", "REC-03")
def test_two_recoverers_at_once_act_once(open_store: OpenStore, store: PersistenceAdapter, clock: ManualClock) -> None:
    everything_at_once(store, clock)
    stores = [store, open_store()]
    findings: list[Trouble] = [each.read_sync(find_trouble, TERMS, {"dead"}) for each in stores]
    acted = [0, 0]
    ready = threading.Barrier(2)

    def act(number: int) -> None:
        ready.wait()
        for verb, args in recovery_units(findings[number]):
            acted[number] += bool(stores[number].write_sync(verb, *args))

    threads = [threading.Thread(target=act, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(acted) == 12
    assert count(store, "jobs", "retry_kind = 'auto'") == 6
    assert (
        rows(store, "SELECT retry_of FROM jobs WHERE retry_of IS NOT NULL GROUP BY retry_of HAVING count(*) > 1") == []
    )
    assert recover(store, dead={"dead"}) == 0


@pytest.mark.rule("REC-05")
def test_a_repair_that_fails_leaves_the_others_and_itself_for_the_next_round(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    bad = running_without_lease(store)
    good = running_without_lease(store)
    change(store, "UPDATE jobs SET retry_policy = '[]' WHERE id = :id", id=bad)
    failures = 0
    for verb, args in recovery_units(store.read_sync(find_trouble, TERMS)):
        try:
            store.write_sync(verb, *args)
        except Exception:
            failures += 1
    assert failures == 1
    assert look(store, good).status is JobStatus.FAILED
    assert [row[0] for row in rows(store, "SELECT status FROM jobs WHERE id = :id", id=bad)] == ["RUNNING"]
    change(store, "UPDATE jobs SET retry_policy = '{\"max_attempts\":1}' WHERE id = :id", id=bad)
    assert recover(store) == 1


@pytest.mark.rule("REC-05", "LEASE-05")
def test_a_dead_worker_is_written_off_only_when_nothing_of_it_is_left(store: PersistenceAdapter) -> None:
    introduce(store, "dead")
    enqueue_one(store)
    claim_one(store, worker="dead")
    trouble = store.read_sync(find_trouble, TERMS, {"dead"})
    units = recovery_units(trouble)
    burial = next(unit for unit in units if unit[1] == ("dead",))
    assert not store.write_sync(burial[0], *burial[1])
    assert all(store.write_sync(verb, *args) for verb, args in units)
    assert count(store, "workers", "stopped_at IS NULL") == 0


@pytest.mark.rule("REC-02", "REC-03")
def test_a_recovery_that_dies_half_way_is_finished_by_the_next(store: PersistenceAdapter, clock: ManualClock) -> None:
    everything_at_once(store, clock)
    units = recovery_units(store.read_sync(find_trouble, TERMS, {"dead"}))
    for verb, args in units[:5]:
        store.write_sync(verb, *args)
    assert recover(store, dead={"dead"}) == len(units) - 5
    assert count(store, "jobs", "retry_kind = 'auto'") == 6
    assert not store.read_sync(find_trouble, TERMS, {"dead"})


@pytest.mark.rule("REC-01", "LEASE-03", "CAN-01")
def test_settle_and_recovery_at_the_same_time_end_each_run_once(
    open_store: OpenStore, store: PersistenceAdapter
) -> None:
    other = open_store()
    enqueue_all(store, [NewJob("noop") for _ in range(30)])
    claims = claim_all(store, worker="slow")
    units = recovery_units(other.read_sync(find_trouble, TERMS, {"slow"}))
    ready = threading.Barrier(2)
    recovered: list[bool] = []

    def act() -> None:
        ready.wait()
        recovered.extend(other.write_sync(verb, *args) for verb, args in reversed(units))

    thread = threading.Thread(target=act)
    thread.start()
    ready.wait()
    verdicts = [complete(store, taken) for taken in claims]
    thread.join()
    assert sum(recovered) + verdicts.count(Settled.ACCEPTED) == 30
    for taken, verdict in zip(claims, verdicts, strict=True):
        job = look(store, job_of_claim(taken).id)
        won = verdict is Settled.ACCEPTED
        assert job.status is (JobStatus.COMPLETED if won else JobStatus.FAILED)
        assert (job.retried_by is None) == won
    assert count(store, "leases") == 0


@pytest.mark.rule("LEASE-05", "REC-01")
def test_a_killed_process_is_known_dead_at_once_where_the_kernel_can_tell(
    store: PersistenceAdapter, engine: str, store_url: str, clock: ManualClock
) -> None:
    job = enqueue_one(store)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.doomed", store_url, "doomed"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"
        assert not store.is_known_dead("doomed")
        assert recover(store, dead=store.known_dead()) == 0
        assert look(store, job.id).status is JobStatus.RUNNING
    finally:
        worker.kill()
        worker.communicate()
    if engine == "sqlite":
        assert store.is_known_dead("doomed")
        expected = ErrorKind.CRASH
    else:
        assert recover(store, dead=store.known_dead()) == 0
        clock.advance(LONG_SILENCE_S)
        expected = ErrorKind.LOST
    assert recover(store, dead=store.known_dead()) >= 1
    after = look(store, job.id)
    assert after.run is not None
    assert after.run.error_kind is expected
    assert after.run.error is not None and "doomed" in after.run.error


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-02", "INV-006")
def test_a_group_whose_members_have_all_ended_is_ended(store: PersistenceAdapter) -> None:
    group, _ = make_group(store, GroupMode.PARALLEL, OnFailure.CONTINUE, 2)
    change(store, "UPDATE jobs SET status = 'COMPLETED' WHERE group_id = :id", id=group.id)
    assert recover(store) == 1
    assert look_at_group(store, group.id)[0].status is GroupStatus.COMPLETED
    assert len(events_of(store, "group.finished")) == 1


@pytest.mark.rule("REC-02", "DEC-012")
def test_a_gate_that_should_be_open_is_opened(store: PersistenceAdapter) -> None:
    group, jobs = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    change(store, "UPDATE jobs SET status = 'COMPLETED' WHERE id = :id", id=jobs[0].id)
    assert claim_all(store) == []
    assert recover(store) == 1
    assert ids_of(claim_all(store)) == [jobs[1].id]
    assert look_at_group(store, group.id)[0].status is GroupStatus.RUNNING


@pytest.mark.rule("REC-01", "INV-006")
def test_a_crashed_last_member_ends_its_group_with_the_verdict(store: PersistenceAdapter) -> None:
    group, _ = make_group(
        store, GroupMode.SEQUENTIAL, OnFailure.STOP, [NewJob("noop", retry_policy=RetryPolicy(max_attempts=0))]
    )
    claim_one(store, worker="dead")
    assert recover(store, dead={"dead"}) == 1
    assert look_at_group(store, group.id)[0].status is GroupStatus.PARTIAL


# --- odd leases ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-02")
def test_a_lease_of_a_job_that_does_not_exist_is_removed(store: PersistenceAdapter, clock: ManualClock) -> None:
    write_rows(
        store,
        "leases",
        id="stray",
        job_id="nobody",
        worker_id="gone",
        slot=0,
        resource="default",
        type="noop",
        fence=1,
        acquired_at=clock.now(),
        heartbeat_at=clock.now(),
        expires_at=clock.now(),
    )
    clock.advance(LONG_SILENCE_S)
    assert recover(store) == 1
    assert count(store, "leases") == 0
    assert recover(store) == 0


@pytest.mark.rule("REC-01")
def test_recovery_of_a_lease_that_has_been_settled_does_nothing(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    complete(store, taken)
    before = picture(store)
    assert not store.write_sync(recover_lease, taken.lease.id, ErrorKind.CRASH, taken.lease.heartbeat_at, TERMS)
    assert picture(store) == before


@pytest.mark.rule("REC-01")
def test_a_quick_look_finds_abandoned_leases_too(store: PersistenceAdapter, clock: ManualClock) -> None:
    taken = job_of_claim(claim_one(store)) if enqueue_one(store) else None
    clock.advance(LONG_SILENCE_S)
    assert recover(store, thorough=False) == 1
    assert taken is not None
    finished = rows(store, "SELECT finished_at FROM jobs WHERE id = :id", id=taken.id)[0][0]
    assert instant(store, finished) == clock.now()
