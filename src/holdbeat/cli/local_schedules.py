"""Schedules and Endpoints of the store of this machine, in the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdbeat.domain.bounds import instant
from holdbeat.domain.clock import iso
from holdbeat.domain.views import endpoint_json, job_json, occurrence_json, schedule_json
from holdbeat.store.verbs import schedule_reports, schedules
from holdbeat.store.verbs.endpoints import endpoint_health
from holdbeat.store.verbs.manual_fire import trigger_schedule

if TYPE_CHECKING:
    from holdbeat.domain.cron import Fire
    from holdbeat.domain.schedule import Schedule
    from holdbeat.settings import Settings
    from holdbeat.store.adapter import PersistenceAdapter


class LocalSchedules:
    is_endpoint = False

    def __init__(self, store: PersistenceAdapter, settings: Settings | None = None) -> None:
        self.store = store
        self.settings = settings

    def _shown(self, schedule: Schedule) -> Any:
        return endpoint_json(schedule) if self.is_endpoint else schedule_json(schedule)

    def _step(self, verb: Any, reference: str, *args: Any, **kwargs: Any) -> Any:
        return self._shown(self.store.write_sync(verb, reference, *args, endpoint=self.is_endpoint, **kwargs))

    def create(self, request: Mapping[str, Any]) -> Any:
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
        return self._step(schedules.patch_schedule, reference, changes, version=version)

    def delete(self, reference: str) -> None:
        self.store.write_sync(schedules.delete_schedule, reference, endpoint=self.is_endpoint)

    def enable(self, reference: str) -> Any:
        return self._step(schedules.enable_schedule, reference)

    def disable(self, reference: str) -> Any:
        return self._step(schedules.disable_schedule, reference)

    def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> Any:
        return self._step(schedules.pause_schedule, reference, _instant(until, "until"), reason)

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
            next_run_at=_instant(next_run_at, "next_run_at"),
            ttl_s=ttl_s,
            reason=reason,
        )

    def clear_hints(self, reference: str) -> Any:
        return self._step(schedules.clear_hints, reference)

    def trigger(self, reference: str) -> Any:
        occurrence, job = self.store.write_sync(trigger_schedule, reference, endpoint=self.is_endpoint)
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
        return {"items": [_fire_json(fire) for fire in fires]}

    def preview_timetable(self, timetable: Mapping[str, Any]) -> Any:
        fires = self.store.read_sync(schedule_reports.preview_timetable, timetable)
        return {"items": [_fire_json(fire) for fire in fires]}


class LocalEndpoints(LocalSchedules):
    is_endpoint = True

    def test(self, reference: str) -> Any:
        import asyncio

        from holdbeat.domain.address import OutboundPolicy
        from holdbeat.engine.endpoint_test import try_endpoint
        from holdbeat.handlers.outbound import Outbound

        assert self.settings is not None
        outbound = Outbound(OutboundPolicy(self.settings.is_on_loopback, self.settings.outbound_allow))
        return asyncio.run(try_endpoint(self.store, outbound, reference))

    def health(self, reference: str) -> Any:
        return self.store.read_sync(endpoint_health, reference)


def _instant(text: str | None, field: str) -> datetime | None:
    return None if text is None else instant(text, field)


def _fire_json(fire: Fire) -> dict[str, Any]:
    return {"at": iso(fire.at), "local": fire.local.isoformat(), "note": fire.note}
