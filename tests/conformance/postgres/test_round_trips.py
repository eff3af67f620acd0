"""What a caller of PostgreSQL waits for: each question that must be answered before the next is a round trip."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.steps import StepEntry, keep_step, kept_values
from holdbeat.store.jobs.submit import submit
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.postgres.database import StoreConnection
from holdbeat.store.postgres.transaction import PostgresTransaction
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import turn
from tests.conformance.acts import claim_one, enqueue_one, job_of_claim, open_at


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each round trip of the test's own thread; stores of other tests may still ask in theirs."""
    own_thread = threading.get_ident()
    counted: list[None] = []
    synchronise = PostgresTransaction._synchronise

    def count(tx: PostgresTransaction) -> None:
        if threading.get_ident() == own_thread:
            counted.append(None)
        synchronise(tx)

    monkeypatch.setattr(PostgresTransaction, "_synchronise", count)
    return counted


@pytest.mark.rule("QUE-06", "DEC-005")
def test_a_single_submission_asks_one_question_before_it_writes_in_its_callers_thread(
    postgres_url: str, round_trips: list[None]
) -> None:
    store = open_at(postgres_url)
    store.write_sync(announce, [AnnouncedType("a"), AnnouncedType("urgent", defaults={"priority": 7})])
    round_trips.clear()
    (job,) = store.write_sync(submit, [Submission(type="a")]).jobs
    assert len(round_trips) == 1
    assert (job.priority, job.position) == (0, 100)
    round_trips.clear()
    # The priority is only known with the type: the position that came along is not used, and another is asked for.
    (urgent,) = store.write_sync(submit, [Submission(type="urgent")]).jobs
    assert len(round_trips) == 2
    assert (urgent.priority, urgent.position) == (7, 100)
    (last,) = store.write_sync(submit, [Submission(type="a")]).jobs
    assert last.position > job.position
    store.close()


@pytest.mark.rule("INV-004", "LEASE-01")
def test_a_claim_that_fills_some_of_its_slots_asks_three_questions_before_it_writes(
    postgres_url: str, round_trips: list[None]
) -> None:
    store = open_at(postgres_url)
    store.write_sync(announce, [AnnouncedType("a")])
    assert store.write_sync(turn, [], Vacancy("worker", [0], (), ["a"])).claims == []
    store.write_sync(submit, [Submission(type="a"), Submission(type="a", delay_s=60)])
    round_trips.clear()
    done = store.write_sync(turn, [], Vacancy("worker", range(8), (), ["a"]))
    # What there is to do, how many slots of the limits are taken, the job itself. The first answer names the first
    # delayed job, too.
    assert len(round_trips) == 3
    assert len(done.claims) == 1
    delayed = store.read_sync(lambda tx: tx.one("SELECT not_before FROM jobs WHERE hold = 1"))
    assert delayed is not None
    assert done.next_ready_at == delayed[0]
    store.close()


@pytest.mark.rule("LIM-07", "INV-004")
def test_a_claim_of_a_fair_lane_asks_two_questions_more_however_many_partitions_there_are(
    postgres_url: str, round_trips: list[None]
) -> None:
    store = open_at(postgres_url, concurrency="unlimited")
    store.write_sync(declare_limits, (), [Limit("api", resource="api", slots=9, fair=True)], by="w")
    store.write_sync(enqueue, [NewJob("a", resource="api", partition=f"p{number:03}") for number in range(500)])
    for slot in range(4):
        round_trips.clear()
        done = store.write_sync(turn, [], Vacancy("worker", [slot], (), ["a"]))
        assert len(done.claims) == 1
        # Beside what there is to do and how many slots are taken: whose turn it is, the first jobs of those, and the
        # job itself with its fence. The first claim reads the limits, too.
        assert len(round_trips) == 5 + (slot == 0)
    store.close()


@pytest.mark.rule("STEP-07", "STEP-01")
def test_a_step_is_kept_by_one_statement_that_commits_itself(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_at(postgres_url)
    enqueue_one(store)
    taken = claim_one(store)
    lease, chain_id = taken.lease, job_of_claim(taken).chain_id
    sent: list[str] = []
    execute = StoreConnection.execute

    def noted(connection: StoreConnection, sql: Any, *args: Any, **options: Any) -> Any:
        sent.append(str(sql))
        return execute(connection, sql, *args, **options)

    entry = StepEntry(lease.id, lease.worker_id, lease.fence, chain_id, "one", "1", lease.acquired_at, 0.0)
    store.write_sync(keep_step, entry)
    own_thread = threading.get_ident()
    monkeypatch.setattr(
        StoreConnection, "execute", lambda *args, **options: (
            noted(*args, **options) if threading.get_ident() == own_thread else execute(*args, **options)
        ),
    )  # fmt: skip
    assert store.write_sync(keep_step, replace(entry, name="two", value="2")) == "2"
    assert len(sent) == 1 and sent[0].startswith("INSERT INTO steps")
    monkeypatch.undo()
    other = open_at(postgres_url)
    assert other.read_sync(kept_values, chain_id) == {"one": "1", "two": "2"}, "nothing is left to commit"
    other.close()
    store.close()
