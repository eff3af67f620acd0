"""Recovery repairs what crashes and hands left behind: once, in order, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import JobStatus, NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.reads.stats import stats
from holdbeat.store.reads.timeline import spans_since
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.running.settle import Settled
from holdbeat.store.running.workers import beat
from holdbeat.store.transaction import Transaction
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
    look,
    make_group,
)
from tests.conformance.repair import (
    HOOK,
    LONG_SILENCE_S,
    TERMS,
    ask_directly,
    failed_by_hand,
    introduce,
    picture,
    recover,
    retries_of,
    run_by_hand,
    running_without_lease,
    told,
    write_rows,
)

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
def test_the_run_of_a_worker_without_heartbeats_is_lost_only_after_the_grace(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
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


@pytest.mark.rule("REC-02")
def test_the_run_of_a_cancelled_job_that_ended_by_hand_is_counted(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store)
    claim_one(store, worker="dead")
    cancel(store, job.id)
    ended_at = clock.advance(60)
    change(store, "UPDATE job_runs SET status = 'FAILED', error_kind = 'cancelled', finished_at = :at", at=ended_at)
    clock.advance(60)
    assert recover(store, dead={"dead"}) == 1
    (span,), _ = store.read_sync(spans_since, ended_at - timedelta(hours=1))
    assert (span.status, span.finished_at) == ("FAILED", ended_at)
    assert store.read_sync(stats)["runs"]["last_hour"]["FAILED"] == 1


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
    assert store.read_sync(RESERVATIONS.get, lost.id).status == "EXPIRED"
    assert store.read_sync(RESERVATIONS.get, kept.id).status == "ACTIVE"
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
    after = store.read_sync(RESERVATIONS.get, asked.id)
    assert (after.status, after.outcome, after.error_kind) == ("RELEASED", "FAILED", "crash")
    assert (after.error or "").startswith("Crash recovery:")
    assert count(store, "leases") == 0
    assert count(store, "jobs") == 0
    assert claim_all(store) == []


# --- scenario 3: crash between failure and retry ------------------------------------------------------------


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
