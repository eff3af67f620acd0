"""What verbs talk to: a store of this machine, or a server. Both give the same JSON, so verbs cannot tell them apart.

`holdbeat.client.Client` is one of the two as it is; `LocalBackend` is the other, over the store's own verbs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from holdbeat.client.types import (
        BulkResult,
        Delivery,
        DirectAnswer,
        DueTime,
        Event,
        Explanation,
        Items,
        Job,
        JobGroup,
        JobGroupWithJobs,
        JobRun,
        JobTemplate,
        JobType,
        JsonObject,
        LogLine,
        Occurrence,
        Page,
        Pauses,
        Queue,
        Reservation,
        Schedule,
        Stats,
        Webhook,
        WebhookSecret,
        Worker,
    )


class ScheduleBackend(Protocol):
    """Schedules, or Endpoints."""

    def create(self, request: Mapping[str, Any]) -> Schedule: ...
    def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Page[Schedule]: ...
    def get(self, reference: str) -> Schedule: ...
    def update(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> Schedule: ...
    def delete(self, reference: str) -> None: ...
    def enable(self, reference: str) -> Schedule: ...
    def disable(self, reference: str) -> Schedule: ...
    def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> Schedule: ...
    def resume(self, reference: str) -> Schedule: ...
    def reset_failures(self, reference: str) -> Schedule: ...
    def hint(
        self,
        reference: str,
        *,
        interval_s: float | None = None,
        next_run_at: str | None = None,
        ttl_s: float | None = None,
        reason: str | None = None,
    ) -> Schedule: ...
    def clear_hints(self, reference: str) -> Schedule: ...
    def trigger(self, reference: str) -> JsonObject: ...
    def occurrences(
        self, reference: str, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Occurrence]: ...
    def explain(self, reference: str) -> JsonObject: ...
    def preview(self, reference: str, *, n: int | None = None) -> Items[DueTime]: ...
    def preview_timetable(self, timetable: Mapping[str, Any]) -> Items[DueTime]: ...


class EndpointBackend(ScheduleBackend, Protocol):
    def test(self, reference: str) -> JsonObject: ...
    def health(self, reference: str) -> JsonObject: ...


class Backend(Protocol):
    url: str

    @property
    def schedules(self) -> ScheduleBackend: ...
    @property
    def endpoints(self) -> EndpointBackend: ...
    def close(self) -> None: ...

    def submit_job(self, request: Mapping[str, Any]) -> Job: ...
    def list_jobs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        type: str | None = None,
        resource: str | None = None,
        schedule_id: str | None = None,
        group_id: str | None = None,
        template_id: str | None = None,
        label: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Job]: ...
    def get_job(self, job_id: str) -> Job: ...
    def update_job(self, job_id: str, changes: Mapping[str, Any]) -> Job: ...
    def cancel_job(self, job_id: str, reason: str | None = None) -> Job: ...
    def cancel_jobs(
        self, filter: Mapping[str, Any], *, dry_run: bool = False, reason: str | None = None
    ) -> BulkResult: ...
    def retry_job(self, job_id: str) -> Job: ...
    def retry_job_runs(self, filter: Mapping[str, Any], *, dry_run: bool = False) -> BulkResult: ...
    def move_job(
        self, job_id: str, *, before: str | None = None, after: str | None = None, to: str | int | None = None
    ) -> Job: ...
    def explain_job(self, job_id: str) -> Explanation: ...
    def job_events(self, job_id: str, *, limit: int | None = None) -> Page[Event]: ...
    def wait_job(self, job_id: str, *, timeout_s: float | None = None, with_retries: bool = True) -> Job: ...
    def get_logs(self, job_id: str, *, after: int | None = None, limit: int | None = None) -> Page[LogLine]: ...
    def follow_logs(self, job_id: str, *, after: int = 0) -> Generator[LogLine, None, None]: ...
    def list_job_runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        job_id: str | None = None,
        type: str | None = None,
        error_kind: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobRun]: ...
    def get_artifact(self, run_id: str, name: str) -> bytes: ...

    def get_queue(
        self, *, resource: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Queue: ...
    def reorder_queue(self, job_ids: Sequence[str]) -> Items[Job]: ...
    def pause_queue(self, resource: str | None = None, *, reason: str | None = None) -> Pauses: ...
    def resume_queue(self, resource: str | None = None) -> Pauses: ...

    def create_group(self, request: Mapping[str, Any]) -> JobGroupWithJobs: ...
    def list_groups(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobGroup]: ...
    def get_group(self, group_id: str) -> JobGroupWithJobs: ...
    def cancel_group(self, group_id: str, reason: str | None = None) -> JobGroupWithJobs: ...

    def create_template(self, request: Mapping[str, Any]) -> JobTemplate: ...
    def list_templates(
        self,
        *,
        type: str | None = None,
        archived: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobTemplate]: ...
    def get_template(self, reference: str) -> JobTemplate: ...
    def update_template(
        self, reference: str, changes: Mapping[str, Any], *, version: int | None = None
    ) -> JobTemplate: ...
    def archive_template(self, reference: str, *, version: int | None = None) -> JobTemplate: ...

    def direct(
        self, type: str, params: Mapping[str, Any] | None = None, *, wait_s: float | None = None
    ) -> DirectAnswer: ...
    def list_reservations(
        self, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Reservation]: ...
    def get_reservation(self, reservation_id: str) -> Reservation: ...
    def explain_reservation(self, reservation_id: str) -> Explanation: ...
    def cancel_reservation(self, reservation_id: str, reason: str | None = None) -> Reservation: ...

    def create_webhook(
        self, url: str, *, events: Sequence[str] | None = None, secret: str | None = None
    ) -> Webhook: ...
    def list_webhooks(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Webhook]: ...
    def update_webhook(self, webhook_id: str, changes: Mapping[str, Any], *, version: int | None = None) -> Webhook: ...
    def delete_webhook(self, webhook_id: str) -> None: ...
    def rotate_webhook(self, webhook_id: str, *, secret: str | None = None) -> Webhook: ...
    def webhook_secret(self) -> WebhookSecret: ...
    def rotate_webhook_secret(self, *, secret: str | None = None) -> WebhookSecret: ...
    def list_deliveries(
        self,
        *,
        job_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Delivery]: ...
    def get_delivery(self, delivery_id: str) -> Delivery: ...
    def redeliver(self, delivery_id: str) -> Delivery: ...

    def stats(self) -> Stats: ...
    def workers(self, *, all: bool | None = None) -> Page[Worker]: ...
    def job_types(self) -> Page[JobType]: ...
    def list_events(
        self,
        *,
        after: str | None = None,
        name: Sequence[str] | None = None,
        job_id: str | None = None,
        limit: int | None = None,
    ) -> Page[Event]: ...
    def events(
        self, *, after: str | None = None, name: Sequence[str] | None = None, job_id: str | None = None
    ) -> Generator[Event, None, None]: ...


@contextmanager
def reached(composition: Any, store: str | None, server: str | None, key: str | None) -> Iterator[Backend]:
    """The backend that the options name, closed in the end. A `--store` beats a server from the environment."""
    source = click.get_current_context().get_parameter_source("server")
    if store is not None and server is not None:
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--store and --server exclude each other: name one of them.")
        server = None
    backend: Backend
    if server is not None:
        from holdbeat.client.blocking.client import Client

        _check_address(server)
        backend = Client(server, key=key)
    else:
        from holdbeat.cli.local import LocalBackend

        settings = composition.settings({"store": store})
        backend = LocalBackend(composition.open_store(settings), settings)
    try:
        yield backend
    finally:
        backend.close()


def _check_address(server: str) -> None:
    """Refuses what cannot be the address of a server, before anybody waits for it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"--server {server!r} is no address: {error}.") from error
    if parts.scheme in ("http", "https") and parts.hostname and port != 0:
        return
    meant = f", e.g. http://{server}" if "/" not in server and server.strip() else ", e.g. http://127.0.0.1:7450"
    raise click.UsageError(f"--server {server!r} is no address of a server. Write it with http:// or https://{meant}.")
