"""Single jobs from an event loop: stored by one statement of the loop itself, once, whatever becomes of the line."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdbeat.domain.job import Job
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.postgres import loop_link, wakeups
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.work import Work
from tests.conformance.acts import count, open_at, rows
from tests.conformance.fault_proxy import CUTS, Cut, FaultProxy
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.fixture
def store(far_store: PostgresStore) -> PostgresStore:
    far_store.write_sync(announce, [AnnouncedType("a")])
    far_store.write_sync(submit, [Submission(type="a")])
    return far_store


async def enqueued(store: PersistenceAdapter, number: int = 0) -> Job:
    return (await store.write(submit, [Submission(type="a", own={"params": {"n": number}})])).jobs[0]


async def connect_loop(store: PostgresStore) -> None:
    """The first call goes to a writer, and has the connection for the next ones made."""
    await enqueued(store)
    link = store._single_jobs.loop_link
    # The thread that makes it gives it free a moment later.
    await asyncio.to_thread(eventually, lambda: link._connection is not None and not link._in_use.locked())


def calls_of_threads(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """An entry for each call that goes to a writer's thread from now on."""
    seen: list[object] = []
    put = store._writing.put

    def noted(*works: Work) -> None:
        seen.extend(works)
        put(*works)

    monkeypatch.setattr(store._writing, "put", noted)
    return seen


def stored(store: PersistenceAdapter) -> list[str]:
    return [row[0] for row in rows(store, "SELECT id FROM jobs ORDER BY position")]


