"""JobHandle: a Job that was enqueued, and how to wait for its end or to cancel it."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from holdbeat.actors import by_program
from holdbeat.domain.bounds import Duration, duration_s
from holdbeat.domain.job import Job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.queue.enqueue import NewlyStored
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

POLL_S = 0.25
"""How often a waiter polls, should a wake-up get lost."""
ENDS = frozenset({Topic.SLOTS, Topic.CANCEL, Topic.EVENTS, Topic.REFUSED})
"""Topics of commits that may have ended a job."""


class JobHandle:
    """A Job that was enqueued: its snapshot, and how to wait for its end or to cancel it."""

    def __init__(self, store: PersistenceAdapter, job: Job | NewlyStored) -> None:
        self._store = store
        self._job = job
        self.id = job.id

    @property
    def job(self) -> Job:
        """The job as this handle last saw it."""
        if not isinstance(self._job, Job):
            self._job = self._job.as_job()
        return self._job

    @job.setter
    def job(self, job: Job) -> None:
        self._job = job

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} {self.job.type} {self.job.status}>"

    async def wait(self, timeout: Duration | None = None) -> Job:
        """Waits until the job and its automatic retries have ended, and returns the last of them.

        Raises TimeoutError if that takes longer; the job goes on.
        """
        woken = asyncio.Event()
        unsubscribe = self._store.on_topics(asyncio.get_running_loop(), ENDS, woken.set)
        try:
            async with asyncio.timeout(None if timeout is None else duration_s(timeout)):
                while not (job := await self._store.read(_tip, self.id)).status.is_terminal:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(woken.wait(), POLL_S)
                    woken.clear()
        finally:
            unsubscribe()
        self.job = job
        return job

    def wait_sync(self, timeout: Duration | None = None) -> Job:
        """`wait` for programs without an event loop."""
        clock = self._store.clock
        until = None if timeout is None else clock.monotonic() + duration_s(timeout)
        woken = threading.Event()
        unsubscribe = self._store.listen(lambda topics: woken.set())
        try:
            while not (job := self._store.read_sync(_tip, self.id)).status.is_terminal:
                if until is not None and clock.monotonic() >= until:
                    raise TimeoutError(f"job {self.id} has not ended yet")
                woken.wait(POLL_S)
                woken.clear()
        finally:
            unsubscribe()
        self.job = job
        return job

    async def cancel(self, reason: str | None = None) -> Job:
        """Cancels the job, or the automatic retry that it has come to, and returns that.

        A job that waits never runs; the handler of one that runs is told to end. Raises Conflict if it has ended.
        """
        self.job = await self._store.write(by_program, cancel_job, self.id, reason)
        return self.job

    def cancel_sync(self, reason: str | None = None) -> Job:
        """`cancel` for programs without an event loop."""
        self.job = self._store.write_sync(by_program, cancel_job, self.id, reason)
        return self.job


def _tip(tx: Transaction, job_id: str) -> Job:
    return load_job(tx, tip_of(tx, job_id))
