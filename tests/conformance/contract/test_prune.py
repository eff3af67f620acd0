"""Retention takes away what ended long ago, whole, and never what something unfinished needs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.recovery.prune import PASS_EVERY_S, Pruned, prune, prune_events
from holdbeat.store.running.reservations import cancel_reservation
from holdbeat.store.running.run_output import (
    ArtifactEntry,
    LogEntry,
    ProgressEntry,
    append_logs,
    progress,
    replace_artifact,
)
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import (
    cancel,
    change,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    fail,
    job_of_claim,
    make_group,
    rows,
)
from tests.conformance.repair import ask_directly, introduce, write_rows

DAY_S = 86_400.0
MILLISECOND = timedelta(milliseconds=1)
NO_RETRY = RetryPolicy(max_attempts=0)
ONE_RETRY = RetryPolicy(max_attempts=1, base_delay_s=0)


def month_ago(clock: ManualClock) -> datetime:
    return clock.now() - timedelta(days=30)


def events_pruned(tx: Transaction, before: datetime, limit: int) -> int:
    gone = Pruned()
    prune_events(tx, before, limit, gone)
    return gone.rows


def prune_all(store: PersistenceAdapter, clock: ManualClock, limit: int = 200) -> Pruned:
    """Batch after batch until nothing is left to take, in a pass of its own."""
    clock.advance(PASS_EVERY_S)
    total = Pruned()
    while True:
        gone = store.write_sync(prune, month_ago(clock), limit)
        for table, number in gone.counts.items():
            total.add(table, number)
        total.paths += gone.paths
        if not gone.rows:
            return total


def job_ids(store: PersistenceAdapter) -> set[str]:
    return {row[0] for row in rows(store, "SELECT id FROM jobs")}


@pytest.mark.rule("QUE-07")
def test_a_job_goes_with_all_that_was_written_about_it(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, webhook_url="https://a.example/")
    taken = claim_one(store)
    lease = taken.lease
    head = (lease.id, lease.worker_id, lease.fence)
    store.write_sync(append_logs, [LogEntry(*head, 1, "log", "hello\n", clock.now())])
    store.write_sync(progress, [ProgressEntry(*head, 0.5, None, clock.now())])
    store.write_sync(replace_artifact, ArtifactEntry(*head, "file", 1, "sum", path="/artifacts/file"))
    store.write_sync(replace_artifact, ArtifactEntry(*head, "data", 1, "sum", data=b"x"))
    complete(store, taken)
    change(store, "UPDATE deliveries SET status = 'DELIVERED'")
    clock.advance(30 * DAY_S)
    assert store.write_sync(prune, month_ago(clock), 200).counts == {}
    clock.advance(0.001)
    gone = prune_all(store, clock)
    assert gone.counts["jobs"] == 1
    assert gone.paths == ["/artifacts/file"]
    for table in ("jobs", "job_runs", "run_logs", "progress", "artifacts", "deliveries"):
        assert count(store, table) == 0, table
    assert count(store, "events", f"job_id = '{job.id}'") == 0


@pytest.mark.rule("QUE-07")
def test_a_chain_goes_as_a_whole_after_its_last_end(store: PersistenceAdapter, clock: ManualClock) -> None:
    root = enqueue_one(store, retry_policy=ONE_RETRY)
    fail(store, claim_one(store))
    clock.advance(20 * DAY_S)
    (retry,) = claim_all(store)
    fail(store, retry)
    clock.advance(20 * DAY_S)
    prune_all(store, clock)
    assert job_ids(store) == {root.id, job_of_claim(retry).id}
    clock.advance(11 * DAY_S)
    prune_all(store, clock)
    assert job_ids(store) == set()


@pytest.mark.rule("QUE-07", "RET-04")
def test_a_manual_retry_keeps_its_chain_until_it_has_ended_too(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, retry_policy=NO_RETRY)
    fail(store, claim_one(store))
    clock.advance(40 * DAY_S)
    retry = store.write_sync(retry_job, job.id)
    prune_all(store, clock)
    assert job_ids(store) == {job.id, retry.id}
    complete(store, claim_one(store))
    clock.advance(31 * DAY_S)
    assert prune_all(store, clock).counts["jobs"] == 2


@pytest.mark.rule("QUE-07")
def test_a_group_goes_as_a_whole_with_the_manual_retries_of_its_members(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    group, jobs = make_group(
        store, GroupMode.PARALLEL, OnFailure.CONTINUE, [NewJob("noop"), NewJob("noop", retry_policy=NO_RETRY)]
    )
    first, second = claim_some(store, 2)
    complete(store, first)
    clock.advance(40 * DAY_S)
    prune_all(store, clock)
    assert len(job_ids(store)) == 2
    fail(store, second)
    retry = store.write_sync(retry_job, jobs[1].id)
    clock.advance(40 * DAY_S)
    prune_all(store, clock)
    assert job_ids(store) == {jobs[0].id, jobs[1].id, retry.id}
    complete(store, claim_one(store))
    clock.advance(31 * DAY_S)
    gone = prune_all(store, clock)
    assert (gone.counts["jobs"], gone.counts["job_groups"]) == (3, 1)
    assert count(store, "job_groups", f"id = '{group.id}'") == 0


@pytest.mark.rule("QUE-07")
def test_what_unfinished_work_needs_stays(store: PersistenceAdapter, clock: ManualClock) -> None:
    delivered = enqueue_one(store, webhook_url="https://a.example/", retry_policy=NO_RETRY)
    complete(store, claim_one(store))
    still = enqueue_one(store)
    claim_one(store)
    cancel(store, still.id)
    waits = enqueue_one(
        store, type_="b", retry_policy=RetryPolicy(max_attempts=1, base_delay_s=50 * DAY_S, max_delay_s=365 * DAY_S)
    )
    fail(store, claim_one(store, types=("b",), first_slot=5))
    undecided = enqueue_one(store, type_="c")
    change(store, "UPDATE jobs SET status = 'RUNNING' WHERE id = :id", id=undecided.id)
    change(store, "UPDATE jobs SET status = 'FAILED', finished_at = created_at WHERE id = :id", id=undecided.id)
    queued = enqueue_one(store, type_="c")
    clock.advance(40 * DAY_S)
    prune_all(store, clock)
    assert {delivered.id, still.id, waits.id, undecided.id, queued.id} <= job_ids(store)
    change(store, "UPDATE deliveries SET status = 'DELIVERED'")
    prune_all(store, clock)
    left = job_ids(store)
    assert delivered.id not in left
    assert {still.id, waits.id, undecided.id, queued.id} <= left


@pytest.mark.rule("QUE-07")
def test_a_pending_message_about_a_group_keeps_it(store: PersistenceAdapter, clock: ManualClock) -> None:
    group, _ = make_group(store, GroupMode.PARALLEL, OnFailure.CONTINUE, 1)
    complete(store, claim_one(store))
    write_rows(
        store,
        "deliveries",
        id="d",
        group_id=group.id,
        event="group.finished",
        url="u",
        payload="{}",
        created_at=clock.now(),
    )
    clock.advance(40 * DAY_S)
    prune_all(store, clock)
    assert count(store, "job_groups") == 1
    change(store, "UPDATE deliveries SET status = 'FAILED'")
    prune_all(store, clock)
    assert (count(store, "job_groups"), count(store, "jobs"), count(store, "deliveries")) == (0, 0, 0)


@pytest.mark.rule("QUE-07")
def test_reservations_events_occurrences_and_workers_go_by_their_own_age(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    introduce(store, "old")
    ended = ask_directly(store)
    store.write_sync(cancel_reservation, ended.id)
    served = ask_directly(store)
    taken = claim_one(store)
    store.write_sync(replace_artifact, ArtifactEntry(served.id, "w", taken.lease.fence, "f", 1, "s", path="/p"))
    store.write_sync(cancel_reservation, served.id)
    write_rows(
        store, "occurrences", id="o", schedule_id="s", due_at=clock.now(), status="fired", recorded_at=clock.now()
    )
    clock.advance(40 * DAY_S)
    introduce(store, "new")
    gone = prune_all(store, clock)
    assert gone.counts["direct_reservations"] == 1
    assert gone.counts["occurrences"] == 1
    assert gone.counts["workers"] == 1
    assert count(store, "direct_reservations", f"id = '{served.id}'") == 1
    names = {row[0] for row in rows(store, "SELECT name FROM events")}
    assert names == {"worker.started", "store.pruned"}
    complete(store, taken)
    assert prune_all(store, clock).paths == ["/p"]


@pytest.mark.rule("QUE-07")
def test_events_go_from_the_beginning_of_the_log_in_small_batches(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    for _ in range(7):
        enqueue_one(store)
    clock.advance(40 * DAY_S)
    enqueue_one(store)
    sizes = []
    while gone := store.write_sync(events_pruned, month_ago(clock), 3):
        sizes.append(gone)
    assert sizes == [3, 3, 1]
    assert count(store, "events") == 1


@pytest.mark.rule("QUE-07")
def test_no_event_gets_the_id_of_one_that_is_gone(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    clock.jump(-60 * DAY_S)
    enqueue_one(store)
    clock.jump(60 * DAY_S)
    ((newest,),) = rows(store, "SELECT max(id) FROM events")
    assert store.write_sync(events_pruned, month_ago(clock), 200) == 0
    later = enqueue_one(store)
    ((own,),) = rows(store, f"SELECT max(id) FROM events WHERE job_id = '{later.id}'")
    assert own > newest
    assert store.write_sync(events_pruned, month_ago(clock), 200) == 1


@pytest.mark.rule("QUE-07")
def test_old_chains_that_must_stay_are_looked_at_once_in_a_pass(store: PersistenceAdapter, clock: ManualClock) -> None:
    """Twenty that must stay stand before twenty that may go; batches of four take all that may go."""
    enqueue_all(store, [NewJob("noop", webhook_url="https://a.example/") for _ in range(20)])
    for taken in claim_all(store):
        complete(store, taken)
        clock.advance(1)
    enqueue_all(store, [NewJob("noop") for _ in range(20)])
    for taken in claim_all(store):
        complete(store, taken)
        clock.advance(1)
    clock.advance(40 * DAY_S)
    looked: list[int] = []

    def watched(tx: Transaction) -> Pruned:
        rows_of = tx.rows

        def note(sql: str, /, **params: object) -> list[tuple[object, ...]]:
            records = rows_of(sql, **params)
            if "INDEXED BY jobs_ran" in sql:
                looked.append(len(records))
            return records

        tx.rows = note  # type: ignore[method-assign]
        return prune(tx, month_ago(clock), 4)

    taken_away = 0
    while True:
        gone = store.write_sync(watched)
        if not gone.rows:
            break
        taken_away += gone.counts.get("jobs", 0)
    assert taken_away == 20
    assert len(job_ids(store)) == 20
    assert sum(looked) == 40


@pytest.mark.rule("QUE-07")
def test_retention_goes_on_where_another_process_stopped(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(10)])
    for taken in claim_all(store):
        complete(store, taken)
    clock.advance(40 * DAY_S)
    for left in (6, 2, 0):
        store.write_sync(prune, month_ago(clock), 4)
        assert count(store, "jobs") == left


def plans_of_the_walk(tx: Transaction, before: datetime) -> dict[str, str]:
    """How the engine finds the next jobs that ran, and those that never did, from a place in the middle of the walk."""
    explain = "EXPLAIN QUERY PLAN " if tx.dialect == "sqlite" else "EXPLAIN "
    rows_of = tx.rows
    plans: dict[str, str] = {}

    def note(sql: str, /, **params: Any) -> list[tuple[Any, ...]]:
        for index in ("jobs_ran", "jobs_never_ran"):
            if f"INDEXED BY {index} " in sql:
                plans[index] = str(rows_of(explain + sql, **params))
        return rows_of(sql, **params)

    tx.rows = note  # type: ignore[method-assign]
    for _ in range(2):
        prune(tx, before, 50)
    return plans


@pytest.mark.rule("QUE-07")
def test_a_batch_is_quick_beside_a_long_history(store: PersistenceAdapter, clock: ManualClock) -> None:
    """Twenty thousand ended jobs here; the walk goes by an index, so their number does not matter to a batch."""
    now = clock.now()

    def fill(tx: Transaction) -> None:
        ids = tx.new_ids(20_000)
        tx.insert(
            "jobs",
            ("id", "type", "status", "position", "created_at", "started_at", "finished_at"),
            [
                (
                    i,
                    "noop",
                    "COMPLETED" if n % 2 else "CANCELLED",
                    n,
                    now,
                    now if n % 2 else None,
                    now + MILLISECOND * n,
                )
                for n, i in enumerate(ids)
            ],
        )

    store.write_sync(fill)
    change(store, "ANALYZE")
    clock.advance(40 * DAY_S)
    plans = store.write_sync(plans_of_the_walk, month_ago(clock))
    assert plans.keys() == {"jobs_ran", "jobs_never_ran"}
    for index, plan in plans.items():
        assert index in plan and "Seq Scan" not in plan, plan
    for _ in range(5):
        assert store.write_sync(prune, month_ago(clock), 200).counts["jobs"] == 200


@pytest.mark.rule("QUE-07")
def test_retention_takes_the_oldest_end_first_whatever_the_type(store: PersistenceAdapter, clock: ManualClock) -> None:
    ended = []
    for number in range(9):
        job = enqueue_one(store, "a" if number % 3 else "b")
        if number % 3 == 2:
            cancel(store, job.id)
        else:
            complete(store, claim_one(store))
        ended.append(job.id)
        clock.advance(1)
    clock.advance(40 * DAY_S)
    for left in (6, 3, 0):
        store.write_sync(prune, month_ago(clock), 3)
        assert job_ids(store) == set(ended[9 - left :])


@pytest.mark.rule("QUE-07")
def test_a_batch_reads_no_more_for_a_hundred_types(
    store: PersistenceAdapter, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each type has fifty old jobs. Whatever their number, they go in the order of their ends, and all of them."""
    now = clock.now()

    def fill(tx: Transaction) -> list[str]:
        ids = tx.new_ids(5_000)
        columns = ("id", "type", "status", "position", "created_at", "started_at", "finished_at")
        ends = [now + MILLISECOND * n for n in range(len(ids))]
        tx.insert(
            "jobs",
            columns,
            [
                (i, f"t{n % 100}", "COMPLETED", n, now, now, end)
                for n, (i, end) in enumerate(zip(ids, ends, strict=True))
            ],
        )
        return ids

    ids = store.write_sync(fill)
    clock.advance(40 * DAY_S)
    read = 0

    def counted(tx: Transaction) -> Pruned:
        nonlocal read
        read = 0
        rows_of = tx.rows

        def rows_counted(sql: str, **params: Any) -> Any:
            nonlocal read
            found = rows_of(sql, **params)
            read += len(found) if "jobs_ran" in sql else 0
            return found

        monkeypatch.setattr(tx, "rows", rows_counted)
        return prune(tx, month_ago(clock), 200)

    left = list(ids)
    while left:
        gone = store.write_sync(counted).counts["jobs"]
        assert 0 < read <= 1_000
        left = left[gone:]
        assert job_ids(store) == set(left)