@pytest.mark.rule("DEC-008", "INV-005")
def test_one_caller_needs_no_thread_and_its_job_is_committed(
    store: PostgresStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_sets: list[frozenset[str]] = []
    store.listen(topic_sets.append)

    async def program() -> list[Job]:
        await connect_loop(store)
        topic_sets.clear()
        return [await enqueued(store, number) for number in range(5)]

    threads = calls_of_threads(store, monkeypatch)
    jobs = asyncio.run(program())
    assert len(threads) == 1, "only the first call, before there was a connection"
    other = open_at(store_url)
    assert stored(other)[-5:] == [job.id for job in jobs]
    assert [job.params for job in jobs] == [{"n": number} for number in range(5)]
    assert count(other, "events", "name = 'job.queued'") == 7
    # The listener's thread may tell of something else in between: that it listens now, for one.
    assert len([topics for topics in topic_sets if {"ready", "events"} <= topics]) >= 5
    other.close()


@pytest.mark.rule("DEC-008")
def test_many_callers_share_the_transactions_of_the_writers(store: PostgresStore) -> None:
    async def program() -> list[Job]:
        await connect_loop(store)
        return await asyncio.gather(*[enqueued(store, number) for number in range(64)])

    jobs = asyncio.run(program())
    assert sorted(job.params["n"] for job in jobs) == list(range(64))
    assert set(stored(store)) >= {job.id for job in jobs} and len({job.id for job in jobs}) == 64


@pytest.mark.rule("QUE-06")
def test_a_type_that_was_announced_anew_is_read_before_the_job_is_stored(store: PostgresStore, store_url: str) -> None:
    other = open_at(store_url)

    async def program() -> Job:
        await connect_loop(store)
        await asyncio.to_thread(other.write_sync, announce, [AnnouncedType("a", defaults={"priority": 7})])
        return await enqueued(store)

    assert asyncio.run(program()).priority == 7
    other.close()


@pytest.mark.rule("QUE-01", "DEC-008")
@pytest.mark.parametrize("cut", CUTS)
def test_a_job_whose_answer_is_lost_is_stored_once(
    store: PostgresStore, store_url: str, proxy: FaultProxy, cut: Cut
) -> None:
    async def program() -> list[Job]:
        jobs = []
        for number in range(3):
            await connect_loop(store)
            proxy.arm(cut, b"job.queued" if cut == "before the commit arrives" else b"SELECT 1\0")
            jobs.append(await enqueued(store, number))
        return jobs

    jobs = asyncio.run(program())
    assert proxy.cuts == 3
    other = open_at(store_url)
    ids = stored(other)
    assert len(ids) == len(set(ids)) and set(ids) >= {job.id for job in jobs}
    assert count(other, "events", "name = 'job.queued'") == len(ids)
    other.close()


@pytest.mark.rule("DEC-008")
def test_a_caller_that_gives_up_leaves_no_answer_for_the_next_one(store: PostgresStore, store_url: str) -> None:
    other = open_at(store_url)
    is_locked, may_end = threading.Event(), threading.Event()

    def hold_jobs() -> None:
        with other.connection() as connection:
            connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            is_locked.set()
            may_end.wait(30)

    async def program() -> Job:
        await connect_loop(store)
        holder = threading.Thread(target=hold_jobs)
        holder.start()
        await asyncio.to_thread(is_locked.wait, 30)
        waiting = asyncio.ensure_future(enqueued(store, 1))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        may_end.set()
        await asyncio.to_thread(holder.join)
        return await enqueued(store, 2)

    job = asyncio.run(program())
    assert job.params == {"n": 2}
    assert rows(other, f"SELECT params FROM jobs WHERE id = '{job.id}'") == [('{"n":2}',)]
    other.close()


@pytest.mark.rule("DEC-008")
def test_each_event_loop_after_the_other_uses_the_connection(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(connect_loop(store))
    threads = calls_of_threads(store, monkeypatch)
    jobs = [asyncio.run(enqueued(store, number)) for number in range(3)]
    assert threads == [] and len({job.id for job in jobs}) == 3


@pytest.mark.rule("CON-003")
def test_a_closed_store_ends_its_connection(store: PostgresStore) -> None:
    asyncio.run(connect_loop(store))
    connection = store._single_jobs.loop_link._connection
    assert connection is not None
    store.close()
    eventually(lambda: connection.closed or None)


@pytest.mark.rule("DEC-008")
def test_other_processes_are_told_behind_the_commit_and_what_that_comes_to_reaches_no_caller(
    store: PostgresStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_at(store_url)
    topic_sets: list[frozenset[str]] = []
    other.listen(topic_sets.append)

    def told_of_a_wakeup() -> bool:
        store._wakeups.send(frozenset({"first"}))
        return bool(topic_sets)

    # A store wakes its listeners when it begins to listen. That may have been before this one was added.
    eventually(told_of_a_wakeup)
    # What the fixture's writes told must have arrived: with the interval below its thread would never send the rest.
    store._wakeups.send(frozenset({"last"}))
    eventually(lambda: any("last" in topics for topics in topic_sets) or None)
    sent_by_thread: list[frozenset[str]] = []
    monkeypatch.setattr(store._wakeups, "send", sent_by_thread.append)
    monkeypatch.setattr(wakeups, "EVERY_S", 1000.0)

    def let_the_next_one_notify() -> None:
        monkeypatch.setattr(store._wakeups, "_sent_at", -1000.0)

    async def program() -> None:
        await connect_loop(store)
        # The writer answers its caller before it tells other processes.
        await asyncio.to_thread(eventually, lambda: sent_by_thread or None)
        let_the_next_one_notify()
        topic_sets.clear()
        sent_by_thread.clear()
        await enqueued(store, 1)
        await asyncio.to_thread(eventually, lambda: topic_sets or None)
        assert sent_by_thread == [] and {"ready", "events"} <= topic_sets[0]
        # A notification that the server refuses: the job is stored, and the next caller sees nothing of it.
        monkeypatch.setattr(loop_link, "CHANNEL", "x" * 100)
        let_the_next_one_notify()
        first = await enqueued(store, 2)
        second = await enqueued(store, 3)
        assert [row[0] for row in rows(other, "SELECT id FROM jobs ORDER BY position")][-2:] == [first.id, second.id]
        # So soon behind another one: together with all that come meanwhile, by the thread for that.
        assert len(sent_by_thread) == 1

    asyncio.run(program())
    other.close()
