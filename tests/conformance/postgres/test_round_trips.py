"""What a caller of PostgreSQL waits for: each question that must be answered before the next is a round trip."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.steps import StepEntry, keep_step, kept_values
from holdbeat.store.jobs.submit import submit
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.postgres.pipeline import Answer, Params, StatementPipeline
from holdbeat.store.postgres.transaction import PostgresTransaction
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce, list_types
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import settle_and_claim
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import claim_one, enqueue_one, job_of_claim, open_at


def column_names(tx: Transaction, table: str) -> list[str]:
    rows = tx.rows("SELECT column_name FROM information_schema.columns WHERE table_name = :table", table=table)
    return [row[0] for row in rows]


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


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the test's own thread has sent."""
    own_thread = threading.get_ident()
    statements: list[str] = []
    send = StatementPipeline.send

    def noted(pipeline: StatementPipeline, sql: str, params: Params = None) -> Answer:
        if threading.get_ident() == own_thread:
            statements.append(sql)
        return send(pipeline, sql, params)

    monkeypatch.setattr(StatementPipeline, "send", noted)
    return statements


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
    (last,) = store.write_sync(submit, [Submission(type="a", idempotency_key="k", request_hash="h")]).jobs
    assert last.position > job.position
    store.close()


@pytest.mark.rule("QUE-06", "DEC-005", "INV-005")
def test_a_plain_job_of_a_known_type_is_stored_by_one_statement_as_any_other_is(
    postgres_url: str, sent: list[str]
) -> None:
    store = open_at(postgres_url)
    store.write_sync(announce, [AnnouncedType("a", defaults={"priority": 7, "timeout_s": 5, "title": "job {n}"})])
    plain = Submission(type="a", own={"params": {"n": 1}, "webhook_url": "http://example.com/hook"}, actor="somebody")
    (first,) = store.write_sync(submit, [plain]).jobs
    sent.clear()
    (alone,) = store.write_sync(submit, [plain]).jobs
    assert len(sent) == 1
    assert alone.position > first.position
    assert replace(alone, id=first.id, position=first.position, created_at=first.created_at) == first
    other = open_at(postgres_url)
    columns = [name for name in other.read_sync(column_names, "jobs") if name not in ("id", "position", "created_at")]
    stored = {
        row[0]: row[1:] for row in other.read_sync(lambda tx: tx.rows(f"SELECT id, {', '.join(columns)} FROM jobs"))
    }
    assert stored[alone.id] == stored[first.id]
    events = other.read_sync(lambda tx: tx.rows("SELECT job_id, name, at, data, count FROM events ORDER BY id"))
    assert [event[:3] for event in events if event[0]] == [
        (job.id, "job.queued", job.created_at) for job in (first, alone)
    ]
    assert events[-1][3:] == events[-2][3:]
    store.close()
    other.close()


@pytest.mark.rule("QUE-06")
def test_a_job_of_a_type_that_has_changed_since_is_held_to_the_type_as_it_is_now(postgres_url: str) -> None:
    store, other = open_at(postgres_url), open_at(postgres_url)
    store.write_sync(announce, [AnnouncedType("a")])
    store.write_sync(submit, [Submission(type="a")])
    at = store.clock.now()
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for round_ in range(3):
        # Announcements in one millisecond, too: each has an instant of its own.
        other.write_sync(announce, [AnnouncedType("a", schema=number, defaults={"priority": round_})])
        with pytest.raises(Invalid):
            store.write_sync(submit, [Submission(type="a")])
        for _ in range(2):
            (job,) = store.write_sync(submit, [Submission(type="a", own={"params": {"n": 1}})]).jobs
            assert job.priority == round_
        other.write_sync(announce, [AnnouncedType("a", description=f"free again {round_}")])
        (job,) = store.write_sync(submit, [Submission(type="a")]).jobs
        assert job.priority == 0
    (types,) = [store.read_sync(list_types)]
    assert types[0].announced_at is not None and types[0].announced_at > at
    store.close()
    other.close()


@pytest.mark.rule("INV-004", "LEASE-01")
def test_a_claim_that_fills_some_of_its_slots_asks_three_questions_before_it_writes(
    postgres_url: str, round_trips: list[None]
) -> None:
    store = open_at(postgres_url)
    store.write_sync(announce, [AnnouncedType("a")])
    assert store.write_sync(settle_and_claim, [], Vacancy("worker", [0], (), ["a"])).claims == []
    store.write_sync(submit, [Submission(type="a"), Submission(type="a", delay_s=60)])
    round_trips.clear()
    done = store.write_sync(settle_and_claim, [], Vacancy("worker", range(8), (), ["a"]))
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
        done = store.write_sync(settle_and_claim, [], Vacancy("worker", [slot], (), ["a"]))
        assert len(done.claims) == 1
        # Beside what there is to do and how many slots are taken: whose turn it is, the first jobs of those, and the
        # job itself with its fence. The first claim reads the limits, too.
        assert len(round_trips) == 5 + (slot == 0)
    store.close()


@pytest.mark.rule("STEP-07", "STEP-01")
def test_a_step_is_kept_by_one_statement_that_commits_itself(postgres_url: str, sent: list[str]) -> None:
    store = open_at(postgres_url)
    enqueue_one(store)
    taken = claim_one(store)
    lease, chain_id = taken.lease, job_of_claim(taken).chain_id
    entry = StepEntry(lease.id, lease.worker_id, lease.fence, chain_id, "one", "1", lease.acquired_at, 0.0)
    store.write_sync(keep_step, entry)
    sent.clear()
    assert store.write_sync(keep_step, entry._replace(name="two", value="2")) == "2"
    assert len(sent) == 1 and sent[0].startswith("INSERT INTO steps")
    other = open_at(postgres_url)
    assert other.read_sync(kept_values, chain_id) == {"one": "1", "two": "2"}, "nothing is left to commit"
    other.close()
    store.close()
