"""Tasks of one event loop that write at the same time are handed to the engine together, and answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.loop_calls import LoopCalls
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


# --- the rules, without a store ---------------------------------------------------------------------------


def gathered(rules: Callable[[LoopCalls, list[list[Work]], list[Work]], Awaitable[None]], enough: int = 4) -> None:
    """Runs a test of the rules with calls of one loop, what was handed over, and some works."""

    async def program() -> None:
        loop = asyncio.get_running_loop()
        handed: list[list[Work]] = []
        works = [Work(submit, (), {}, loop) for _ in range(60)]
        await rules(LoopCalls(loop, handed.append, enough), handed, works)

    asyncio.run(program())


def test_a_call_waits_for_those_under_way_or_until_enough_wait() -> None:
    async def rules(calls: LoopCalls, handed: list[list[Work]], works: list[Work]) -> None:
        assert calls.is_alone
        for work in works[:3]:
            calls.put(work)
        assert handed == [works[:1]] and not calls.is_alone
        calls.answered()
        assert handed == [works[:1], works[1:3]]
        for work in works[3:7]:
            calls.put(work)
        assert handed[2:] == [works[3:7]]

    gathered(rules)


def test_a_call_is_not_held_for_long_and_its_timer_leaves_later_calls_alone() -> None:
    async def rules(calls: LoopCalls, handed: list[list[Work]], works: list[Work]) -> None:
        calls.put(works[0])
        calls.put(works[1])
        calls.answered()
        assert handed == [works[:1], works[1:2]]
        # The timer of the second call has still to come. The third one waits for its own.
        calls.hold_s = 60
        calls.put(works[2])
        await asyncio.sleep(2 * LoopCalls.hold_s)  # type: ignore[operator]
        assert len(handed) == 2
        calls.answered()
        assert handed[2:] == [works[2:3]]
        calls.hold_s = LoopCalls.hold_s
        calls.put(works[3])
        await asyncio.sleep(2 * LoopCalls.hold_s)  # type: ignore[operator]
        assert handed[3:] == [works[3:4]]

    gathered(rules)


def test_a_call_that_is_given_up_is_taken_out_of_those_that_wait() -> None:
    async def rules(calls: LoopCalls, handed: list[list[Work]], works: list[Work]) -> None:
        for work in works[:3]:
            calls.put(work)
        calls.give_up(works[1])
        assert handed == [works[:1]]
        calls.give_up(works[0])
        assert handed == [works[:1], works[2:3]]
        calls.answered()
        calls.put(works[3])
        assert handed[2:] == [works[3:4]]

    gathered(rules)


def test_many_calls_go_in_two_parts_if_nothing_is_under_way() -> None:
    async def rules(calls: LoopCalls, handed: list[list[Work]], works: list[Work]) -> None:
        for work in works[:51]:
            calls.put(work)
        calls.answered()
        assert [len(part) for part in handed] == [1, 25]
        for _ in handed[1]:
            calls.answered()
        assert [len(part) for part in handed] == [1, 25, 25]

    gathered(rules, enough=100)


def busy(loop: asyncio.AbstractEventLoop, act: Callable[[], bool]) -> None:
    """Keeps the loop busy, one turn after the other, as long as `act` says so."""
    if act():
        loop.call_soon(busy, loop, act)


def test_calls_wait_until_their_loop_has_nothing_else_to_do() -> None:
    async def rules(calls: LoopCalls, handed: list[list[Work]], works: list[Work]) -> None:
        calls.waits_for_loop, calls.hold_s = True, 60
        calls.put(works[0])
        assert handed == [works[:1]], "one that comes alone waits for nothing"
        left = works[1:31]

        def put_next() -> bool:
            calls.put(left.pop(0))
            if len(left) == 20:
                calls.answered()
            return bool(left)

        busy(calls.loop, put_next)
        await asyncio.sleep(0.1)
        assert handed == [works[:1], works[1:31]]

    gathered(rules, enough=100)


def test_calls_do_not_wait_for_long_if_their_loop_is_always_busy() -> None:
    async def rules(calls: LoopCalls, handed: list[list[Work]], works: list[Work]) -> None:
        calls.waits_for_loop = True
        calls.put(works[0])
        ends_at = calls.loop.time() + 10
        busy(calls.loop, lambda: len(handed) == 1 and calls.loop.time() < ends_at)
        calls.answered()
        for work in works[1:3]:
            calls._last_count = 2  # not alone
            calls.put(work)
        await asyncio.sleep(0.1)
        assert handed == [works[:1], works[1:3]] and calls.loop.time() < ends_at

    gathered(rules, enough=100)
