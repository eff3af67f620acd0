"""Recovery as something that can itself be doubled, interrupted or raced; what it does for groups and odd leases."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.group import GroupMode, GroupStatus, OnFailure
from holdbeat.domain.job import JobStatus, NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.recovery.recover import Trouble, find_trouble, recovery_units
from holdbeat.store.recovery.recover_leases import recover_lease
from holdbeat.store.running.settle import Settled
from tests.conformance.acts import (
    OpenStore,
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
from tests.conformance.repair import (
    HOOK,
    LONG_SILENCE_S,
    TERMS,
    ask_directly,
    failed_by_hand,
    introduce,
    picture,
    recover,
    run_by_hand,
    running_without_lease,
    write_rows,
)

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
    findings: list[Trouble] = [item.read_sync(find_trouble, TERMS, {"dead"}) for item in stores]
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
@pytest.mark.parametrize("is_reaped", [True, False], ids=["reaped", "still a zombie"])
def test_a_killed_process_is_known_dead_at_once_on_its_machine(
    store: PersistenceAdapter, store_url: str, is_reaped: bool
) -> None:
    job = enqueue_one(store)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.doomed", store_url, "doomed"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"
        assert store.known_dead() == frozenset()
        assert recover(store, dead=store.known_dead()) == 0
        assert look(store, job.id).status is JobStatus.RUNNING
        worker.kill()
        if is_reaped:
            worker.wait()
        else:
            os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert store.known_dead() == {"doomed"}
        assert store.read_sync(live_workers) == []
        assert recover(store, dead=store.known_dead()) >= 1
    finally:
        worker.kill()
        worker.communicate()
    after = look(store, job.id)
    assert after.run is not None
    assert after.run.error_kind is ErrorKind.CRASH
    heartbeat = iso(ManualClock().now())
    assert after.run.error == f"Crash recovery: the worker doomed died; its last heartbeat was at {heartbeat}"
    assert recover(store, dead=store.known_dead()) == 0, "it is noted as stopped"


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
