"""The simulated machine: processes with a whole Supervisor each, an operator, faults, and the history of it all."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import secrets
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from unittest import mock

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.ids import IdSource
from holdbeat.domain.limit import Limits
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.engine import dispatcher, report_flush, schedule_trigger, supervisor, zombie_recovery
from holdbeat.engine.heartbeat import Heartbeat
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.engine.supervisor import Supervisor
from holdbeat.engine.webhook_service import WebhookService
from holdbeat.handlers.outbound import Answer
from holdbeat.settings import Settings
from holdbeat.store.schedules.schedules import create_schedule, disable_schedule
from holdbeat.store.transaction import StoreTerms, Transaction
from holdbeat.store.webhooks.subscriptions import create_webhook
from holdbeat.torture.checker import History, Violation, check
from holdbeat.torture.record import read_tables
from tests.simulate.adaptive_judge import ADAPTIVE, judge_adaptive, plan_of
from tests.simulate.handlers import make_app
from tests.simulate.loop import Owner, VirtualLoop
from tests.simulate.model_judge import judged_claims
from tests.simulate.operator import Operator
from tests.simulate.plan import Item, Plan
from tests.simulate.store import Database, InlineStore

LIMITS = {"default": 2, "single": 1}
SETTINGS = Settings().with_changes(
    slots=2, http_slots=0, concurrency="resources:default=2,single=1", lease_s=90, heartbeat_s=20, grace_s=20,
    recover_s=20, horizon_s=60, shutdown_grace_s=20, direct_wait_s=60, retention_days=0,
)  # fmt: skip
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"name": "often", "interval_s": 600, "type": "work", "params": {"seconds": 2, "number": 1}},
    {"name": "no-overlap", "interval_s": 900, "type": "stumble", "overlap": "skip",
     "params": {"seconds": 20, "number": 2, "failures": 1}},
    {"name": "all", "interval_s": 1800, "type": "alone", "overlap": "queue_one", "catch_up": "all",
     "params": {"seconds": 30, "number": 3}},
)  # fmt: skip
POLL_S = 30.0
"""Services that look from time to time do so this often here: fewer looks at nothing, the same rules."""
SETTLE_S = 300.0
PATIENCE_S = 12 * 3600.0
THAW_S = 0.001
"""After a freeze a handler hears at the same instant of the loop that its lease is gone; stamps differ a little."""


async def _nothing_to_kill(*_: Any, **__: Any) -> int:
    return 0


class SimulatedHeartbeat(Heartbeat):
    """The same beats from a task of the loop instead of a thread."""

    def start(self) -> None:
        self._jumped = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._beats())

    def stop(self) -> None:
        self._stopped.set()
        self._jumped.set()

    def clock_jumped(self) -> None:
        self._jumped.set()

    async def _beats(self) -> None:
        pause_s = self._terms.heartbeat_s
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._jumped.wait()
            self._jumped.clear()
            if not self._stopped.is_set():
                pause_s = self._terms.heartbeat_s if self.step() else 1.0


class Receiver:
    """Takes webhook messages without a network; some are refused once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[str, int] = {}

    async def call(self, method: str, url: str, *, headers: Any, **_: Any) -> Answer:
        delivery = headers["webhook-id"]
        times = self._seen[delivery] = self._seen.get(delivery, 0) + 1
        await asyncio.sleep(self._world.choice.uniform(0.0, 0.2))
        is_refused = times == 1 and len(self._seen) % 6 == 0
        if not is_refused:
            self._world.received.append({"delivery": delivery})
        await asyncio.sleep(self._world.choice.uniform(0.0, 0.2))
        return Answer(503 if is_refused else 204, {}, None, False, 0.1)

    async def aclose(self) -> None:
        """Nothing is open."""


