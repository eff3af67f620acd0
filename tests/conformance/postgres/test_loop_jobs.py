"""Jobs of one kind that tasks of an event loop submit together: stored by one statement of the loop itself, once."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import Job
from holdbeat.domain.submission import Submission
from holdbeat.domain.uniform_batch import SubmissionKind, UniformSubmissions
from holdbeat.store.jobs.submit import submit
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.work import Work
from tests.conformance.acts import count, open_at, rows
from tests.conformance.fault_proxy import CUTS, Cut, FaultProxy
from tests.conformance.postgres.test_loop_link import calls_of_threads, connect_loop

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.fixture
def store(far_store: PostgresStore) -> PostgresStore:
    far_store.write_sync(announce, [AnnouncedType("a", schema=SCHEMA), AnnouncedType("b")])
    for type_ in "ab":
        far_store.write_sync(submit, [Submission(type=type_)])
    return far_store


async def submitted(store: PostgresStore, *params: object, kinds: str = "a") -> list[Enqueued | BaseException]:
    """What becomes of calls that are handed over together, one for each of the params."""
    made = {type_: SubmissionKind(Submission(type=type_)) for type_ in kinds}
    loop = asyncio.get_running_loop()
    works = [
        Work(submit, (UniformSubmissions(made[kinds[number % len(kinds)]], [{"n": each}]),), {}, loop)
        for number, each in enumerate(params)
    ]
    store.submit_together(works)
    answers: list[Enqueued | BaseException] = await asyncio.gather(
        *[work.waiter for work in works if work.waiter], return_exceptions=True
    )
    return answers


def jobs_of(answers: list[Enqueued | BaseException]) -> list[Job]:
    return [answer.jobs[0] for answer in answers if isinstance(answer, Enqueued)]


@pytest.mark.rule("DEC-008", "INV-005", "QUE-02")
def test_tasks_need_no_thread_and_their_jobs_are_committed(
    store: PostgresStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_sets: list[frozenset[str]] = []
    committed: list[object] = []
    store.listen(topic_sets.append)
    store.on_commit(committed.extend)

    async def program() -> list[Job]:
        await connect_loop(store)
        threads = calls_of_threads(store, monkeypatch)
        topic_sets.clear()
        committed.clear()
        jobs = jobs_of(await submitted(store, *range(8)))
        assert threads == []
        return jobs

    jobs = asyncio.run(program())
    assert [job.params for job in jobs] == [{"n": number} for number in range(8)]
    assert {"ready", "events"} <= topic_sets[0] and len(committed) == 8
    other = open_at(store_url)
    ids = [job.id for job in jobs]
    found = rows(other, "SELECT id, position, title, created_at FROM jobs WHERE id = ANY(:ids)", ids=ids)
    assert sorted(found) == [(job.id, job.position, f"n={job.params['n']}", job.created_at) for job in jobs]
    assert ids == sorted(ids) and [job.position for job in jobs] == sorted({job.position for job in jobs})
    (event,) = rows(other, "SELECT at, count, batch::text FROM events WHERE batch IS NOT NULL")
    assert event[:2] == (jobs[0].created_at, 8) and all(job.id in event[2] for job in jobs)
    other.close()


@pytest.mark.rule("QUE-01", "DEC-008")
@pytest.mark.parametrize("cut", CUTS)
def test_jobs_whose_answer_is_lost_are_stored_once(
    store: PostgresStore, store_url: str, proxy: FaultProxy, cut: Cut
) -> None:
    async def program() -> list[Job]:
        jobs = []
        for _ in range(3):
            await connect_loop(store)
            proxy.arm(cut, b"job.queued" if cut == "before the commit arrives" else b"SELECT 1\0")
            jobs += jobs_of(await submitted(store, 1, 2, 3))
        return jobs

    jobs = asyncio.run(program())
    assert proxy.cuts == 3 and len(jobs) == 9
    other = open_at(store_url)
    found: dict[str, int] = dict(rows(other, "SELECT id, position FROM jobs"))
    assert len(found) == 9 + 2 + 3 and all(found[job.id] == job.position for job in jobs)
    assert rows(other, "SELECT sum(count) FROM events WHERE name = 'job.queued'") == [(len(found),)]
    other.close()


@pytest.mark.rule("QUE-06")
def test_a_type_that_was_announced_anew_is_read_before_jobs_are_stored(store: PostgresStore, store_url: str) -> None:
    other = open_at(store_url)

    async def program() -> list[Job]:
        await connect_loop(store)
        await asyncio.to_thread(other.write_sync, announce, [AnnouncedType("a", defaults={"priority": 7})])
        return jobs_of(await submitted(store, 1, 2))

    assert [job.priority for job in asyncio.run(program())] == [7, 7]
    other.close()


@pytest.mark.rule("QUE-02", "QUE-06")
def test_a_refused_call_and_calls_of_other_kinds_are_left_to_the_writers(store: PostgresStore) -> None:
    async def program() -> tuple[list[Enqueued | BaseException], list[Job]]:
        await connect_loop(store)
        return await submitted(store, 1, "x", 3), jobs_of(await submitted(store, 4, 5, 6, kinds="ab"))

    before = count(store, "jobs")
    (first, refused, third), mixed = asyncio.run(program())
    assert getattr(refused, "code", None) == "invalid_params"
    assert [job.params["n"] for job in jobs_of([first, third])] == [1, 3]
    assert [(job.type, job.params["n"]) for job in mixed] == [("a", 4), ("b", 5), ("a", 6)]
    assert count(store, "jobs") == before + 1 + 5


@pytest.mark.rule("DEC-008")
@pytest.mark.parametrize("ids", [OSError("no random numbers"), "half of a \ud800 pair"])
def test_what_nobody_expected_reaches_every_caller_and_the_next_ones_are_stored(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, ids: Exception | str
) -> None:
    """The source of ids fails before the statement is sent, or makes one that the driver cannot send."""

    def many(self: IdSource, now: datetime, number: int) -> list[str]:
        if isinstance(ids, Exception):
            raise ids
        return [f"{ids} {each}" for each in range(number)]

    expected = OSError if isinstance(ids, Exception) else UnicodeEncodeError

    async def program() -> None:
        await connect_loop(store)
        before = count(store, "jobs")
        with monkeypatch.context() as faulty:
            faulty.setattr(IdSource, "many", many)
            faulty.setattr(IdSource, "new", lambda self, now: many(self, now, 1)[0])
            answers = await asyncio.wait_for(submitted(store, *range(4)), 60)
        assert [type(answer) for answer in answers] == [expected] * 4
        assert count(store, "jobs") == before
        assert len(jobs_of(await submitted(store, *range(4)))) == 4
        assert count(store, "jobs") == before + 4

    asyncio.run(program())
