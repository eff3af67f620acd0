"""Tasks of one event loop that write at the same time are handed to the engine together, and answered one by one."""

from __future__ import annotations

import asyncio

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.work import Work
from tests.conformance.acts import count


@pytest.fixture
def handed_over(store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each hand-over to the engine had."""
    store.write_sync(announce, [AnnouncedType("a")])
    sizes: list[int] = []
    submit_together = store.submit_together

    def noted(works: list[Work]) -> None:
        sizes.append(len(works))
        submit_together(works)

    monkeypatch.setattr(store, "submit_together", noted)
    return sizes


async def submitted(store: PersistenceAdapter, number: int) -> Enqueued:
    type_ = "a" if number >= 0 else "nobody"
    return await store.write(submit, [Submission(type=type_, own={"params": {"n": number}})])


@pytest.mark.rule("DEC-008")
def test_tasks_of_one_turn_are_handed_over_together(store: PersistenceAdapter, handed_over: list[int]) -> None:
    async def program() -> list[Enqueued]:
        return await asyncio.gather(*[submitted(store, number) for number in range(2 * store.calls_of_commit)])

    answers = asyncio.run(program())
    # The first comes alone. It may be stored without the engine's threads, and then the second is the first of them.
    assert handed_over[0] == 1 and store.calls_of_commit in handed_over
    assert len(handed_over) <= 6 and count(store, "jobs") == 2 * store.calls_of_commit
    assert [answer.jobs[0].params["n"] for answer in answers] == list(range(2 * store.calls_of_commit))


@pytest.mark.rule("DEC-008", "QUE-06")
def test_each_task_gets_its_own_refusal(store: PersistenceAdapter, handed_over: list[int]) -> None:
    async def program() -> list[Enqueued | BaseException]:
        calls = [submitted(store, number) for number in (0, 1, -1, 2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(program())
    assert [isinstance(answer, Invalid) for answer in answers] == [False, False, True, False]
    assert count(store, "jobs") == 3


@pytest.mark.rule("DEC-008")
def test_a_call_that_was_given_up_before_it_was_handed_over_is_not_executed(
    store: PersistenceAdapter, handed_over: list[int]
) -> None:
    async def program() -> None:
        first, given_up = (asyncio.ensure_future(submitted(store, number)) for number in range(2))
        asyncio.get_running_loop().call_soon(given_up.cancel)
        await asyncio.wait([first, given_up])
        assert given_up.cancelled()
        # With nothing under way any more, a call is handed over at once again.
        await submitted(store, 2)

    asyncio.run(program())
    assert {row.jobs[0].params["n"] for row in [asyncio.run(submitted(store, 3))]} == {3}
    assert count(store, "jobs") == 3


def test_a_store_that_was_closed_refuses_what_was_gathered(store: PersistenceAdapter, handed_over: list[int]) -> None:
    async def program() -> list[Enqueued | BaseException]:
        store.close()
        return await asyncio.gather(*[submitted(store, number) for number in range(3)], return_exceptions=True)

    assert [getattr(error, "code", None) for error in asyncio.run(program())] == ["store_closed"] * 3