class Process(Owner):
    """One simulated `holdbeat serve`."""

    def __init__(self, world: World, place: int, life: int) -> None:
        super().__init__(f"process-{place}.{life}")
        self.world = world
        self.place = place
        self.store = InlineStore(world.database, self)
        self.frozen_at: float | None = None
        self.is_leaving = False

    def start(self) -> None:
        self.world.loop.add(self)
        self.world.loop.call_soon(self._begin, context=self.context)

    def _begin(self) -> None:
        world = self.world
        webhooks = WebhookService(self.store, world.receiver)  # type: ignore[arg-type]
        webhooks._random = random.Random(f"{world.plan.seed}-{self.name}")
        trigger = ScheduleTrigger(self.store, horizon_s=SETTINGS.horizon_s)
        self.supervisor = Supervisor(
            self.store, SETTINGS, world.app.job_types, kind="serve", more_services=[trigger, webhooks]
        )
        for service in [*self.supervisor.services, self.supervisor.direct]:
            service.interval_s = max(service.interval_s, POLL_S)
        self._task = world.loop.create_task(self._live())

    async def _live(self) -> None:
        while True:
            try:
                await self.supervisor.start()
                return
            except HoldbeatError as error:
                self.world.note("start failed", process=self.name, error=type(error).__name__)
                # A process that cannot start ends, and is started again.
                self.world.kill(self, 5.0)
                await asyncio.sleep(1)

    async def leave(self, down_s: float) -> None:
        # As in `holdbeat serve`: a signal that comes while it starts is obeyed when it has started.
        await self._task
        await self.supervisor.stop()
        self.world.note("left", process=self.name)
        self.world.kill(self, down_s, is_told=False)


