"""Coroutines that share a task until one of them waits."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from holdbeat.engine.serial_tasks import SerialTasks

pytestmark = pytest.mark.asyncio

mark: ContextVar[int] = ContextVar("mark", default=-1)


@pytest.mark.rule("EXE-01")
async def test_coroutines_that_do_not_wait_share_one_task_and_run_in_order() -> None:
    seen: list[tuple[int, object]] = []

    async def execute(number: int) -> None:
        seen.append((number, asyncio.current_task()))

    tasks = SerialTasks(execute)
    tasks.start(range(100))
    await tasks.ended()
    assert [number for number, _ in seen] == list(range(100))
    assert len({task for _, task in seen}) == 1


@pytest.mark.rule("EXE-01")
async def test_a_coroutine_that_waits_keeps_its_task_and_holds_nobody_up() -> None:
    gate, all_begun = asyncio.Event(), asyncio.Event()
    task_before: dict[int, object] = {}
    task_after: dict[int, object] = {}

    async def execute(number: int) -> None:
        task_before[number] = asyncio.current_task()
        if number == 9:
            all_begun.set()
        if number % 2 == 0:
            await gate.wait()
        task_after[number] = asyncio.current_task()

    tasks = SerialTasks(execute)
    tasks.start(range(10))
    await all_begun.wait()
    assert sorted(task_after) == [1, 3, 5, 7, 9]
    waiting = [task_before[number] for number in range(0, 10, 2)]
    assert len(set(waiting)) == 5, "two that wait share a task"
    gate.set()
    await tasks.ended()
    assert task_after == task_before


@pytest.mark.rule("EXE-01")
async def test_what_a_coroutine_sets_in_its_context_stays_there() -> None:
    seen: dict[int, tuple[int, int]] = {}

    async def execute(number: int) -> None:
        before = mark.get()
        mark.set(number)
        if number % 3 == 0:
            await asyncio.sleep(0)
        seen[number] = (before, mark.get())

    tasks = SerialTasks(execute)
    tasks.start(range(9))
    await tasks.ended()
    assert seen == {number: (-1, number) for number in range(9)}
    assert mark.get() == -1


@pytest.mark.rule("EXE-01")
async def test_one_that_raises_does_not_take_the_others_with_it() -> None:
    ran: list[int] = []

    async def execute(number: int) -> None:
        ran.append(number)
        if number == 2:
            raise RuntimeError("broken")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    tasks = SerialTasks(execute)
    tasks.start(range(5))
    await tasks.ended()
    assert ran == list(range(5))


@pytest.mark.rule("EXE-01")
async def test_a_cancelled_task_cancels_the_coroutine_that_waits_in_it() -> None:
    ended: list[str] = []
    begun = asyncio.Event()
    task: asyncio.Task[None] | None = None

    async def execute(name: str) -> None:
        nonlocal task
        task = asyncio.current_task()
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(name)

    tasks = SerialTasks(execute)
    tasks.start(["one"])
    await begun.wait()
    assert task is not None
    task.cancel()
    await tasks.ended()
    assert ended == ["one"]


@pytest.mark.rule("EXE-01")
async def test_one_that_cancels_its_own_task_and_returns_does_not_cancel_the_next() -> None:
    ended: list[int] = []

    async def execute(number: int) -> None:
        if number == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return
        await asyncio.sleep(0)
        ended.append(number)

    tasks = SerialTasks(execute)
    tasks.start(range(3))
    await tasks.ended()
    assert sorted(ended) == [1, 2]
