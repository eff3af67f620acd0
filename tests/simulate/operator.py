"""What the operator of a simulation does: one coroutine for each kind of act in a plan."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdbeat.domain.errors import HoldbeatError, StoreDown
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.jobs.submit import submit, submit_group
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.schedules.schedules import clear_hints, set_hints
from holdbeat.torture.durable import SIGNAL, Batch, draw_durable
from tests.simulate.plan import Item

if TYPE_CHECKING:
    from tests.simulate.world import World


class Operator:
    """Acts on the store of a world, and writes down in it what was answered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chains: list[str] = []
        """Durable jobs."""
        self._never_retried: set[str] = set()
        """Jobs whose retry by hand would change what the checker expects of others."""

    async def act(self, item: Item) -> None:
        choice = random.Random(item.args[0])
        acts: dict[str, Callable[[random.Random], Any]] = {
            "submit": self._submit, "submit_key": self._submit_key, "group": self._group, "cancel": self._cancel,
            "retry": self._retry, "direct": self._direct, "hint": self._hint, "durable": self._durable,
            "signal": self._signal, "dependent": self._dependent, "unique": self._unique, "expiring": self._expiring,
        }  # fmt: skip
        try:
            await acts[item.kind](choice)
            self._world.note(item.kind, done=True)
        except HoldbeatError as error:
            self._world.note(item.kind, refused=error.code)

    def _work(self, choice: random.Random) -> dict[str, Any]:
        seconds = round(choice.choice([0.0, 0.5, 5.0, 30.0, 90.0]) * choice.uniform(0.5, 1.0), 3)
        params: dict[str, Any] = {"seconds": seconds, "number": choice.randrange(1000)}
        type_ = choice.choices(["work", "alone", "stumble"], [5, 2, 4])[0]
        if type_ == "stumble":
            params["failures"] = choice.choice([1, 1, 2, 9, -1])
        return {"type": type_, "params": params, "priority": choice.randint(0, 3)}

    async def _submit(self, choice: random.Random) -> None:
        asked = self._work(choice)
        if choice.random() < 0.3:
            asked["delay_s"] = round(choice.uniform(1, 300), 3)
        enqueued = await self._world.store.write(submit, [Submission.read(asked)])
        self._world.acknowledged.append({"job": enqueued.jobs[0].id})

    async def _submit_key(self, choice: random.Random) -> None:
        asked = self._work(choice)
        key = asked["idempotency_key"] = f"key-{choice.randrange(2**30)}"
        for _ in range(2):
            for _ in range(20):
                try:
                    enqueued = await self._world.store.write(submit, [Submission.read(asked)])
                except HoldbeatError:
                    await asyncio.sleep(1)
                    continue
                self._world.acknowledged.append({"job": enqueued.jobs[0].id, "key": key})
                break

    async def _group(self, choice: random.Random) -> None:
        members = [Submission.read(self._work(choice)) for _ in range(choice.randint(2, 4))]
        mode, on_failure = choice.choice(list(GroupMode)), choice.choice(list(OnFailure))
        _, jobs = await self._world.store.write(submit_group, None, mode, on_failure, members)
        self._world.acknowledged += [{"job": job.id} for job in jobs]

    async def _cancel(self, choice: random.Random) -> None:
        if self._world.acknowledged:
            job_id = choice.choice(self._world.acknowledged[-8:])["job"]
            tip = await self._world.store.write(cancel_job, job_id, "by the operator")
            self._world.cancelled.append(
                {"job": tip.id, "monotonic": self._world.stamp(), "was_queued": tip.started_at is None}
            )

    async def _retry(self, choice: random.Random) -> None:
        if self._world.acknowledged:
            job = await self._world.store.read(load_job, choice.choice(self._world.acknowledged[-20:])["job"])
            if job.permanently_failed and job.id not in self._never_retried:
                retry = await self._world.store.write(retry_job, job.id)
                self._world.acknowledged.append({"job": retry.id})

    async def _submitted(self, asked: dict[str, Any]) -> str:
        enqueued = await self._world.store.write(submit, [Submission.read(asked)])
        job_id = enqueued.jobs[0].id
        self._world.acknowledged.append({"job": job_id})
        return job_id

    async def _durable(self, choice: random.Random) -> None:
        child = self._work(choice)
        params = {
            "work": draw_durable(choice, 900.0, {"type": child["type"], "params": child["params"]}),
            "seconds": round(choice.choice([0.0, 5.0, 60.0]) * choice.uniform(0.5, 1.0), 3),
            "failures": choice.choice([0, 0, 1, 2]),
        }
        self._chains.append(await self._submitted({"type": "durable", "params": params}))

    async def _signal(self, choice: random.Random) -> None:
        """To a chain that may wait for it, may do so later, or has ended."""
        if not self._chains:
            return
        chain = choice.choice(self._chains[-4:])
        payload = f"signal {choice.randrange(2**30)}"
        is_answered = True
        try:
            await self._world.store.write(send_signal, chain, SIGNAL, payload)
        except StoreDown:
            is_answered = False
        self._world.signals_sent.append(
            {"chain": chain, "payload": payload, "is_answered": is_answered, "monotonic": self._world.stamp()}
        )

    async def _dependent(self, choice: random.Random) -> None:
        batch = Batch.of(choice, lambda: self._work(choice))
        enqueued = await self._world.store.write(submit, batch.submissions)
        job_ids = [job.id for job in enqueued.jobs]
        self._world.acknowledged += [{"job": job_id} for job_id in job_ids]
        self._world.dependencies += batch.dependencies(job_ids)
        self._never_retried.update(job_ids)

    async def _unique(self, choice: random.Random) -> None:
        key = f"unique-{choice.randrange(2)}"
        unique = {"unique_key": key, "unique_while": "unfinished", "on_duplicate": "return"}
        self._never_retried.add(await self._submitted({**self._work(choice), **unique}))

    async def _expiring(self, choice: random.Random) -> None:
        await self._submitted({**self._work(choice), "expires_in_s": round(choice.uniform(1, 120), 3)})

    async def _hint(self, choice: random.Random) -> None:
        schedule_id = self._world.adaptive["id"]
        match choice.randrange(3):
            case 0:
                pace_s = round(choice.choice([10.0, 400.0, 9000.0]) * choice.uniform(0.5, 1.0), 3)
                await self._world.store.write(set_hints, schedule_id, interval_s=pace_s, ttl_s=3600.0)
            case 1:
                at = self._world.database.clock.now() + timedelta(seconds=choice.uniform(0, 1800))
                await self._world.store.write(set_hints, schedule_id, next_run_at=at)
            case _:
                await self._world.store.write(clear_hints, schedule_id)

    async def _direct(self, choice: random.Random) -> None:
        process = choice.choice(self._world.processes)
        token = f"token-{choice.randrange(2**30)}"
        seconds = round(choice.uniform(0, 20), 3)
        type_ = choice.choice(["work", "alone"])
        if process is None or not hasattr(process, "supervisor"):
            return
        request: dict[str, Any] = {"token": token, "outcome": None}
        self._world.requests.append(request)

        async def ask() -> None:
            try:
                params = {"seconds": seconds, "number": 0, "token": token}
                result = await process.supervisor.direct.request(type_, params, 30.0)
                request["outcome"] = result.reservation.outcome
            except HoldbeatError as error:
                request["outcome"] = f"refused: {error.code}"

        def begin() -> None:
            process.asking = self._world.loop.create_task(ask())  # type: ignore[attr-defined]

        self._world.loop.call_soon(begin, context=process.context)