class World:
    """One simulation."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.choice = random.Random(f"{plan.seed}-choice")
        self.loop = VirtualLoop(random.Random(f"{plan.seed}-turns"))
        ids = random.Random(f"{plan.seed}-ids")
        terms = StoreTerms(IdSource(ids.randbytes), SETTINGS.declared_limits)
        self.database = Database(
            self.loop, terms, random.Random(f"{plan.seed}-latency"), kernel_tells=plan.kernel_tells
        )  # fmt: skip
        self.app = make_app(self, SETTINGS)
        self.acts = Operator(self)
        self.receiver = Receiver(self)
        self.operator = Owner("operator")
        self.loop.add(self.operator)
        self.store = InlineStore(self.database, self.operator)
        self.processes: list[Process | None] = [None] * plan.processes
        self.graveyard: list[Process] = []
        """Kept until the end, so that no code of theirs runs when the collector comes."""
        self.lives = 0
        self._stamp = 0.0
        self.is_healed = False
        self.has_jumped = False
        self.log: list[dict[str, Any]] = []
        self.acknowledged: list[dict[str, Any]] = []
        self.cancelled: list[dict[str, Any]] = []
        self.starts: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []
        self.deaths: list[dict[str, Any]] = []
        self.frozen: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.seen: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        """What durable handlers noted, by the kind of the note."""
        self.signals_sent: list[dict[str, Any]] = []
        self.dependencies: list[dict[str, Any]] = []
        self.timetables: list[dict[str, Any]] = []
        self.unlike_model: list[str] = []
        """Claims that the model of the queue would have made otherwise."""
        self._tasks: set[Any] = set()

    def stamp(self) -> float:
        """The time, but never the same twice: what happens at one instant of the loop still has an order."""
        self._stamp = max(self._stamp + 1e-6, self.loop.time())
        return self._stamp

    def note(self, kind: str, **fields: Any) -> None:
        self.log.append({"at": round(self.loop.time(), 6), "kind": kind, **fields})

    # --- the run -----------------------------------------------------------------------------------------------

    def run(self) -> list[Violation]:
        """Everything from the first process to the verdict."""
        with self._deterministic():
            self._start_all()
            self.loop.run_until(3.0)
            self._as_operator(self._prepare())
            self.loop.run_until(4.0)
            for item in self.plan.items:
                self.loop.call_at(max(item.at, 4.5), self._apply, item, context=self.operator.context)
            end = self.plan.hours * 3600
            self.loop.run_until(end)
            self._heal()
            self.loop.run_until(end + SETTLE_S)
            until = self.database.clock.now().timestamp() - SETTLE_S / 2
            for timetable in self.timetables:
                timetable["until"] = until
            self._as_operator(self._finish())
            self.loop.run_until(self.loop.time() + 10.0)
            give_up = end + PATIENCE_S
            while self.loop.time() < give_up and (self._unfinished() or self._tasks):
                self.loop.run_until(self.loop.time() + 60.0)
            self.history = self._history()
            self.loop.is_over = True
        violations = check(self.history)
        violations += judge_adaptive(self.history, self.adaptive, self.adaptive_plan)
        violations += [Violation("order", "queue", text) for text in self.unlike_model]
        return violations + [Violation("error", "loop", text) for text in self.loop.errors]

    def digest(self) -> str:
        """The whole history as one number."""
        text = json.dumps([asdict(self.history), self.log], sort_keys=True, default=sorted)
        return hashlib.sha256(text.encode()).hexdigest()

    @contextlib.contextmanager
    def _deterministic(self) -> Iterator[None]:
        source = random.Random(f"{self.plan.seed}-secrets")
        number = iter(range(1, 1_000_000))

        def worker(kind: str, *, slots: int, http_slots: int, types: Any, resources: Any, version: str) -> Worker:
            return Worker(
                id=f"worker-{next(number)}", kind=WorkerKind(kind), host="simulated", pid=1, slots=slots,
                http_slots=http_slots, types=tuple(types), resources=resources, version=version,
            )  # fmt: skip

        random.seed(self.plan.seed)
        with (
            mock.patch.object(supervisor, "this_worker", worker),
            mock.patch.object(supervisor, "Heartbeat", SimulatedHeartbeat),
            mock.patch.object(dispatcher, "POLL_S", POLL_S),
            mock.patch.object(schedule_trigger, "POLL_S", POLL_S),
            mock.patch.object(report_flush, "POLL_S", POLL_S),
            # Runs leave no processes on this machine; to look for them takes a thread, and real time.
            mock.patch.object(zombie_recovery, "in_own_thread", _nothing_to_kill),
            judged_claims(Limits(SETTINGS.declared_limits), self.unlike_model.append),
            mock.patch.object(secrets, "token_hex", lambda size=32: source.randbytes(size).hex()),
            mock.patch.object(secrets, "token_bytes", lambda size=32: source.randbytes(size)),
            mock.patch.object(secrets, "token_urlsafe", lambda size=32: source.randbytes(size).hex()),
        ):
            yield

    def _as_operator(self, act: Any) -> None:
        def begin() -> None:
            task = self.loop.create_task(act)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.loop.call_soon(begin, context=self.operator.context)

    async def _prepare(self) -> None:
        webhook = await self.store.write(create_webhook, "http://receiver.example/hook")
        self.webhook_id = webhook.id
        for fields in SCHEDULES:
            first = self.database.clock.now().replace(microsecond=0) + timedelta(seconds=60)
            schedule = await self.store.write(create_schedule, {**fields, "start_at": iso(first)})
            self.timetables.append({"schedule": schedule.id, "first": first.timestamp(), "every": fields["interval_s"]})

        schedule = await self.store.write(create_schedule, ADAPTIVE)
        self.adaptive = {
            "id": schedule.id, "least": ADAPTIVE["min_interval_s"], "most": ADAPTIVE["max_interval_s"],
        }  # fmt: skip

    async def _finish(self) -> None:
        self.adaptive_plan = await self.store.read(plan_of, self.adaptive["id"])
        await self.store.write(disable_schedule, self.adaptive["id"])
        for timetable in self.timetables:
            await self.store.write(disable_schedule, timetable["schedule"])

    def _unfinished(self) -> int:
        rows = self.database.connection.execute(
            "SELECT (SELECT count(*) FROM jobs WHERE status IN ('QUEUED', 'RUNNING')) + (SELECT count(*) FROM leases)"
            " + (SELECT count(*) FROM direct_reservations WHERE status = 'ACTIVE')"
            " + (SELECT count(*) FROM deliveries WHERE status = 'PENDING')"
        ).fetchall()
        return int(str(rows[0][0]))

    def _history(self) -> History:
        def read(tx: Transaction) -> dict[str, Any]:
            return {**read_tables(tx)}

        tables: dict[str, Any] = self.store.read_sync(read)
        return History(
            acknowledged=self.acknowledged, cancelled=self.cancelled, starts=self.starts, ends=self.ends,
            deaths=self.deaths, frozen=self.frozen, requests=self.requests, received=self.received, limits=LIMITS,
            timetables=self.timetables, wall_is_steady=not self.has_jumped, thaw_s=THAW_S,
            subscribed=self.webhook_id, signals_sent=self.signals_sent, dependencies=self.dependencies,
            steps_seen=self.seen["step"], sleeps_seen=self.seen["sleep"], waits_seen=self.seen["wait"],
            children_seen=self.seen["child"], **tables,
        )  # fmt: skip

    # --- processes -----------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        for place in range(self.plan.processes):
            self._start(place)

    def _start(self, place: int) -> None:
        if self.processes[place] is None:
            self.lives += 1
            self.processes[place] = process = Process(self, place, self.lives)
            process.start()

    def kill(self, process: Process, down_s: float, *, is_told: bool = True) -> None:
        if process.is_dead:
            return
        self.thaw(process)
        if is_told:
            self.note("kill", process=process.name)
        self.deaths.append({"process": process.name, "monotonic": self.stamp()})
        self.loop.kill(process)
        process.store.close()
        self.graveyard.append(process)
        self.processes[process.place] = None
        down_s = 0.0 if self.is_healed else down_s
        self.loop.call_later(down_s, self._start, process.place, context=self.operator.context)

    def thaw(self, process: Process) -> None:
        if process.frozen_at is not None:
            frozen = {"process": process.name, "since": process.frozen_at, "until": self.stamp()}
            self.frozen.append(frozen)
            process.frozen_at, process.is_frozen = None, False

    def _heal(self) -> None:
        self.is_healed = True
        for store in self.database.stores:
            store.faults, store.deaf_until, store.slow_until = [], 0.0, 0.0
        for place, process in enumerate(self.processes):
            if process is None:
                self._start(place)
            else:
                self.thaw(process)

    # --- acts and faults -------------------------------------------------------------------------------------------

    def _apply(self, item: Item) -> None:
        if item.is_fault:
            self._strike(item)
        else:
            self._as_operator(self.acts.act(item))

    def _strike(self, item: Item) -> None:
        if item.kind == "jump":
            self.has_jumped = True
            self.database.clock.offset_s += item.args[0]
            self.note("jump", seconds=item.args[0])
            for alive in filter(None, self.processes):
                if hasattr(alive, "supervisor"):
                    beat: Any = alive.supervisor.heartbeat
                    if hasattr(beat, "_jumped"):
                        self.loop.call_later(0.5, beat.clock_jumped, context=alive.context)
            return
        place, amount = item.args
        stores = [None if process is None else process.store for process in self.processes] + [self.store]
        store, process = stores[place], self.processes[place] if place < len(self.processes) else None
        if store is None:
            return
        self.note(item.kind, place=place, amount=amount)
        now = self.loop.time()
        match item.kind:
            case "fail_before" | "fail_after":
                store.faults += [item.kind.removeprefix("fail_")] * amount
            case "deaf":
                store.deaf_until = now + amount
            case "slow":
                store.slow_until, store.slow_s = now + amount, min(5.0, amount / 10)
        if process is None:
            return
        match item.kind:
            case "kill":
                self.kill(process, amount)
            case "freeze" if process.frozen_at is None:
                process.frozen_at, process.is_frozen = self.stamp(), True
                self.loop.call_later(amount, self.thaw, process, context=self.operator.context)
            case "shut_down" if hasattr(process, "supervisor") and not process.is_leaving:
                process.is_leaving = True
                self.loop.call_soon(self._leave, process, amount, context=process.context)

    def _leave(self, process: Process, down_s: float) -> None:
        process.leaving = self.loop.create_task(process.leave(down_s))  # type: ignore[attr-defined]
