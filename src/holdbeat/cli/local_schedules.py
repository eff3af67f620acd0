"""Schedules and Endpoints of the store of this machine, in the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdbeat.cli.lazy import Lazy
from holdbeat.domain.views import (
    endpoint_json,
    job_json,
    occurrence_json,
    preview_json,
    redacted_headers,
    schedule_json,
)

if TYPE_CHECKING:
    from holdbeat.domain import address
    from holdbeat.domain.schedule import Schedule
    from holdbeat.settings import Settings
    from holdbeat.store.access import exposed_servers as exposure
    from holdbeat.store.adapter import PersistenceAdapter
    from holdbeat.store.schedules import endpoints, manual_fire, schedule_reports, schedules
else:
    address = Lazy("holdbeat.domain.address")
    endpoints = Lazy("holdbeat.store.schedules.endpoints")
    exposure = Lazy("holdbeat.store.access.exposed_servers")
    manual_fire = Lazy("holdbeat.store.schedules.manual_fire")
    schedule_reports = Lazy("holdbeat.store.schedules.schedule_reports")
    schedules = Lazy("holdbeat.store.schedules.schedules")


def check_target(store: PersistenceAdapter, settings: Settings, url: object) -> None:
    """Refuses an address that the workers of this store would never call, as a server does (SEC-04)."""
    if isinstance(url, str):
        address.check_url(url, outbound_policy(store, settings))


def outbound_policy(store: PersistenceAdapter, settings: Settings) -> address.OutboundPolicy:
    is_private = settings.is_on_loopback and not store.read_sync(exposure.is_exposed)
    return address.OutboundPolicy(is_private, settings.outbound_allow)


class LocalSchedules:
    is_endpoint = False

    def __init__(self, store: PersistenceAdapter, settings: Settings) -> None:
        self.store = store
        self.settings = settings

    def _shown(self, schedule: Schedule) -> Any:
        return endpoint_json(schedule) if self.is_endpoint else schedule_json(schedule)

    def _step(self, verb: Any, reference: str, *args: Any, **kwargs: Any) -> Any:
        return self._shown(self.store.write_sync(verb, reference, *args, endpoint=self.is_endpoint, **kwargs))

    def create(self, request: Mapping[str, Any]) -> Any:
        if self.is_endpoint:
            check_target(self.store, self.settings, request.get("url"))
        return self._shown(self.store.write_sync(schedules.create_schedule, request, endpoint=self.is_endpoint))

    def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Any:
        page = self.store.read_sync(
            schedule_reports.list_schedules,
            {name: value for name, value in filters.items() if value is not None},
            endpoint=self.is_endpoint,
            limit=limit,
            cursor=cursor,
        )
        return {"items": [self._shown(each) for each in page.items], "next_cursor": page.next_cursor}

    def get(self, reference: str) -> Any:
        return self._shown(self.store.read_sync(schedules.get_schedule, reference, endpoint=self.is_endpoint))

    def update(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> Any:
        if self.is_endpoint:
            check_target(self.store, self.settings, changes.get("url"))
        return self._step(schedules.patch_schedule, reference, changes, version=version)

    def delete(self, reference: str) -> None:
        self.store.write_sync(schedules.delete_schedule, reference, endpoint=self.is_endpoint)

    def enable(self, reference: str) -> Any:
        return self._step(schedules.enable_schedule, reference)

    def disable(self, reference: str) -> Any:
        return self._step(schedules.disable_schedule, reference)

    def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> Any:
        return self._step(schedules.pause_schedule, reference, until, reason)

    def resume(self, reference: str) -> Any:
        return self._step(schedules.resume_schedule, reference)

    def reset_failures(self, reference: str) -> Any:
        return self._step(schedules.reset_failure_count, reference)

    def hint(
        self,
        reference: str,
        *,
        interval_s: float | None = None,
        next_run_at: str | None = None,
        ttl_s: float | None = None,
        reason: str | None = None,
    ) -> Any:
        return self._step(
            schedules.set_hints,
            reference,
            interval_s=interval_s,
            next_run_at=next_run_at,
            ttl_s=ttl_s,
            reason=reason,
        )

    def clear_hints(self, reference: str) -> Any:
        return self._step(schedules.clear_hints, reference)

    def trigger(self, reference: str) -> Any:
        occurrence, job = self.store.write_sync(manual_fire.trigger_schedule, reference, endpoint=self.is_endpoint)
        return {**job_json(job), "occurrence": occurrence_json(occurrence)}

    def occurrences(
        self, reference: str, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Any:
        page = self.store.read_sync(
            schedule_reports.occurrences_of,
            reference,
            {"status": [status]} if status else None,
            endpoint=self.is_endpoint,
            limit=limit,
            cursor=cursor,
        )
        return {"items": [occurrence_json(each) for each in page.items], "next_cursor": page.next_cursor}

    def explain(self, reference: str) -> Any:
        from holdbeat.observe.explain_schedule import explain_schedule

        return self.store.read_sync(explain_schedule, reference, endpoint=self.is_endpoint)

    def preview(self, reference: str, *, n: int | None = None) -> Any:
        fires = self.store.read_sync(
            schedule_reports.preview_schedule, reference, n or schedule_reports.PREVIEWED, endpoint=self.is_endpoint
        )
        return preview_json(fires)

    def preview_timetable(self, timetable: Mapping[str, Any]) -> Any:
        fires = self.store.read_sync(schedule_reports.preview_timetable, timetable)
        return preview_json(fires)


class LocalEndpoints(LocalSchedules):
    is_endpoint = True

    def test(self, reference: str) -> Any:
        import asyncio

        from holdbeat.engine.endpoint_test import try_endpoint
        from holdbeat.handlers.outbound import Outbound

        outbound = Outbound(outbound_policy(self.store, self.settings))
        found = asyncio.run(try_endpoint(self.store, outbound, reference))
        result = found.pop("result") or {}
        shown = {name: result.get(name) for name in ("status_code", "headers", "body", "truncated", "duration_s")}
        if isinstance(shown["headers"], dict):
            shown["headers"] = redacted_headers(shown["headers"])
        return {**found, **shown}

    def health(self, reference: str) -> Any:
        return self.store.read_sync(endpoints.endpoint_health, reference)
