"""The outbox: webhook deliveries written in the transaction of the change that they tell of (DEC-009)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job
from holdbeat.domain.params import dumps
from holdbeat.domain.views import group_json, job_json, run_json
from holdbeat.domain.webhook import host_of
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.reads.rows import DELIVERED_RESULT_BYTES, GROUP, group_of
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction

SUBSCRIPTIONS = "SELECT id, url, events FROM webhooks WHERE enabled = :yes"


class Outbox:
    """Collects what happened in one transaction and writes the deliveries at its end.

    The payload is made from the rows as they stand then: exactly what the API would show.
    """

    def __init__(self, tx: Transaction, subscriptions: Sequence[Row] | None = None) -> None:
        """`subscriptions`: what SUBSCRIPTIONS found, where the caller asked for it along with something else."""
        self._tx = tx
        self._subscriptions = subscriptions
        self._jobs: list[tuple[str, str, str | None]] = []
        self._groups: list[str] = []

    def tell_job(self, event: str, job_id: str, webhook_url: str | None) -> None:
        self._jobs.append((event, job_id, webhook_url))

    def tell_group(self, group_id: str) -> None:
        self._groups.append(group_id)

    def subscribers(self) -> Sequence[Row]:
        """Who is told of every job, not only of one that names a webhook of its own."""
        if self._subscriptions is None:
            self._subscriptions = self._tx.rows(SUBSCRIPTIONS, yes=True)
        return self._subscriptions

    def write(self) -> None:
        if not self._jobs and not self._groups:
            return
        tx = self._tx
        subscriptions = [
            (webhook_id, url, json.loads(events) if events else None) for webhook_id, url, events in self.subscribers()
        ]
        wanted = [entry for entry in self._jobs if entry[2] or (subscriptions and _targets(subscriptions, entry[0]))]
        rows: list[tuple[Any, ...]] = []
        if wanted:
            jobs = {job.id: job for job in _jobs_to_tell(tx, sorted({job_id for _, job_id, _ in wanted}))}
            for event, job_id, webhook_url in wanted:
                job = jobs[job_id]
                run = run_json(job.run, job.type) if job.run else None
                payload = self._payload(event, {"job": job_json(job), "run": run})
                if webhook_url:
                    rows.append((None, job_id, None, event, webhook_url, payload))
                for webhook_id, url in _targets(subscriptions, event):
                    rows.append((webhook_id, job_id, None, event, url, payload))
        finished = _targets(subscriptions, "group.finished")
        for group_id in self._groups if finished else ():
            row = tx.one(f"SELECT {GROUP} FROM job_groups WHERE id = :id", id=group_id)
            assert row is not None
            ids = [r[0] for r in tx.rows("SELECT id FROM jobs WHERE group_id = :id ORDER BY sequence, id", id=group_id)]
            payload = self._payload("group.finished", {"group": group_json(group_of(tx, row), _jobs_to_tell(tx, ids))})
            for webhook_id, url in finished:
                rows.append((webhook_id, None, group_id, "group.finished", url, payload))
        if rows:
            tx.insert(
                "deliveries",
                (
                    "webhook_id",
                    "job_id",
                    "group_id",
                    "event",
                    "url",
                    "payload",
                    "id",
                    "host",
                    "created_at",
                    "next_attempt_at",
                ),
                [
                    (*row, new_id, host_of(row[4]), tx.now, tx.now)
                    for row, new_id in zip(rows, tx.new_ids(len(rows)), strict=True)
                ],
            )
            tx.wake(Topic.DELIVERIES)
        self._jobs, self._groups = [], []

    def _payload(self, event: str, data: dict[str, Any]) -> str:
        return dumps({"type": event, "timestamp": iso(self._tx.now), "data": data})


def _jobs_to_tell(tx: Transaction, ids: Sequence[str]) -> list[Job]:
    """Jobs with results of moderate size: a payload is stored once for each subscription."""
    return load_jobs(tx, ids, result_bytes=DELIVERED_RESULT_BYTES)


def _targets(subscriptions: list[tuple[str, str, list[str] | None]], event: str) -> list[tuple[str, str]]:
    return [(webhook_id, url) for webhook_id, url, events in subscriptions if events is None or event in events]
