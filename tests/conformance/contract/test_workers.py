"""Workers introduce themselves, beat, learn what they lost, and leave."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.engine.worker_identity import ProcessUsage
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.workers import all_workers, has_live_worker_for, list_workers, live_workers
from holdbeat.store.recovery.recover import find_trouble
from holdbeat.store.running.reservations import cancel_reservation
from holdbeat.store.running.settle import Settled
from holdbeat.store.running.workers import beat, begin_stopping, signals, stop_worker
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import (
    cancel,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    events_of,
    instant,
    job_of_claim,
    rows,
)
from tests.conformance.repair import LONG_SILENCE_S, TERMS, ask_directly, introduce, recover


@pytest.mark.rule("LEASE-02")
def test_a_beat_notes_what_its_process_uses_of_the_machine(store: PersistenceAdapter) -> None:
    introduce(store, "mine")
    measured = ProcessUsage()
    assert measured.measure(100.0).cpu_share is None, "nothing to compare with yet"
    sum(range(200_000))
    usage = measured.measure(100.5)
    store.write_sync(beat, "mine", TERMS, usage)
    (worker,) = store.read_sync(live_workers)
    assert (worker.memory_bytes, worker.cpu_share) == (usage.memory_bytes, usage.cpu_share)
    assert worker.memory_bytes is not None and worker.memory_bytes > 1_000_000
    assert worker.cpu_share is not None and worker.cpu_share >= 0


@pytest.mark.rule("LEASE-02")
def test_one_beat_extends_all_leases_of_a_worker_and_no_others(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(3)])
    mine = claim_some(store, 2, worker="mine", terms=TERMS)
    other = claim_some(store, 1, worker="other", terms=TERMS)[0]
    clock.advance(30)
    answer = store.write_sync(beat, "mine", TERMS)
    assert answer.held == {taken.lease.id for taken in mine}
    assert answer.renewed == answer.held
    leases = {
        row[0]: (instant(store, row[1]), instant(store, row[2]))
        for row in rows(store, "SELECT id, heartbeat_at, expires_at FROM leases")
    }
    until = clock.now() + timedelta(seconds=TERMS.lease_s)
    assert all(leases[taken.lease.id] == (clock.now(), until) for taken in mine)
    assert leases[other.lease.id] == (other.lease.heartbeat_at, other.lease.expires_at)


@pytest.mark.rule("LEASE-02")
def test_leases_are_extended_in_one_statement(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(5)])
    claim_some(store, 5)
    statements: list[str] = []

    def watched(tx: Transaction) -> None:
        all_rows = tx.all_rows

        def note(*queries: tuple[str, dict[str, object]]) -> list[list[tuple[object, ...]]]:
            statements.extend(sql for sql, _ in queries)
            return all_rows(*queries)

        tx.all_rows = note  # type: ignore[method-assign]
        beat(tx, "w", TERMS)

    store.write_sync(watched)
    assert len([sql for sql in statements if "UPDATE leases" in sql]) == 1
    assert len(statements) <= 3


@pytest.mark.rule("LEASE-04")
def test_a_worker_learns_from_its_beat_which_leases_it_lost(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_all(store, [NewJob("noop"), NewJob("noop")])
    first, second = claim_some(store, 2, terms=TERMS)
    clock.advance(LONG_SILENCE_S)
    assert recover(store) == 2
    assert store.write_sync(beat, "w", TERMS).held == frozenset()
    enqueue_one(store)
    third = claim_one(store)
    assert store.write_sync(beat, "w", TERMS).held == {third.lease.id}
    assert third.lease.id not in (first.lease.id, second.lease.id)


@pytest.mark.rule("LEASE-04", "LEASE-03")
def test_a_beat_does_not_bring_a_recovered_lease_back(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    claim_one(store, terms=TERMS)
    clock.advance(LONG_SILENCE_S)
    recover(store)
    store.write_sync(beat, "w", TERMS)
    assert rows(store, "SELECT id FROM leases") == []


class _Undone(Exception):
    pass


@pytest.mark.rule("LEASE-02")
def test_a_beat_touches_no_table_but_workers_and_leases(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store, terms=TERMS)
    answers = []

    def beat_without_the_others(tx: Transaction) -> None:
        for table in ("jobs", "job_runs", "direct_reservations"):
            tx.execute(f"ALTER TABLE {table} RENAME TO {table}_elsewhere")
        answers.append(beat(tx, "w", TERMS))
        raise _Undone

    with pytest.raises(_Undone):
        store.write_sync(beat_without_the_others)
    assert answers[-1].renewed == answers[-1].held == {taken.lease.id}


@pytest.mark.rule("CAN-02")
def test_a_worker_reads_the_cancelled_jobs_and_direct_requests_that_it_runs(store: PersistenceAdapter) -> None:
    introduce(store, "owner")
    asked = ask_directly(store)
    enqueue_all(store, [NewJob("noop"), NewJob("noop")])
    direct, first, second = claim_some(store, 3)
    assert store.read_sync(signals, "w") == {}
    cancel(store, job_of_claim(first).id, "enough")
    store.write_sync(cancel_reservation, asked.id, "the client went away")
    expected = {first.lease.id: "enough", direct.lease.id: "the client went away"}
    assert store.read_sync(signals, "w") == expected
    answer = store.write_sync(beat, "w", TERMS)
    assert answer.held == {direct.lease.id, first.lease.id, second.lease.id}
    assert store.read_sync(signals, "another") == {}
    complete(store, first)
    assert store.read_sync(signals, "w") == {direct.lease.id: "the client went away"}


@pytest.mark.rule("QUE-06", "DIR-06")
def test_a_worker_is_live_until_its_heartbeats_stop(store: PersistenceAdapter, clock: ManualClock) -> None:
    introduce(store, "one", types=("noop", "a"), slots=3, http_slots=2, resources=("gpu",), version="1.0")
    assert store.read_sync(has_live_worker_for, "a", "gpu")
    assert not store.read_sync(has_live_worker_for, "b", "gpu")
    (worker,) = store.read_sync(live_workers)
    assert (worker.slots, worker.http_slots, worker.resources, worker.version) == (3, 2, ("gpu",), "1.0")
    clock.advance(200)
    store.write_sync(beat, "one", TERMS)
    clock.advance(200)
    assert store.read_sync(has_live_worker_for, "a", "gpu")
    clock.advance(100)
    assert store.read_sync(live_workers) == []
    assert not store.read_sync(has_live_worker_for, "a", "gpu")
    assert [item.id for item in store.read_sync(all_workers)] == ["one"]


@pytest.mark.rule("API-03")
@pytest.mark.parametrize("has_ended_too", [False, True])
def test_workers_come_in_pages_that_neither_repeat_nor_drop_one(
    store: PersistenceAdapter, clock: ManualClock, has_ended_too: bool
) -> None:
    names = [f"w{number}" for number in range(7)]
    for number, name in enumerate(names):
        introduce(store, name)
        if number % 3:
            clock.advance(1)
    store.write_sync(stop_worker, "w3")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = store.read_sync(list_workers, has_ended_too=has_ended_too, limit=2, cursor=cursor)
        seen += [worker.id for worker in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        if len(seen) == 2 and not has_ended_too:
            clock.advance(1)
            introduce(store, "newcomer")
    if has_ended_too:
        assert seen == names[::-1]
    else:
        assert seen == [name for name in names if name != "w3"] + ["newcomer"]
    with pytest.raises(Invalid):
        store.read_sync(list_workers, has_ended_too=has_ended_too, cursor="x")


@pytest.mark.rule("CON-003", "DIR-06")
def test_a_worker_that_is_stopping_serves_nobody_new_and_one_that_stopped_is_gone(store: PersistenceAdapter) -> None:
    introduce(store, "one")
    store.write_sync(begin_stopping, "one")
    assert not store.read_sync(has_live_worker_for, "noop", "default")
    assert [worker.id for worker in store.read_sync(live_workers)] == ["one"]
    assert store.write_sync(stop_worker, "one")
    assert store.read_sync(live_workers) == []
    assert not store.write_sync(stop_worker, "one")
    assert len(events_of(store, "worker.stopped")) == 1


@pytest.mark.rule("DIR-06")
@pytest.mark.parametrize(
    ("offer", "resource", "serves"),
    [
        ({}, "default", True),
        ({"resources": ("gpu",)}, "gpu", True),
        ({"resources": ("gpu",)}, "default", False),
        ({"slots": 0, "http_slots": 4}, "default", False),
        ({"slots": 0, "http_slots": 4}, "http", True),
        ({"slots": 4, "http_slots": 0}, "http", False),
    ],
)
def test_a_worker_that_has_no_place_for_the_work_does_not_count_as_one_for_it(
    store: PersistenceAdapter, offer: dict[str, Any], resource: str, serves: bool
) -> None:
    introduce(store, "one", **{"types": ("noop",), **offer})
    assert store.read_sync(has_live_worker_for, "noop", resource) is serves


@pytest.mark.rule("LEASE-01", "REC-01")
def test_the_run_of_a_worker_without_heartbeats_is_recovered_soon_after_the_limit_of_the_run(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    limited = enqueue_one(store, timeout_s=60, cancel_grace_s=10)
    unlimited = enqueue_one(store)
    claims = {job_of_claim(taken).id: taken.lease for taken in claim_some(store, 2, worker="w", terms=LeaseTerms())}
    assert claims[limited.id].expires_at == clock.now() + timedelta(seconds=70)
    assert claims[unlimited.id].expires_at == clock.now() + timedelta(seconds=300)
    clock.advance(130)
    assert store.read_sync(find_trouble, LeaseTerms(), frozenset()).leases == []
    clock.advance(0.001)
    silent = store.read_sync(find_trouble, LeaseTerms(), frozenset()).leases
    assert [lease.lease_id for lease in silent] == [claims[limited.id].id]


@pytest.mark.rule("LEASE-02", "TIM-01")
def test_a_worker_that_beats_keeps_a_run_beyond_its_limit(
    store: PersistenceAdapter, clock: ManualClock, engine: str
) -> None:
    enqueue_one(store, timeout_s=60, cancel_grace_s=10)
    taken = claim_one(store, worker="w", terms=LeaseTerms())
    for _ in range(20):
        clock.advance(30)
        assert store.write_sync(beat, "w", LeaseTerms()).held == {taken.lease.id}
        assert store.read_sync(find_trouble, LeaseTerms(), frozenset()).leases == []
    [row] = rows(store, "SELECT expires_at FROM leases")
    until = instant(store, row[0])
    # On SQLite the death of a process is known at once; there a renewed lease has its full length.
    expected_s = 300 if engine == "sqlite" else 70
    assert until == clock.now() + timedelta(seconds=expected_s)
    assert complete(store, taken) is Settled.ACCEPTED
