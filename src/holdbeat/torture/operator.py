"""The operator of a torture: submits, groups, cancels and retries, and remembers every answer."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from holdbeat.app import App
from holdbeat.domain.clock import SystemClock, iso
from holdbeat.domain.errors import HoldbeatError, Unavailable
from holdbeat.domain.job import JobStatus
from holdbeat.job_handle import JobHandle
from holdbeat.pending_job import PendingJob
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.jobs.submit import submit
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.schedules.schedules import create_schedule, disable_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.torture.durable import SIGNAL, Batch, draw_durable

SCHEDULES: tuple[dict[str, Any], ...] = (
    {"name": "every-second", "interval_s": 1, "type": "work", "params": {"seconds": 0.01}},
    {"name": "no-overlap", "interval_s": 2, "type": "fail_sometimes", "params": {"seconds": 0.3}, "overlap": "skip"},
    {"name": "one-waits", "interval_s": 3, "type": "alone", "params": {"seconds": 0.2}, "overlap": "queue_one"},
)


class Operator:
    """Acts on the store as a program of a user would, one act at a time, chosen by a seed."""

    def __init__(self, app: App, seed: int) -> None:
        self._app = app
        self._choice = random.Random(seed)
        self._clock = SystemClock()
        self._keys = 0
        self._unanswered: list[tuple[str, str, dict[str, Any]]] = []
        self.acknowledged: list[dict[str, Any]] = []
        self.cancelled: list[dict[str, Any]] = []
        self.signals_sent: list[dict[str, Any]] = []
        self.dependencies: list[dict[str, Any]] = []
        self._durable: list[str] = []
        self._never_retried: set[str] = set()
        """Jobs whose retry by hand would change what the checker expects of others."""
        self.timetables: list[dict[str, Any]] = []
        self.refused = 0
        """Acts that the store did not take: nobody was told that they had succeeded."""

    def begin(self) -> None:
        """Makes the schedules; their first due time lies a little ahead, and is known from then on."""
        for fields in SCHEDULES:
            first = (self._app.store.clock.now() + timedelta(seconds=2)).replace(microsecond=0)
            schedule = self._app.store.write_sync(create_schedule, {**fields, "start_at": iso(first)})
            self.timetables.append({"schedule": schedule.id, "first": first.timestamp(), "every": fields["interval_s"]})

    def act(self) -> None:
        """One act. What the store refuses for the moment is counted and not believed."""
        acts = [self.submit] * 8 + [self.submit_key] * 3 + [self.group] * 2 + [self.cancel] * 2 + [self.retry]
        acts += [self.durable] * 2 + [self.signal] * 4 + [self.dependent, self.unique, self.expiring]
        try:
            self._choice.choice(acts)()
        except Unavailable:
            self.refused += 1

    def settle_keys(self) -> bool:
        """Repeats every submission with a key that got no answer. True once each has got one."""
        while self._unanswered:
            key, type_, params = self._unanswered[-1]
            self._acknowledge(self._app.with_options(key=key).enqueue_sync(type_, **params), key)
            self._unanswered.pop()
        return True

    def end_schedules(self) -> bool:
        """Lets no schedule fire any more. True once that is stored."""
        for timetable in self.timetables:
            self._app.store.write_sync(disable_schedule, timetable["schedule"])
        return True

    # --- acts ----------------------------------------------------------------------------------------------

    def _work(self) -> tuple[str, dict[str, Any]]:
        choice = self._choice
        seconds = round(choice.choice([0.0, 0.02, 0.1, 0.4]), 3)
        type_ = choice.choices(["work", "alone", "fail_sometimes", "thread", "child"], [8, 3, 4, 2, 0.3])[0]
        if type_ == "fail_sometimes":
            return type_, {"seconds": seconds, "failures": choice.choice([1, 1, 2, 4, -1, -2])}
        return type_, {"seconds": seconds}

    def _acknowledge(self, job: JobHandle, key: str | None = None) -> None:
        self.acknowledged.append({"job": job.id, "key": key})

    def submit(self) -> None:
        type_, params = self._work()
        options: dict[str, Any] = {"priority": self._choice.randint(0, 5)}
        if self._choice.random() < 0.2:
            options["delay"] = self._choice.uniform(0.1, 3)
        self._acknowledge(self._app.with_options(**options).enqueue_sync(type_, **params))

    def submit_key(self) -> None:
        """Twice under one key, as a client does that is not sure of its first answer."""
        self._keys += 1
        key = f"key-{self._keys}"
        type_, params = self._work()
        self._unanswered.append((key, type_, params))
        self._acknowledge(self._app.with_options(key=key).enqueue_sync(type_, **params), key)
        self._acknowledge(self._app.with_options(key=key).enqueue_sync(type_, **params), key)
        self._unanswered.pop()

    def group(self) -> None:
        mode = self._choice.choice(["sequential", "parallel"])
        on_failure = self._choice.choice(["stop", "continue", "skip"])
        calls: list[PendingJob] = []
        for _ in range(self._choice.randint(2, 4)):
            type_, params = self._work()
            calls.append(self._app.call(type_, **params))
        _, members = self._app.group_sync(calls, mode=mode, on_failure=on_failure)
        for member in members:
            self._acknowledge(member)

    def cancel(self) -> None:
        if not self.acknowledged:
            return
        job_id = self._choice.choice(self.acknowledged[-20:])["job"]

        def cancelled(tx: Transaction) -> tuple[str, bool]:
            tip = cancel_job(tx, job_id, "the operator changed its mind")
            return tip.id, tip.started_at is None

        try:
            tip_id, was_queued = self._app.store.write_sync(cancelled)
        except Unavailable:
            raise
        except HoldbeatError:
            return  # it has ended already
        self.cancelled.append({"job": tip_id, "monotonic": self._clock.monotonic(), "was_queued": was_queued})

    def retry(self) -> None:
        if not self.acknowledged:
            return
        job_id = self._choice.choice(self.acknowledged[-50:])["job"]
        if job_id in self._never_retried:
            return
        job = self._app.store.read_sync(load_job, job_id)
        if job.status is not JobStatus.FAILED or not job.permanently_failed:
            return
        retry = self._app.store.write_sync(retry_job, job_id)
        self._acknowledge(JobHandle(self._app.store, retry))

    def durable(self) -> None:
        type_, params = self._work()
        child = {"type": type_, "params": params}
        job = self._app.enqueue_sync(
            "durable",
            work=draw_durable(self._choice, 2.0, child),
            seconds=self._choice.choice([0.0, 0.02, 0.1]),
            failures=self._choice.choice([0, 0, 1, 2]),
        )
        self._acknowledge(job)
        self._durable.append(job.id)

    def signal(self) -> None:
        """To a chain that may wait for it, may do so later, or has ended."""
        if not self._durable:
            return
        job_id = self._choice.choice(self._durable[-5:])
        payload = f"signal {len(self.signals_sent)}"
        sent = {"chain": job_id, "payload": payload, "is_answered": False}
        try:
            self._app.signal_sync(job_id, SIGNAL, payload)
        except Unavailable:
            self.signals_sent.append({**sent, "monotonic": self._clock.monotonic()})
            raise
        except HoldbeatError:
            return  # its chain has ended
        self.signals_sent.append({**sent, "monotonic": self._clock.monotonic(), "is_answered": True})

    def dependent(self) -> None:
        def work() -> dict[str, Any]:
            type_, params = self._work()
            return {"type": type_, "params": params}

        batch = Batch.of(self._choice, work)
        job_ids = [job.id for job in self._app.store.write_sync(submit, batch.submissions).jobs]
        self.acknowledged += [{"job": job_id, "key": None} for job_id in job_ids]
        self.dependencies += batch.dependencies(job_ids)
        self._never_retried.update(job_ids)

    def unique(self) -> None:
        type_, params = self._work()
        key = f"unique-{self._choice.randrange(3)}"
        options = {"unique_key": key, "unique_while": "unfinished", "on_duplicate": "return"}
        job = self._app.with_options(**options).enqueue_sync(type_, **params)
        self._acknowledge(job)
        self._never_retried.add(job.id)

    def expiring(self) -> None:
        type_, params = self._work()
        options = {"expires_in": round(self._choice.uniform(0.05, 1.0), 3)}
        self._acknowledge(self._app.with_options(**options).enqueue_sync(type_, **params))
