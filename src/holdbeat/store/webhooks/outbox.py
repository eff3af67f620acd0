"""The outbox: webhook deliveries written in the transaction of the change that they tell of (DEC-009)."""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain import events
from holdbeat.domain.job import Job
from holdbeat.domain.views import group_json, job_json, run_json
from holdbeat.store.delivery_rows import (
    SUBSCRIPTIONS,
    NewDelivery,
    Subscription,
    insert_deliveries,
    payload_of,
    subscriptions_of,
)
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.reads.rows import DELIVERED_RESULT_BYTES, GROUPS
from holdbeat.store.transaction import Row, Transaction


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
        """The subscriptions: receivers of every job, not only of jobs with their own webhook URL."""
        if self._subscriptions is None:
            self._subscriptions = self._tx.rows(SUBSCRIPTIONS, yes=True)
        return self._subscriptions

    def write(self) -> None:
        if not self._jobs and not self._groups:
            return
        tx = self._tx
        subscriptions = subscriptions_of(self.subscribers())
        deliveries: list[NewDelivery] = []
        rows = [
            (event, job_id, webhook_url)
            for event, job_id, webhook_url in self._jobs
            if webhook_url or any(subscription.takes(event) for subscription in subscriptions)
        ]
        jobs = {job.id: job for job in _jobs_to_tell(tx, sorted({job_id for _, job_id, _ in rows}))} if rows else {}
        for event, job_id, webhook_url in rows:
            job = jobs[job_id]
            run = run_json(job.run, job.type) if job.run else None
            payload = payload_of(tx, event, {"job": job_json(job), "run": run})
            if webhook_url:
                deliveries.append(NewDelivery(event, webhook_url, payload, job_id=job_id))
            deliveries += [
                NewDelivery(event, subscription.url, payload, subscription.id, job_id=job_id)
                for subscription in subscriptions
                if subscription.takes(event)
            ]
        for group_id in self._groups:
            deliveries += self._group_finished(group_id, subscriptions)
        insert_deliveries(tx, deliveries)
        self._jobs, self._groups = [], []

    def _group_finished(self, group_id: str, subscriptions: Sequence[Subscription]) -> list[NewDelivery]:
        tx, event = self._tx, events.GROUP_FINISHED
        receivers = [subscription for subscription in subscriptions if subscription.takes(event)]
        if not receivers:
            return []
        group = GROUPS.first(tx, "WHERE id = :id", id=group_id)
        assert group is not None
        ids = tx.column("SELECT id FROM jobs WHERE group_id = :id ORDER BY sequence, id", id=group_id)
        payload = payload_of(tx, event, {"group": group_json(group, _jobs_to_tell(tx, ids))})
        return [NewDelivery(event, receiver.url, payload, receiver.id, group_id=group_id) for receiver in receivers]


def _jobs_to_tell(tx: Transaction, ids: Sequence[str]) -> list[Job]:
    """Jobs with results of moderate size: a payload is stored once for each subscription."""
    return load_jobs(tx, ids, result_bytes=DELIVERED_RESULT_BYTES)
