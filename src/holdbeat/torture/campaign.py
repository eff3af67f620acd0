"""A torture: load, faults, a wait until all is done, and the checker's verdict."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdbeat.app import App
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import Unavailable
from holdbeat.settings import Settings
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.subscriptions import create_webhook
from holdbeat.torture.checker import CHECKS, History, Violation, check
from holdbeat.torture.handlers import CONCURRENCY, LIMITS, torture_app
from holdbeat.torture.operator import Operator
from holdbeat.torture.processes import CANNOT_START, WorkerPool
from holdbeat.torture.receiver import Receiver
from holdbeat.torture.record import history_of

QUICK_LEASES = {"lease_s": 4, "heartbeat_s": 0.5, "grace_s": 1, "recover_s": 0.5}
"""Short, so that the death of a worker is noticed often in a short time, also where only its lease tells of it."""
THAW_S = 1.0
PAUSE_S = 0.01
PROGRESS_EVERY_S = 5.0
BACKLOG_MAX = 200
"""With so much undone the operator waits: a torture is about faults, not about throughput."""
BACKLOG_EVERY_S = 0.5
CATCH_UP_S = 1.0
"""After a stall the operator makes up for so much and no more."""

_now = SystemClock().monotonic
Fault = Callable[["Campaign"], None]


@dataclass
class Terms:
    store: str
    seconds: float
    folder: Path
    """For the witness and the logs; not where the store is."""
    seed: int = 0
    workers: int = 3
    slots: int = 3
    rate: float = 20.0
    """Acts of the operator each second."""
    fault_every_s: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=lambda: dict(QUICK_LEASES))
    more_faults: Mapping[str, Fault] = field(default_factory=dict)
    wall_is_steady: bool = True
    worker_module: str = "holdbeat.torture.worker"
    environment: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda text: None


@dataclass
class Verdict:
    """The result of a torture: counts, and every promise that was broken."""

    seconds: float
    seed: int
    counts: dict[str, int]
    faults: dict[str, int]
    violations: list[Violation]
    unexpected: list[str]
    """Processes that ended by themselves."""
    is_drained: bool

    @property
    def holds(self) -> bool:
        return not self.violations and not self.unexpected and self.is_drained

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds, "seconds": round(self.seconds, 1), "seed": self.seed, "counts": self.counts,
            "faults": self.faults, "drained": self.is_drained, "unexpected": self.unexpected,
            "violations": [{"kind": violation.kind, "subject": violation.subject, "sentence": violation.sentence}
                           for violation in self.violations],
        }  # fmt: skip

    def as_text(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        faults = ", ".join(f"{count} × {name}" for name, count in sorted(self.faults.items())) or "none"
        lines = [f"{self.seconds:.0f} s, seed {self.seed}: {counts}", f"faults: {faults}"]
        if not self.is_drained:
            lines.append("BROKEN: the work did not come to its end in time")
        lines += [f"BROKEN: {text}" for text in self.unexpected]
        lines += [f"BROKEN: {violation}" for violation in self.violations[:50]]
        if len(self.violations) > 50:
            lines.append(f"… and {len(self.violations) - 50} more")
        if self.holds:
            lines.append(f"All {len(CHECKS)} promises hold.")
        return "\n".join(lines)


class Campaign:
    """One torture on a store of its own."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        (terms.folder / "witness").mkdir(parents=True, exist_ok=True)
        settings = {
            "store": terms.store, "slots": terms.slots, "http_slots": 0, "concurrency": CONCURRENCY,
            "shutdown_grace_s": 5, "suspend_s": 0.2, "log_level": "warning", **terms.settings,
        }  # fmt: skip
        self.settings = Settings().with_changes(**settings)
        self.app: App = torture_app(self.settings)
        self.pool = WorkerPool(
            settings, terms.folder, terms.workers, terms.worker_module, dict(terms.environment)
        )  # fmt: skip
        self.choice = random.Random(terms.seed)
        self.faults: Counter[str] = Counter()
        self.operator = Operator(self.app, terms.seed)
        self._receiver = Receiver()
        self._resume_at: dict[str, float] = {}

    def run(self) -> Verdict:
        """Runs to the end. The store is left as it is; processes are ended."""
        began = _now()
        try:
            webhook = self.app.store.write_sync(create_webhook, self._receiver.url)
            self.pool.fill()
            self._wait_for_workers()
            self.operator.begin()
            self._work_under_faults()
            is_drained = self._wait_until_idle()
            self.pool.close()
            history = self._history(webhook.id)
        finally:
            self.pool.close()
            self._receiver.close()
            self.app.close()
        passed = sum(row["what"] == "passed" for row in history.steps_seen)
        counts = {
            "acknowledged": len(self.operator.acknowledged), "not taken": self.operator.refused,
            "jobs": len(history.jobs), "starts seen": len(history.starts), "due times": len(history.occurrences),
            "direct requests": len(history.requests), "steps": passed,
            "signals": len(history.signals_sent), "messages": len(history.deliveries),
            "messages sent twice": self._receiver.doubles, "processes": self.pool.started,
        }  # fmt: skip
        violations = check(history)
        return Verdict(
            _now() - began, self.terms.seed, counts, dict(self.faults), violations, self.pool.unexpected, is_drained
        )

    # --- while it lasts ----------------------------------------------------------------------------------------

    def _wait_for_workers(self) -> None:
        def alive(tx: Transaction) -> int:
            return tx.count("SELECT count(*) FROM workers WHERE stopped_at IS NULL")

        self._until(lambda: self.app.store.read_sync(alive) >= self.terms.workers, 60.0)

    def _work_under_faults(self) -> None:
        began = reported_at = counted_at = _now()
        next_act = next_fault = began + self.terms.fault_every_s
        is_behind = False
        while (now := _now()) - began < self.terms.seconds:
            if now >= counted_at + BACKLOG_EVERY_S:
                counted_at = now
                with contextlib.suppress(Unavailable):
                    is_behind = self.app.store.read_sync(_unfinished_work) > BACKLOG_MAX
            if now >= next_act and not is_behind:
                next_act = max(next_act, now - CATCH_UP_S) + 1 / self.terms.rate
                self.operator.act()
            else:
                time.sleep(PAUSE_S)
            self._resume_frozen(now)
            if now >= next_fault:
                next_fault = now + self.choice.uniform(0.5, 1.5) * self.terms.fault_every_s
                self._inject_fault()
                self.pool.fill()
            if now - reported_at >= PROGRESS_EVERY_S:
                reported_at = now
                self._report_progress(now - began)

    def _report_progress(self, seconds: float) -> None:
        faults = sum(self.faults.values())
        acknowledged = len(self.operator.acknowledged)
        self.terms.progress(
            f"{seconds:.0f} of {self.terms.seconds:.0f} s: {acknowledged} acknowledged, {faults} faults"
        )

    def _inject_fault(self) -> None:
        common: dict[str, Fault] = {
            "killed": Campaign.kill, "stopped briefly": Campaign.freeze_briefly,
            "stopped beyond the lease": Campaign.freeze_for_long, "shut down": Campaign.shut_down,
        }  # fmt: skip
        weights = {"killed": 4, "stopped briefly": 2, "stopped beyond the lease": 1, "shut down": 1}
        faults = {**common, **self.terms.more_faults}
        name = self.choice.choices(list(faults), [weights.get(fault, 3) for fault in faults])[0]
        self.faults[name] += 1
        faults[name](self)

    def kill(self) -> None:
        self.pool.kill(self.choice.choice(self.pool.workers))

    def freeze_briefly(self) -> None:
        self._freeze(self.choice.uniform(0.1, 0.5) * self.settings.lease_s)

    def freeze_for_long(self) -> None:
        self._freeze(self.settings.lease_s + self.settings.grace_s + 2 * self.settings.heartbeat_s + 1.0)

    def _freeze(self, seconds: float) -> None:
        moving = [worker for worker in self.pool.workers if worker.stopped_at is None]
        if len(moving) < 2:
            return  # somebody must be there to take over
        worker = self.choice.choice(moving)
        self.pool.stop(worker)
        self._resume_at[worker.name] = _now() + seconds

    def _resume_frozen(self, now: float) -> None:
        for worker in list(self.pool.workers):
            if worker.stopped_at is not None and now >= self._resume_at[worker.name]:
                self.pool.cont(worker)

    def shut_down(self) -> None:
        worker = self.choice.choice(self.pool.workers)

        def is_registered(tx: Transaction) -> bool:
            live = "SELECT id FROM workers WHERE pid = :pid AND stopped_at IS NULL"
            return tx.one(live, pid=worker.popen.pid) is not None

        # One that is still loading its modules has no say in how a signal ends it.
        # One that is registered may still be starting when the database goes away.
        expected = (0, CANNOT_START) if self.app.store.read_sync(is_registered) else (0, CANNOT_START, -signal.SIGTERM)
        code = self.pool.shut_down(worker)
        if code not in expected:
            self.pool.unexpected.append(f"{worker.name} was told to end and ended with {code}")

    # --- to the end --------------------------------------------------------------------------------------------

    @property
    def timeout_s(self) -> float:
        return 60.0 + 3 * (self.settings.lease_s + self.settings.grace_s)

    def _until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Waits for something; gives up when no job has ended for so long."""
        give_up, ended = _now() + within_s, -1
        while _now() < give_up:
            with contextlib.suppress(Unavailable):
                if holds():
                    return True
                if (count := self.app.store.read_sync(_ended)) > ended:
                    give_up, ended = _now() + within_s, count
            self.pool.fill()
            time.sleep(0.1)
        return False

    def _wait_until_idle(self) -> bool:
        """No more faults and acts: all due times are judged, then all work ends. False if that takes too long."""
        for worker in list(self.pool.workers):
            self.pool.cont(worker)
        self.pool.fill()
        self.terms.progress("no more faults; waiting until everything has ended")
        timeout_s = self.timeout_s
        is_settled = self._until(self.operator.settle_keys, timeout_s)
        until = self.app.store.clock.now().timestamp()
        for timetable in self.operator.timetables:
            timetable["until"] = until
        is_settled &= self._until(self._judged, timeout_s)
        is_settled &= self._until(self.operator.end_schedules, timeout_s)
        return self._until(self._idle, timeout_s) and is_settled

    def _judged(self) -> bool:
        def latest(tx: Transaction) -> dict[str, float]:
            rows = tx.rows("SELECT schedule_id, max(due_at) FROM occurrences GROUP BY schedule_id")
            return {schedule_id: tx.instant(due_at).timestamp() for schedule_id, due_at in rows}

        latest_due = self.app.store.read_sync(latest)
        return all(
            latest_due.get(timetable["schedule"], 0.0) > timetable["until"] - timetable["every"]
            or timetable["first"] > timetable["until"]
            for timetable in self.operator.timetables
        )

    def _idle(self) -> bool:
        """Whether all work has ended; then the processes are ended too, since they make requests to themselves."""
        self.pool.count = self.terms.workers
        if self.pool.workers:
            if self.app.store.read_sync(_unfinished_work):
                return False
            for worker in list(self.pool.workers):
                self.pool.shut_down(worker)
        self.pool.count = 0 if self.app.store.read_sync(_unfinished) == 0 else self.terms.workers
        return self.pool.count == 0

    def _history(self, webhook_id: str) -> History:
        return history_of(
            self.app.store,
            self.terms.folder / "witness",
            acknowledged=self.operator.acknowledged,
            cancelled=self.operator.cancelled,
            signals_sent=self.operator.signals_sent,
            dependencies=self.operator.dependencies,
            deaths=self.pool.deaths,
            frozen=self.pool.frozen,
            received=[{"delivery": delivery} for delivery in self._receiver.accepted],
            limits=LIMITS,
            timetables=self.operator.timetables,
            wall_is_steady=self.terms.wall_is_steady,
            thaw_s=THAW_S,
            subscribed=webhook_id,
        )


def _unfinished_work(tx: Transaction) -> int:
    return tx.count(
        "SELECT (SELECT count(*) FROM jobs WHERE status IN ('QUEUED', 'RUNNING'))"
        " + (SELECT count(*) FROM leases WHERE job_id IS NOT NULL)"
        " + (SELECT count(*) FROM deliveries WHERE status = 'PENDING')"
    )


def _unfinished(tx: Transaction) -> int:
    return _unfinished_work(tx) + tx.count(
        "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM direct_reservations WHERE status = 'ACTIVE')"
    )


def _ended(tx: Transaction) -> int:
    return tx.count("SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL")
