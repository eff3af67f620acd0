"""Wake-ups: a commit's topics reach the event loops that asked for them, and no others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from holdbeat.domain.job import Job
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def wake(tx: Transaction, *topics: Topic) -> None:
    tx.wake(*topics)


@pytest.mark.asyncio
async def test_on_topics_calls_back_in_the_loop_for_its_topics_and_a_reconnect_until_it_is_stopped(
    store: PersistenceAdapter,
) -> None:
    called: list[asyncio.AbstractEventLoop] = []
    first = asyncio.Event()
    loop = asyncio.get_running_loop()

    def callback() -> None:
        called.append(asyncio.get_running_loop())
        first.set()

    stop = store.on_topics(loop, {Topic.READY, Topic.SLOTS}, callback)
    if store.url.startswith("postgresql"):
        # Its connection for notifications reports itself when it is there, unless it was there before we asked.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(first.wait(), 3)
        called.clear()
    # It is registered last, so it is called last for each commit: what it has seen, `callback` has seen before.
    everything: asyncio.Queue[None] = asyncio.Queue()
    stop_all = store.on_topics(loop, frozenset(Topic), lambda: everything.put_nowait(None))

    async def commit(*topics: Topic) -> None:
        await store.write(wake, *topics)
        await asyncio.wait_for(everything.get(), 20)

    await commit(Topic.CANCEL, Topic.LOGS)
    assert called == []
    await commit(Topic.READY, Topic.SLOTS)
    assert called == [loop]
    store.tell(frozenset({Topic.RECONNECTED}))
    await asyncio.wait_for(everything.get(), 20)
    assert called == [loop, loop]
    stop()
    await commit(Topic.READY)
    assert called == [loop, loop]
    stop_all()


def signal_it(store: PersistenceAdapter, job: Job) -> None:
    store.write_sync(send_signal, job.id, "go")


def submit_it_again(store: PersistenceAdapter, job: Job) -> None:
    (found,) = store.write_sync(submit, [Submission.read({"type": "noop", "unique_key": "k"})]).jobs
    assert found.id == job.id


@pytest.mark.rule("INV-004", "WAIT-03", "QUE-08")
@pytest.mark.asyncio
@pytest.mark.parametrize("act", [signal_it, submit_it_again])
async def test_a_ready_job_that_a_commit_had_locked_is_told_of_again(
    store: PersistenceAdapter, act: Callable[[PersistenceAdapter, Job], None]
) -> None:
    """A claim passes over locked rows, and without this it would come again only with its next poll."""
    store.write_sync(announce, [AnnouncedType("noop")])
    (job,) = store.write_sync(submit, [Submission.read({"type": "noop", "unique_key": "k"})]).jobs
    wakeups: asyncio.Queue[None] = asyncio.Queue()
    store.on_topics(asyncio.get_running_loop(), {Topic.READY}, lambda: wakeups.put_nowait(None))
    if store.url.startswith("postgresql"):
        with contextlib.suppress(TimeoutError):
            # Its connection for notifications reports itself, unless it was there before we asked.
            await asyncio.wait_for(wakeups.get(), 3)
    while not wakeups.empty():
        wakeups.get_nowait()
    await asyncio.to_thread(act, store, job)
    await asyncio.wait_for(wakeups.get(), 20)


def test_every_topic_is_explained_where_it_is_declared() -> None:
    import ast
    import inspect

    from holdbeat.store import topics

    body = next(node.body for node in ast.parse(inspect.getsource(topics)).body if isinstance(node, ast.ClassDef))[1:]
    for member, text in zip(body[::2], body[1::2], strict=True):
        assert isinstance(member, ast.Assign)
        assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    assert len(body) == 2 * len(Topic)
