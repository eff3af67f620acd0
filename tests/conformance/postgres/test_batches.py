"""Calls that wait at the same time share the next transaction of their kind; one that is stuck delays no other kind."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.postgres.calls import BATCH_WAIT_S, Calls
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.work import Work
from tests.conformance.acts import OpenStore
from tests.conformance.contract.test_shared_commit import hand_in
from tests.waiting import eventually

IN_THE_QUEUE = (
    "SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
    "WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
)


class Watch:
    """What the calls look at; it stands still unless the test moves it."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def submission() -> Work:
    return Work(submit, ([Submission(type="a")],), {})


@pytest.mark.rule("DEC-008")
def test_submissions_wait_for_the_one_under_way_and_then_go_together() -> None:
    calls = Calls(Watch())
    first, second, third, other = submission(), submission(), submission(), Work(enqueue, ([],), {})
    calls.put(first)
    assert calls.take() == [first]
    for work in (second, third, other):
        calls.put(work)
    assert calls.take() == [other], "what is of another kind passes by"
    assert calls.take(finished=first) == [second, third]


@pytest.mark.rule("DEC-008")
def test_a_submission_that_takes_long_holds_up_no_other() -> None:
    watch = Watch()
    calls = Calls(watch)
    stuck, later, last = submission(), submission(), submission()
    calls.put(stuck)
    assert calls.take() == [stuck]
    calls.put(later)
    watch.now_s += BATCH_WAIT_S
    assert calls.take() == [later]
    calls.put(last)
    assert calls.take(finished=later) == [last], "only the stuck one is under way, and it has been for long"


def test_what_waits_when_the_store_closes_is_done_all_the_same() -> None:
    calls = Calls(Watch())
    first, second = submission(), submission()
    calls.put(first)
    assert calls.take() == [first]
    calls.put(second)
    calls.close()
    assert calls.take() == [second]
    assert calls.take() is None


@pytest.mark.rule("QUE-01")
@pytest.mark.parametrize("engine", ["postgres"])
def test_a_key_that_somebody_holds_open_delays_no_other_submission(open_store: OpenStore, store_url: str) -> None:
    store: PersistenceAdapter = open_store()
    assert isinstance(store, PostgresStore)
    store.write_sync(announce, [AnnouncedType("a")])
    with psycopg.connect(store_url) as somebody:
        somebody.execute("SELECT pg_advisory_xact_lock(hashtextextended('key:held', 7450))")
        waiting = hand_in(store, submit, [Submission(type="a", idempotency_key="held", request_hash="h")])
        # Those that were handed in together with it would share its transaction, and its wait.
        while somebody.execute(IN_THE_QUEUE).fetchone() is None:
            assert not waiting.done()
        for _ in range(20):
            assert hand_in(store, submit, [Submission(type="a")]).result(20).jobs
        assert not waiting.done()
        somebody.rollback()
    assert waiting.result(20).jobs


@pytest.mark.rule("QUE-01")
@pytest.mark.parametrize("engine", ["postgres"])
def test_a_key_that_somebody_holds_open_delays_no_other_task_of_the_loop(open_store: OpenStore, store_url: str) -> None:
    store: PersistenceAdapter = open_store()
    store.write_sync(announce, [AnnouncedType("a")])

    async def program() -> None:
        with psycopg.connect(store_url) as somebody:
            somebody.execute("SELECT pg_advisory_xact_lock(hashtextextended('key:held', 7450))")
            held = [Submission(type="a", idempotency_key="held", request_hash="h")]
            waiting = asyncio.ensure_future(store.write(submit, held))
            await asyncio.to_thread(eventually, lambda: somebody.execute(IN_THE_QUEUE).fetchone())
            for _ in range(3):
                async with asyncio.timeout(20):
                    others = [store.write(submit, [Submission(type="a")]) for _ in range(3)]
                    assert all(answer.jobs for answer in await asyncio.gather(*others))
            assert not waiting.done()
            somebody.rollback()
        async with asyncio.timeout(20):
            assert (await waiting).jobs

    asyncio.run(program())
