"""A scripted life of one process, and the life after its death. Both are moved by hand, on a clock of their own.

Every act is announced before it begins and acknowledged when it has returned, in a side file that is on disk before
the next act begins; handlers note each start and end there too. What the store says after a crash is held against it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdbeat import App, Context, PermanentFailure, RateLimited, Skip
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import Job, RetryPolicy
from holdbeat.domain.webhook import judge_attempt
from holdbeat.engine.retention import Retention
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.job_handle import JobHandle
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.queue.pauses import resume
from holdbeat.store.running.workers import stop_worker
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.store.webhooks.deliveries import DeliveryResult, finish_deliveries, take_deliveries
from holdbeat.store.webhooks.subscriptions import create_webhook
from holdbeat.testing import Stage, stage
from tests.crash.flow_life import live_under_limits

BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
AFTERLIFE = BIRTH + timedelta(hours=12)
LAST_JUDGEMENT = BIRTH + timedelta(days=40)
EPILOGUE = BIRTH + timedelta(days=41)
"""Where the clocks stand: of the life, of the one after it if that dies too, of the one that ends in peace, and of
the one who looks at what is left."""
ONCE = RetryPolicy(max_attempts=1, base_delay_s=10)
SETTINGS: dict[str, Any] = {"slots": 2, "http_slots": 0, "concurrency": "resources:default=2", "retention_days": 30}


class Diary:
    """The side file: one JSON line per entry, on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def close(self) -> None:
        os.close(self._descriptor)

    def write(self, kind: str, **entry: Any) -> None:
        os.write(self._descriptor, (json.dumps({"kind": kind, "pid": os.getpid(), **entry}) + "\n").encode())
        os.fdatasync(self._descriptor)

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]


def make_app(diary: Diary, gate: asyncio.Event) -> App:
    app = App()

    def begun(ctx: Context, name: str) -> None:
        diary.write("begun", run=ctx.run_id, fence=ctx.fence, job=ctx.job.id if ctx.job else None, name=name)

    @app.job(retries=ONCE)
    async def work(ctx: Context, name: str) -> str:
        begun(ctx, name)
        ctx.progress(0.5, name)
        ctx.log("at work on", name)
        ctx.artifact("note.txt", name.encode())
        diary.write("ended", run=ctx.run_id)
        return name

    @app.job(retries=ONCE)
    async def stumble(ctx: Context, name: str) -> str:
        begun(ctx, name)
        assert ctx.job is not None
        if ctx.job.attempt == 0:
            raise ValueError("the first attempt always fails")
        diary.write("ended", run=ctx.run_id)
        return name

    @app.job(retries=ONCE)
    async def doomed(ctx: Context, name: str) -> None:
        begun(ctx, name)
        raise (Skip("nothing to do") if name == "skip" else PermanentFailure("no use"))

    @app.job(retries=0)
    async def patient(ctx: Context, name: str) -> None:
        begun(ctx, name)
        await gate.wait()

    seen: set[str] = set()

    def is_first(job: str) -> bool:
        """Whether this process runs it for the first time."""
        was_there = job in seen
        seen.add(job)
        return not was_there

    @app.job(retries=ONCE)
    async def metered(ctx: Context, name: str) -> str:
        begun(ctx, name)
        if is_first(name):
            raise RateLimited("the service asks to wait", retry_after=10)
        diary.write("ended", run=ctx.run_id)
        return name

    @app.job(retries=ONCE, preemptible=True)
    async def yielding(ctx: Context, name: str) -> str:
        begun(ctx, name)
        if is_first(name):
            await gate.wait()
        diary.write("ended", run=ctx.run_id)
        return name

    @app.job(retries=RetryPolicy(max_attempts=9, base_delay_s=10))
    async def durable(ctx: Context, name: str) -> list[str]:
        begun(ctx, name)
        assert ctx.job is not None
        chain = ctx.job.chain_id

        async def kept(step: str) -> str:
            def call() -> str:
                diary.write("called", chain=chain, step=step)
                return step

            value = await ctx.step(step, call)
            diary.write("kept", chain=chain, step=step)
            return value

        first = await kept("before")
        await ctx.sleep(60)
        await ctx.wait_for("go")
        child = await ctx.run("work", name=f"{name}-child")
        last = await kept("after")
        diary.write("ended", run=ctx.run_id)
        return [first, child, last]

    return app


