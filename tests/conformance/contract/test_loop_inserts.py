"""Steps of the tasks of an event loop: those of one turn go together, and none holds up another task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.steps import StepEntry, keep_step, kept_values
from holdbeat.store.work import Work
from tests.conformance.acts import claim_one, claim_some, count, enqueue_all, enqueue_one, job_of_claim, open_at
from tests.conformance.races import together
from tests.waiting import eventually

MANY = 2_000
"""Steps after which a test gives up."""


def entry(taken: Claim, name: str, value: str = "1") -> StepEntry:
    lease, chain_id = taken.lease, job_of_claim(taken).chain_id
    return StepEntry(lease.id, lease.worker_id, lease.fence, chain_id, name, value, lease.acquired_at, 0.25)


async def connected(store: PersistenceAdapter, taken: Claim) -> None:
    """On PostgreSQL the first step has a connection made for the loop."""
    await store.write(keep_step, entry(taken, "first"))
    link = getattr(getattr(store, "_single_jobs", None), "loop_link", None)
    if link is not None:
        await asyncio.to_thread(eventually, lambda: link._connection is not None and not link._in_use.locked())


@contextlib.contextmanager
def no_step_can_be_written(url: str) -> Iterator[None]:
    other = open_at(url)
    with other.connection() as connection:
        if url.startswith("postgres"):
            connection.execute("LOCK TABLE steps IN EXCLUSIVE MODE")
        yield
    other.close()


@pytest.mark.rule("STEP-01", "STEP-07")
def test_a_step_of_an_idle_loop_is_kept_without_a_turn_of_it(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store)

    async def program() -> str | None:
        await connected(store, taken)
        loop = asyncio.get_running_loop()
        for number in range(MANY):
            step = store.insert(loop, keep_step, entry(taken, f"step {number}"))
            # A commit may take longer than the loop is kept waiting, and is awaited then.
            is_kept = isinstance(step, asyncio.Future) and step.done()
            assert await step == "1"
            if is_kept:
                return f"step {number}"
        return None

    name = asyncio.run(program())
    assert name is not None
    assert name in store.read_sync(kept_values, job_of_claim(taken).chain_id)


@pytest.mark.rule("STEP-07")
def test_the_steps_of_one_turn_are_not_handed_to_the_writers_one_by_one(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(64)])
    claims = claim_some(store, 64)
    handed: list[Work] = []

    async def program() -> list[str]:
        await connected(store, claims[0])
        submit = store.submit

        def counted(work: Work, *, read_only: bool) -> None:
            handed.append(work)
            submit(work, read_only=read_only)

        monkeypatch.setattr(store, "submit", counted)
        store._inserts = None  # made anew with what counts
        return await asyncio.gather(*[store.write(keep_step, entry(taken, "crawl")) for taken in claims])

    assert asyncio.run(program()) == ["1"] * 64
    # The first goes at once, the others behind it.
    assert len(handed) <= 2
    assert count(store, "steps") == 65


@pytest.mark.rule("STEP-07", "CAN-02")
def test_a_step_that_cannot_be_written_yet_holds_up_nothing_else_in_its_loop(
    store: PersistenceAdapter, store_url: str
) -> None:
    enqueue_one(store)
    taken = claim_one(store)

    async def program() -> None:
        await connected(store, taken)
        with no_step_can_be_written(store_url):
            step = asyncio.ensure_future(store.write(keep_step, entry(taken, "crawl")))
            given_up = asyncio.ensure_future(store.write(keep_step, entry(taken, "given up")))
            for _ in range(100):
                await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert not step.done()
        assert await step == "1"

    asyncio.run(program())


@pytest.mark.rule("STEP-07")
def test_a_handler_that_keeps_step_after_step_leaves_turns_to_timers_and_to_others(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store)

    async def program() -> tuple[bool, bool]:
        await connected(store, taken)
        loop = asyncio.get_running_loop()
        timer, message = asyncio.Event(), asyncio.Event()
        loop.call_later(0.01, timer.set)
        loop.call_later(0, lambda: loop.run_in_executor(None, loop.call_soon_threadsafe, message.set))
        for number in range(MANY):
            if timer.is_set() and message.is_set():
                break
            await store.write(keep_step, entry(taken, f"step {number}"))
        return timer.is_set(), message.is_set()

    assert asyncio.run(program()) == (True, True)


@pytest.mark.rule("STEP-03", "STEP-07")
def test_event_loops_side_by_side_keep_their_steps(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(3)])
    claims = claim_some(store, 3)

    async def program(taken: Claim) -> list[str]:
        return [await store.write(keep_step, entry(taken, f"step {number}")) for number in range(50)]

    runs = [lambda taken=taken: asyncio.run(program(taken)) for taken in claims]
    assert together(runs) == [["1"] * 50] * 3
    assert count(store, "steps") == 150


@pytest.mark.rule("STEP-07")
def test_a_loop_that_ends_before_its_step_is_answered_leaves_the_next_one_as_it_was(
    store: PersistenceAdapter, store_url: str
) -> None:
    enqueue_one(store)
    taken = claim_one(store)

    async def leave(stack: contextlib.ExitStack) -> None:
        await connected(store, taken)
        stack.enter_context(no_step_can_be_written(store_url))
        asyncio.get_running_loop().create_task(store.write(keep_step, entry(taken, "left")))
        for _ in range(10):
            await asyncio.sleep(0)

    async def program() -> list[str]:
        return await asyncio.gather(*[store.write(keep_step, entry(taken, f"step {n}")) for n in range(20)])

    with contextlib.ExitStack() as stack:
        asyncio.run(leave(stack))
    assert asyncio.run(program()) == ["1"] * 20
    assert count(store, "steps", "name LIKE 'step %'") == 20


@pytest.mark.rule("STEP-07")
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_steps_that_waited_go_together_with_those_that_follow_the_answer(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups of handlers that began one after the other would otherwise be two commits for ever."""
    enqueue_all(store, [NewJob("noop") for _ in range(5)])
    claims = claim_some(store, 5)
    sizes: list[int] = []
    submit = store.submit

    def counted(work: Work, *, read_only: bool) -> None:
        if not read_only:
            calls = work.args[0]
            sizes.append(len(calls) if isinstance(calls, list) else 1)
        submit(work, read_only=read_only)

    async def program() -> None:
        loop = asyncio.get_running_loop()

        async def handler(taken: Claim) -> None:
            for number in range(4):
                await store.insert(loop, keep_step, entry(taken, f"step {number}"))

        # The first is handed over alone, while the loop has others to run; they wait for its answer.
        monkeypatch.setattr(store, "submit", counted)
        await asyncio.gather(*[handler(taken) for taken in claims])

    asyncio.run(program())
    assert count(store, "steps") == 20
    assert sizes == [1, 5, 5, 5, 4]
