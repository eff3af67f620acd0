"""Handlers are stopped by the deadline of their lease, whatever they and the store do (LEASE-04)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdbeat import App, Context
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.job import JobStatus
from holdbeat.store.postgres import store as postgres_store
from holdbeat.store.sqlite.store import SqliteStore
from holdbeat.store.transaction import Transaction
from tests.conformance.fault_proxy import FaultProxy
from tests.engine import engine_jobs
from tests.engine.acting import job, until
from tests.engine.handler_stage import is_alive

pytestmark = pytest.mark.asyncio

LEASE_S, GRACE_S = 2.0, 2.0

HOLD = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(5000)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


class HangingStore:
    """A store whose calls hang from one moment on: its server is silent, or another process holds its write lock."""

    def __init__(self, url: str) -> None:
        self._proxy = None if url.startswith("sqlite") else FaultProxy(url)
        self.url = url if self._proxy is None else self._proxy.url
        self._holder: subprocess.Popen[str] | None = None

    def hang(self) -> None:
        if self._proxy is not None:
            self._proxy.swallow()
            return
        argv = [sys.executable, "-c", HOLD, self.url.removeprefix("sqlite:///")]
        self._holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "held\n"

    def answer(self) -> None:
        if self._proxy is not None:
            self._proxy.deliver()
        elif self._holder is not None:
            self._holder.communicate()


@contextlib.contextmanager
def hanging_store(url: str) -> Iterator[HangingStore]:
    store = HangingStore(url)
    try:
        yield store
    finally:
        store.answer()
        if store._proxy is not None:
            store._proxy.close()


def last_entry(diary: Path) -> tuple[int, float]:
    """The pid of the process that `reports_on` is, and the time of its last step."""
    pid, at = diary.read_text().splitlines()[-1].split()
    return int(pid), float(at)


def is_process_alive(diary: Path) -> bool:
    return is_alive(last_entry(diary)[0])


@pytest.mark.rule("LEASE-04")
async def test_every_kind_of_handler_is_stopped_by_its_deadline_while_the_store_hangs(
    store_url: str, tmp_path: Path
) -> None:
    """Each reports in a loop. The times of their last steps are what counts, not what the worker believes."""
    with hanging_store(store_url) as store:
        app = App(
            store.url, slots=3, concurrency="unlimited", lease_s=LEASE_S, heartbeat_s=0.4, grace_s=GRACE_S,
            artifact_dir=str(tmp_path / "artifacts"),
        )  # fmt: skip
        last: dict[str, float] = {}
        ended: set[str] = set()
        begun = threading.Barrier(3)
        diary = tmp_path / "diary"

        @app.job(retries=0)
        async def in_the_loop(ctx: Context) -> None:
            await asyncio.to_thread(begun.wait, 30)
            try:
                while True:
                    last["async"] = time.monotonic()
                    ctx.log("a line")
                    ctx.progress(0.5)
                    ctx.artifact("file", "content")
                    await asyncio.sleep(0.05)
            finally:
                ended.add("async")

        @app.job(retries=0)
        def in_a_thread(ctx: Context) -> None:
            begun.wait(30)
            last["thread"] = time.monotonic()
            try:
                while not ctx.cancelled:
                    ctx.log("a line")
                    ctx.progress(0.5)
                    ctx.artifact("file", "content")
                    time.sleep(0.05)
            finally:
                last["thread"] = time.monotonic()
                ended.add("thread")

        app.job_with(engine_jobs.reports_on, isolation="process", retries=0, cancel_grace=None)
        jobs = [app.call("in_the_loop"), app.call("in_a_thread"), app.call("reports_on", diary=str(diary))]
        handles = await app.enqueue_many(jobs)
        async with app.running(shutdown_grace_s=0):
            await until(lambda: diary.exists() and diary.read_text().endswith("\n"))
            await asyncio.to_thread(begun.wait, 30)
            await until(lambda: len(last) == 2)
            await asyncio.to_thread(store.hang)
            hung_at = time.monotonic()
            ends_by = hung_at + LEASE_S + GRACE_S
            await until(lambda: len(ended) == 2 and not is_process_alive(diary))
            last["process"] = last_entry(diary)[1]
            late = {kind: at - hung_at for kind, at in last.items() if at > ends_by}
            assert not late, f"seconds after the store hung: {late}"
            assert all(at > hung_at for at in last.values()), "they were at work when the store began to hang"
            store.answer()
            await until(lambda: all(job(app.store, one.id).status is JobStatus.FAILED for one in handles), 60)
        app.close()


@pytest.mark.rule("LEASE-04", "CAN-03")
async def test_a_blocked_event_loop_does_not_keep_processes_alive(store_url: str, tmp_path: Path) -> None:
    """An async handler blocks the loop; a process of the same worker is killed in time all the same."""
    with hanging_store(store_url) as store:
        app = App(store.url, slots=2, concurrency="unlimited", lease_s=LEASE_S, heartbeat_s=0.4, grace_s=GRACE_S)
        diary = tmp_path / "diary"
        ends_by = 0.0

        @app.job(retries=0)
        async def block() -> None:
            nonlocal ends_by
            await until(lambda: diary.exists() and diary.read_text().endswith("\n"))
            store.hang()
            ends_by = time.monotonic() + LEASE_S + GRACE_S
            while is_process_alive(diary) and time.monotonic() < ends_by:
                time.sleep(0.01)  # noqa: ASYNC251

        app.job_with(engine_jobs.reports_on, isolation="process", retries=0)
        await app.enqueue_many([app.call("block"), app.call("reports_on", diary=str(diary))])
        async with app.running(shutdown_grace_s=0):
            await until(lambda: ends_by and not is_process_alive(diary))
            assert last_entry(diary)[1] < ends_by
            store.answer()
        app.close()


@pytest.mark.rule("EXE-03")
async def test_an_artifact_of_an_async_handler_can_be_awaited_and_is_stored_before_the_run_ends(
    store_url: str, tmp_path: Path
) -> None:
    app = App(store_url, artifact_dir=str(tmp_path / "artifacts"))

    @app.job(retries=0)
    async def draws(ctx: Context) -> bool:
        await ctx.artifact("one", "first")
        for content in ("second", "third"):
            ctx.artifact("two", content)
        with pytest.raises(Invalid):
            await ctx.artifact("../outside", b"")
        return True

    @app.job(retries=0)
    async def draws_too_much(ctx: Context) -> None:
        ctx.artifact("three", "x")
        ctx._reports.artifact = refuse  # type: ignore[method-assign]
        ctx.artifact("four", "y")

    def refuse(name: str, data: object) -> None:
        raise Invalid("There is no room.", code="artifact_too_large")

    async with app.running():
        done = await (await app.enqueue(draws)).wait(30)
        failed = await (await app.enqueue(draws_too_much)).wait(30)
    assert done.status is JobStatus.COMPLETED, done.run
    assert {kept.read_text() for kept in (tmp_path / "artifacts").glob("*/*") if kept.name[0] in "ot"} >= {
        "first", "third",
    }  # fmt: skip
    assert failed.status is JobStatus.FAILED
    assert failed.run is not None and "There is no room." in str(failed.run.error)
    app.close()


@pytest.mark.rule("CON-003")
@pytest.mark.parametrize("caller", ["a loop", "a thread"])
async def test_a_store_that_does_not_answer_is_closed_all_the_same(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caller: str
) -> None:
    """Whoever waits for the store when it is closed must not keep the process from ending."""
    monkeypatch.setattr(postgres_store, "CLOSE_WITHIN_S", 0.5)
    with hanging_store(store_url) as hanging:
        store = App(hanging.url).store
        if isinstance(store, SqliteStore):
            store._file.writer.set_busy_timeout(500)

        def verb(tx: Transaction) -> None:
            tx.execute("DELETE FROM workers")

        def write() -> None:
            with contextlib.suppress(HoldbeatError):
                store.write_sync(verb)

        await asyncio.to_thread(write)
        await store.write(verb)
        hanging.hang()
        if caller == "a loop":
            written = asyncio.create_task(store.write(verb))
            written.add_done_callback(lambda task: task.cancelled() or task.exception())
        else:
            threading.Thread(target=write, daemon=True).start()
        await asyncio.sleep(0.1)
        closing = threading.Thread(target=store.close, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, 10)
        assert not closing.is_alive()