class Life:
    """The acts, each announced, done and acknowledged."""

    def __init__(self, on_stage: Stage, diary: Diary, gate: asyncio.Event) -> None:
        self.stage = on_stage
        self.app = on_stage.app
        self.store = on_stage.app.store
        self.diary = diary
        self.gate = gate

    async def submit(self, type_: str, key: str, **options: Any) -> JobHandle:
        self.diary.write("submitting", key=key, type=type_, options=options)
        job = await self.app.with_options(key=key, **options).enqueue(type_, name=key)
        self.diary.write("submitted", key=key, job=job.id)
        return job

    async def submit_group(self, name: str, mode: str, on_failure: str, types: list[str]) -> None:
        self.diary.write("grouping", name=name)
        calls = [self.app.call(type_, name=f"{name}-{number}") for number, type_ in enumerate(types)]
        group, members = await self.app.group(calls, name=name, mode=mode, on_failure=on_failure)
        self.diary.write("grouped", group=group.id, jobs=[member.id for member in members])

    async def submit_graph(self) -> None:
        """One that two depend on, one of which is skipped: what depends on that is cancelled, or runs all the same."""
        self.diary.write("grouping", name="graph")
        top = self.app.call("work", name="top")
        left = self.app.with_options(after=[top]).call("stumble", name="left")
        right = self.app.with_options(after=[top]).call("doomed", name="skip")
        report = self.app.with_options(after=[left, right], on_upstream="run").call("work", name="report")
        unwanted = self.app.with_options(after=[right]).call("work", name="unwanted")
        handles = await self.app.enqueue_many([top, left, right, report, unwanted])
        self.diary.write("grouped", group=None, jobs=[handle.id for handle in handles])

    async def work_durably(self) -> None:
        """A chain with steps, a sleep, a wait and a child."""
        chain = await self.submit("durable", "durable")
        await self.stage.drain()
        await self.stage.advance(60)
        await self.act("signal", send_signal, chain.id, "go")
        await self.stage.drain()

    async def act(self, name: str, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.diary.write("doing", name=name)
        answer = await self.store.write(verb, *args, **kwargs)
        self.diary.write("done", name=name, id=getattr(answer, "id", None))
        return answer

    async def cancel_while_it_runs(self) -> None:
        job = await self.submit("patient", "cancelled-while-running")
        await self.stage.supervisor.dispatcher.step()
        await self.act("cancel-running", cancel_job, job.id, "changed my mind")
        self.diary.write("cancelled", job=job.id)
        await self.look_for_stops()
        await self.stage.step()

    async def look_for_stops(self) -> None:
        """Tells handlers of what the store says about them: a cancel, a preemption."""
        services = self.stage.supervisor.services
        await next(service for service in services if service.name == "cancel-watch").step()

    async def ask_directly(self) -> None:
        asking = asyncio.create_task(self.stage.supervisor.direct.request("work", {"name": "direct"}))
        while not asking.done():
            if not await self.stage.step():
                await asyncio.sleep(0.002)
        answer = await asking
        self.diary.write("answered", reservation=answer.reservation.id)

    async def deliver(self) -> None:
        taken = await self.act("take-deliveries", take_deliveries, "postman", 100, 60.0)
        now = self.stage.clock.now()
        results = [
            DeliveryResult(
                entry.delivery.id, "postman",
                judge_attempt(attempts=1, now=now, jitter=1.0, status_code=200 if number % 2 else 500), 200,
            )
            for number, entry in enumerate(taken)
        ]  # fmt: skip
        await self.act("finish-deliveries", finish_deliveries, results)

    async def live(self) -> None:
        """Everything that Holdbeat writes, in one short life."""
        await self.act("subscribe", create_webhook, "http://127.0.0.1:9/hook")
        await self.submit("work", "first")
        await self.submit("stumble", "second", priority=3)
        await self.stage.drain()
        await self.submit_group("steps", "sequential", "stop", ["work", "stumble", "work"])
        await self.submit_group("crowd", "parallel", "skip", ["doomed", "work", "stumble"])
        await self.stage.drain()
        await self.stage.advance(10)
        await self.stage.advance(10)
        await self.submit_graph()
        await self.work_durably()
        await live_under_limits(self)
        unwanted = await self.submit("work", "cancelled-in-queue", delay=3600)
        await self.act("cancel-queued", cancel_job, unwanted.id, "not needed")
        self.diary.write("cancelled", job=unwanted.id)
        await self.cancel_while_it_runs()
        await self.ask_directly()
        hopeless = await self.submit("doomed", "permanent")
        await self.stage.drain()
        again: Job = await self.act("manual-retry", retry_job, hopeless.id)
        self.diary.write("submitted", key=None, job=again.id)
        fields = {"name": "minutely", "interval_s": 60, "type": "work", "params": {"name": "tick"}}
        await self.act("schedule", create_schedule, fields)
        adaptive = {"name": "clever", "interval_s": 45, "type": "stumble", "params": {"name": "tock"}, "adaptive": True}
        await self.act("schedule-adaptive", create_schedule, {**adaptive, "min_interval_s": 30})
        for _ in range(4):
            await self.stage.advance(31)
        await self.deliver()
        self.diary.write("ended-all", jobs=_ended(self.store))
        await self.store.write(_forget_schedules)
        self.stage.clock.advance(31 * 86_400)
        self.diary.write("pruning")
        await Retention(self.store, 30).step()
        await self.submit("work", "last")
        await self.stage.drain()
        await self.act("goodbye", stop_worker, self.stage.supervisor.worker.id)


def _ended(store: Any) -> list[str]:
    records = store.read_sync(lambda tx: tx.rows("SELECT id FROM jobs WHERE finished_at IS NOT NULL"))
    return [row[0] for row in records]


def _forget_schedules(tx: Any) -> None:
    """Without this a month of minutes would have to be caught up."""
    tx.execute("UPDATE schedules SET enabled = :no, wake_at = NULL, next_run_at = NULL", no=False)


@contextlib.asynccontextmanager
async def on_stage(url: str, folder: Path, birth: datetime) -> AsyncIterator[Life]:
    diary = Diary(folder / "diary")
    gate = asyncio.Event()
    clock = ManualClock(birth)
    try:
        async with stage(make_app(diary, gate), folder, clock, store=url, **SETTINGS) as ready:
            yield Life(ready, diary, gate)
    finally:
        diary.close()


async def live(url: str, folder: Path) -> None:
    """The life that is cut short."""
    async with on_stage(url, folder, BIRTH) as life:
        await life.live()


async def come_after(url: str, folder: Path, birth: datetime = AFTERLIFE) -> None:
    """What a new process does on a store whose last one died: recovers, tries again what got no answer, works on."""
    async with on_stage(url, folder, birth) as life:
        life.gate.set()
        await recoverer(life).step()
        entries = Diary.read(folder / "diary")
        answered = {entry["key"] for entry in entries if entry["kind"] == "submitted"}
        for entry in entries:
            if entry["kind"] == "submitting" and entry["key"] not in answered:
                answered.add(entry["key"])
                await life.submit(entry["type"], entry["key"], **entry["options"])
        for entry in Diary.read(folder / "diary"):
            if entry["kind"] == "submitted" and entry["key"] == "durable":
                # Once more does no harm: a signal that no wait takes stays where it is.
                with contextlib.suppress(Conflict, NotFound):
                    await life.act("signal", send_signal, entry["job"], "go")
        await life.store.write(_forget_schedules)
        await life.act("resume", resume)
        await life.stage.drain()
        for _ in range(4):
            await life.stage.advance(3600)
        await life.act("goodbye", stop_worker, life.stage.supervisor.worker.id)


def recoverer(life: Life) -> ZombieRecovery:
    return ZombieRecovery(life.store, life.app.settings.lease_terms, 5)
