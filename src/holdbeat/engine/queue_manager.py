"""QueueManager: the one door through which jobs come into the queue, from code, API, command line and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdbeat.domain.group import GroupMode, JobGroup, OnFailure
from holdbeat.domain.job import Job
from holdbeat.domain.submission import Submission
from holdbeat.observe.tracing import submitting
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.submission import submit, submit_group


class QueueManager:
    """Submits in the store's own transaction, or in the caller's."""

    def __init__(self, store: PersistenceAdapter) -> None:
        self._store = store

    async def submit(self, submissions: Sequence[Submission]) -> Enqueued:
        """All of them are on disk when this returns, or none."""
        with submitting(submissions):
            return await self._store.write(submit, submissions)

    def submit_sync(self, submissions: Sequence[Submission]) -> Enqueued:
        with submitting(submissions):
            return self._store.write_sync(submit, submissions)

    def submit_joined(self, connection: Any, submissions: Sequence[Submission]) -> Enqueued:
        """Stores jobs in the caller's open transaction: they exist if and when the caller commits (QUE-03)."""
        with submitting(submissions):
            tx = self._store.joined(connection)
            enqueued = submit(tx, submissions)
            tx.write_events()
            return enqueued

    async def submit_group(
        self, name: str | None, mode: GroupMode, on_failure: OnFailure, members: Sequence[Submission]
    ) -> tuple[JobGroup, list[Job]]:
        with submitting(members):
            return await self._store.write(submit_group, name, mode, on_failure, members)

    def submit_group_joined(
        self, connection: Any, name: str | None, mode: GroupMode, on_failure: OnFailure, members: Sequence[Submission]
    ) -> tuple[JobGroup, list[Job]]:
        """`submit_joined` for a group."""
        with submitting(members):
            tx = self._store.joined(connection)
            stored = submit_group(tx, name, mode, on_failure, members)
            tx.write_events()
            return stored

    def submit_group_sync(
        self, name: str | None, mode: GroupMode, on_failure: OnFailure, members: Sequence[Submission]
    ) -> tuple[JobGroup, list[Job]]:
        with submitting(members):
            return self._store.write_sync(submit_group, name, mode, on_failure, members)
