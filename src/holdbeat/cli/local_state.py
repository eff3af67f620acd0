"""The other half of LocalBackend: following what happens, the queue, webhooks, direct requests, figures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdbeat.cli.lazy import Lazy
from holdbeat.domain.bounds import check_line
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.views import delivery_json, event_json, job_json, reservation_json, webhook_json, worker_json

if TYPE_CHECKING:
    from holdbeat.cli.local_schedules import LocalEndpoints, LocalSchedules
    from holdbeat.domain import reservation, submission, webhook
    from holdbeat.domain.job import Job
    from holdbeat.observe import explain_reservation
    from holdbeat.settings import Settings
    from holdbeat.store.adapter import PersistenceAdapter
    from holdbeat.store.queue import job_types, pauses
    from holdbeat.store.reads import event_log, jobs, stats
    from holdbeat.store.reads import queue_view as queue_list
    from holdbeat.store.running import reservations, run_output, workers
    from holdbeat.store.transaction import Transaction
    from holdbeat.store.webhooks import deliveries
    from holdbeat.store.webhooks import subscriptions as webhooks
else:
    explain_reservation = Lazy("holdbeat.observe.explain_reservation")
    reservation, submission, webhook = [
        Lazy(f"holdbeat.domain.{name}") for name in ("reservation", "submission", "webhook")
    ]
    deliveries = Lazy("holdbeat.store.webhooks.deliveries")
    event_log = Lazy("holdbeat.store.reads.event_log")
    job_types = Lazy("holdbeat.store.queue.job_types")
    jobs = Lazy("holdbeat.store.reads.jobs")
    pauses = Lazy("holdbeat.store.queue.pauses")
    queue_list = Lazy("holdbeat.store.reads.queue_view")
    reservations = Lazy("holdbeat.store.running.reservations")
    run_output = Lazy("holdbeat.store.running.run_output")
    stats = Lazy("holdbeat.store.reads.stats")
    webhooks = Lazy("holdbeat.store.webhooks.subscriptions")
    workers = Lazy("holdbeat.store.running.workers")

P = ParamSpec("P")
T = TypeVar("T")
LOOK_S = 1.0
PAGE = 500
BY = "command line"


class LocalState:
    def __init__(self, store: PersistenceAdapter, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.url = store.url

    def close(self) -> None:
        self.store.close()

    def _read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.store.read_sync(verb, *args, **kwargs)

    def _write(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.store.write_sync(verb, *args, **kwargs)

    @property
    def schedules(self) -> LocalSchedules:
        from holdbeat.cli.local_schedules import LocalSchedules

        return LocalSchedules(self.store, self.settings)

    @property
    def endpoints(self) -> LocalEndpoints:
        from holdbeat.cli.local_schedules import LocalEndpoints

        return LocalEndpoints(self.store, self.settings)

    def _check_target(self, url: str) -> None:
        from holdbeat.cli.local_schedules import check_target

        check_target(self.store, self.settings, url)

    # --- following ----------------------------------------------------------------------------------------

    def wait_job(self, job_id: str, *, timeout_s: float | None = None, with_retries: bool = True) -> Any:
        clock = self.store.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        woken = threading.Event()
        unsubscribe = self.store.listen(lambda topics: woken.set())
        try:
            while True:
                woken.clear()
                job = self._read(jobs.load_job, job_id)
                if job.status.is_terminal:
                    if not with_retries or job.retried_by is None:
                        return job_json(job)
                    job_id = job.retried_by
                    continue
                left_s = LOOK_S if until is None else min(LOOK_S, until - clock.monotonic())
                if left_s <= 0:
                    raise TimeoutError(f"job {job_id} has not ended within {timeout_s:g} s; it goes on")
                woken.wait(left_s)
        finally:
            unsubscribe()

    def get_logs(self, job_id: str, *, after: int | None = None, limit: int | None = None) -> Any:
        count = limit or PAGE
        _, lines = self._read(_logs, job_id, after or 0, count)
        following = str(lines[-1].sequence) if len(lines) == count else None
        return {"items": [_line_json(each) for each in lines], "next_cursor": following}

    def follow_logs(self, job_id: str, *, after: int = 0) -> Generator[Any, None, None]:
        woken = threading.Event()
        unsubscribe = self.store.listen(lambda topics: woken.set())
        try:
            while True:
                woken.clear()
                job, lines = self._read(_logs, job_id, after, PAGE)
                for each in lines:
                    after = each.sequence
                    yield _line_json(each)
                if lines:
                    continue
                if job.status.is_terminal and (job.run is None or job.run.status is not None):
                    return
                woken.wait(LOOK_S)
        finally:
            unsubscribe()

    def list_events(
        self,
        *,
        after: str | None = None,
        name: Sequence[str] | None = None,
        job_id: str | None = None,
        limit: int | None = None,
    ) -> Any:
        count = limit or 50
        start = None if after in (None, "0") else after
        found = self._read(event_log.read_events, start, job_id=job_id, names=list(name) if name else None, limit=count)
        following = found[-1].cursor if len(found) == count else None
        return {"items": [event_json(each.event) for each in found], "next_cursor": following}

    def events(
        self, *, after: str | None = None, name: Sequence[str] | None = None, job_id: str | None = None
    ) -> Generator[Any, None, None]:
        place = self._read(event_log.latest_cursor) if after is None else None if after == "0" else after
        names = list(name) if name else None
        woken = threading.Event()
        unsubscribe = self.store.listen(lambda topics: woken.set())
        try:
            while True:
                woken.clear()
                found = self._read(event_log.read_events, place, job_id=job_id, names=names, limit=PAGE)
                for logged in found:
                    place = logged.cursor
                    yield event_json(logged.event)
                if not found:
                    woken.wait(LOOK_S)
        finally:
            unsubscribe()

    # --- the queue ----------------------------------------------------------------------------------------

    def get_queue(self, *, resource: str | None = None, limit: int | None = None, cursor: str | None = None) -> Any:
        page = self._read(queue_list.queue, resource, limit=limit, cursor=cursor)
        return {
            "items": [{**job_json(entry.job), "blocked_by": list(entry.blocked_by)} for entry in page.items],
            "next_cursor": page.next_cursor,
            **self._pauses(),
        }

    def pause_queue(self, resource: str | None = None, *, reason: str | None = None) -> Any:
        self._write(pauses.pause, resource, by=BY, reason=reason)
        return self._pauses()

    def resume_queue(self, resource: str | None = None) -> Any:
        self._write(pauses.resume, resource, by=BY)
        return self._pauses()

    def _pauses(self) -> dict[str, Any]:
        return {
            "paused": [
                {
                    "resource": each.resource,
                    "paused_at": iso(each.paused_at),
                    "paused_by": each.paused_by,
                    "reason": each.reason,
                }
                for each in self._read(pauses.list_pauses)
            ]
        }

    # --- direct requests ----------------------------------------------------------------------------------

    def direct(self, type: str, params: Mapping[str, Any] | None = None, *, wait_s: float | None = None) -> Any:
        from holdbeat.cli.local_direct import direct

        return direct(self.store, self.settings, type, dict(params or {}), wait_s)

    def list_reservations(
        self, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Any:
        wanted = _choice(reservation.ReservationStatus, status)
        return self._read(explain_reservation.reservations_page, wanted, limit, cursor)

    def get_reservation(self, reservation_id: str) -> Any:
        return self._read(explain_reservation.reservation_with_estimate, reservation_id)

    def explain_reservation(self, reservation_id: str) -> Any:
        return self._read(explain_reservation.explain_reservation, reservation_id)

    def cancel_reservation(self, reservation_id: str, reason: str | None = None) -> Any:
        why = None if reason is None else check_line(reason, "reason", 500)
        cancelled = self._write(reservations.cancel_reservation, reservation_id, why)
        return {**reservation_json(cancelled), "estimated_start": None}

    # --- webhooks -----------------------------------------------------------------------------------------

    def create_webhook(self, url: str, *, events: Sequence[str] | None = None, secret: str | None = None) -> Any:
        submission.check_webhook_url(url, "url")
        self._check_target(url)
        made = self._write(webhooks.create_webhook, url, list(events or ()), secret)
        return webhook_json(made, with_secret=True)

    def list_webhooks(self, *, limit: int | None = None, cursor: str | None = None) -> Any:
        page = self._read(webhooks.list_webhooks, limit=limit, cursor=cursor)
        return {"items": [webhook_json(each) for each in page.items], "next_cursor": page.next_cursor}

    def update_webhook(self, webhook_id: str, changes: Mapping[str, Any], *, version: int | None = None) -> Any:
        if "url" in changes:
            submission.check_webhook_url(changes["url"], "url")
            self._check_target(changes["url"])
        return webhook_json(self._write(webhooks.patch_webhook, webhook_id, changes, version))

    def delete_webhook(self, webhook_id: str) -> None:
        self._write(webhooks.delete_webhook, webhook_id)

    def rotate_webhook(self, webhook_id: str, *, secret: str | None = None) -> Any:
        return webhook_json(self._write(webhooks.rotate_webhook, webhook_id, secret), with_secret=True)

    def webhook_secret(self) -> Any:
        return webhooks.server_secret_json(self._write(webhooks.server_secret))

    def rotate_webhook_secret(self, *, secret: str | None = None) -> Any:
        return webhooks.server_secret_json(self._write(webhooks.rotate_server_secret, secret))

    def list_deliveries(
        self,
        *,
        job_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        wanted = _choice(webhook.DeliveryStatus, status)
        page = self._read(deliveries.list_deliveries, job_id=job_id, status=wanted, limit=limit, cursor=cursor)
        return {"items": [delivery_json(each) for each in page.items], "next_cursor": page.next_cursor}

    def get_delivery(self, delivery_id: str) -> Any:
        return delivery_json(self._read(deliveries.load_delivery, delivery_id))

    def redeliver(self, delivery_id: str) -> Any:
        return delivery_json(self._write(deliveries.redeliver, delivery_id))

    # --- figures ------------------------------------------------------------------------------------------

    def stats(self) -> Any:
        return self._read(stats.stats)

    def workers(self, *, all: bool | None = None) -> Any:
        found = self._read(workers.all_workers) if all else self._read(workers.live_workers)
        return {"items": [worker_json(each) for each in found], "next_cursor": None}

    def job_types(self) -> Any:
        items = [
            {
                "name": each.name,
                "description": each.description,
                "aliases": list(each.aliases),
                "schema": each.schema,
                "defaults": each.defaults,
                "announced_at": None if each.announced_at is None else iso(each.announced_at),
            }
            for each in self._read(job_types.list_types)
        ]
        return {"items": items, "next_cursor": None}


def _logs(tx: Transaction, job_id: str, after: int, limit: int) -> tuple[Job, list[run_output.LogLine]]:
    job = jobs.load_job(tx, job_id)
    return job, run_output.read_logs(tx, job.run.id, after, limit) if job.run else []


def _line_json(logged: run_output.LogLine) -> dict[str, Any]:
    text = logged.text.removesuffix("\n")
    return {"sequence": logged.sequence, "at": iso(logged.at), "stream": logged.stream, "text": text}


def _choice(kind: Any, value: str | None) -> Any:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        raise Invalid(f"status must be one of {', '.join(kind)}.", code="unknown_choice", field="status") from None
