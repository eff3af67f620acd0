"""Jobs of one kind that come together are stored by a few statements, whatever each of them turns out to be."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.submission import Submission
from holdbeat.domain.uniform_batch import SubmissionKind, UniformSubmissions
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.sqlite.store import SqliteStore
from holdbeat.store.work import Work
from tests.conformance.acts import count, open_at, rows

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.fixture
def known(store: SqliteStore) -> SqliteStore:
    """A store whose process has read the job type."""
    store.write_sync(announce, [AnnouncedType("a", schema=SCHEMA)])
    store.write_sync(submit, [Submission(type="a")])
    return store


def submitted(store: SqliteStore, *params: object) -> list[Enqueued | BaseException]:
    """The answers to calls that are handed over together, one for each of the params."""
    return submitted_batches(store, *[[{"n": n}] for n in params])


def submitted_batches(store: SqliteStore, *batches: list[dict[str, object]]) -> list[Enqueued | BaseException]:
    """The answers to calls that are handed over together, one for each of the lists of params."""
    kind = SubmissionKind(Submission(type="a"))

    async def program() -> list[Enqueued | BaseException]:
        loop = asyncio.get_running_loop()
        works = [Work(submit, (UniformSubmissions(kind, batch),), {}, loop) for batch in batches]
        store.submit_together(works)
        answers: list[Enqueued | BaseException] = await asyncio.gather(
            *[work.waiter for work in works if work.waiter], return_exceptions=True
        )
        return answers

    return asyncio.run(program())


@pytest.mark.rule("DEC-008", "INV-005", "QUE-02")
@pytest.mark.parametrize("number", [2, 64, 150])
def test_they_share_a_commit_and_an_event_and_each_caller_gets_its_own_job(known: SqliteStore, number: int) -> None:
    statements: list[str] = []
    topic_sets: list[frozenset[str]] = []
    known.listen(topic_sets.append)

    def note(cursor: object, sql: str, bindings: object) -> bool:
        statements.append(sql)
        return True

    known._file.writer.exec_trace = note
    answers = submitted(known, *range(number))
    known._file.writer.exec_trace = None
    assert statements[0] == "BEGIN IMMEDIATE" and statements[-1] == "COMMIT" and len(statements) <= 5 + number // 64
    jobs = [answer.jobs[0] for answer in answers if isinstance(answer, Enqueued)]
    assert [job.params["n"] for job in jobs] == list(range(number))
    found = rows(known, "SELECT id, position, title, params FROM jobs ORDER BY position LIMIT 1000 OFFSET 1")
    assert found == [
        (job.id, job.position, f"n={n}", json.dumps({"n": n}, separators=(",", ":"))) for n, job in enumerate(jobs)
    ]
    ((events, batch),) = rows(known, "SELECT count, batch FROM events WHERE batch IS NOT NULL")
    assert events == number and json.loads(batch)["job_id"] == [job.id for job in jobs]
    (last,) = rows(known, "SELECT max(id) FROM events")
    assert last == (1 + number,), "each Event has an id"
    assert topic_sets == [frozenset({"ready", "events"})]


@pytest.mark.rule("QUE-02")
def test_one_job_more_than_an_event_row_can_hold_has_a_row_of_its_own(known: SqliteStore) -> None:
    statements: list[str] = []

    def note(cursor: object, sql: str, bindings: object) -> bool:
        statements.append(sql)
        return True

    known._file.writer.exec_trace = note
    answers = submitted_batches(known, [{"n": n} for n in range(600)], [{"n": n} for n in range(401)])
    known._file.writer.exec_trace = None
    assert [len(answer) for answer in answers if isinstance(answer, Enqueued)] == [600, 401]
    assert "ROLLBACK" not in statements and not any("SAVEPOINT" in text for text in statements)
    assert rows(known, "SELECT id, count FROM events ORDER BY id") == [(1, 1), (1001, 1000), (1002, 1)]


@pytest.mark.rule("QUE-06")
def test_a_type_that_another_process_announced_anew_is_read_first(known: SqliteStore, store_url: str) -> None:
    other = open_at(store_url)
    other.write_sync(announce, [AnnouncedType("a", defaults={"priority": 7})])
    answers = submitted(known, 1, 2)
    assert [answer.jobs[0].priority for answer in answers if isinstance(answer, Enqueued)] == [7, 7]
    other.close()


@pytest.mark.rule("QUE-06", "DEC-008")
def test_a_refused_call_fails_no_other(known: SqliteStore) -> None:
    first, refused, third = submitted(known, 1, "x", 3)
    assert isinstance(refused, HoldbeatError) and refused.code == "invalid_params"
    assert isinstance(first, Enqueued) and isinstance(third, Enqueued)
    assert count(known, "jobs") == 3


@pytest.mark.rule("DEC-008")
def test_a_row_that_the_database_refuses_fails_no_other_call(known: SqliteStore) -> None:
    known._file.writer.execute(
        "CREATE TEMP TRIGGER no_sevens BEFORE INSERT ON jobs WHEN NEW.params = '{\"n\":7}' "
        "BEGIN SELECT RAISE(ABORT, 'no sevens here'); END"
    )
    answers = submitted(known, 6, 7, 8)
    assert [isinstance(answer, Enqueued) for answer in answers] == [True, False, True]
    assert rows(known, "SELECT title FROM jobs ORDER BY position LIMIT 9 OFFSET 1") == [("n=6",), ("n=8",)]
    assert len(submitted(known, 9, 10)) == 2 and count(known, "jobs") == 5
