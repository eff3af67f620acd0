"""Schedules and Endpoints: the same methods on two roads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdbeat.client.asynchronous.transport import AsyncTransport, segment
from holdbeat.client.types import DueTime, Items, JsonObject, Occurrence, Page, Schedule


class AsyncSchedules:
    """`client.schedules`; a schedule is named by its id or its name."""

    road = "/api/schedules"

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def _path(self, reference: str, *parts: str) -> str:
        return "/".join([self.road, segment(reference), *parts])

    async def _post(self, reference: str, verb: str, **fields: Any) -> Any:
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._transport.call("POST", self._path(reference, verb), body=body)

    async def create(self, request: Mapping[str, Any]) -> Schedule:
        made: Schedule = await self._transport.call("POST", self.road, body=request)
        return made

    async def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Page[Schedule]:
        """Filters: enabled, adaptive, paused, type, template_id; order: newest or next_run."""
        query = {**filters, "limit": limit, "cursor": cursor}
        page: Page[Schedule] = await self._transport.call("GET", self.road, query=query)
        return page

    async def get(self, reference: str) -> Schedule:
        found: Schedule = await self._transport.call("GET", self._path(reference))
        return found

    async def update(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> Schedule:
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        changed: Schedule = await self._transport.call("PATCH", self._path(reference), body=changes, headers=headers)
        return changed

    async def delete(self, reference: str) -> None:
        await self._transport.call("DELETE", self._path(reference), is_repeatable=False)

    async def enable(self, reference: str) -> Schedule:
        changed: Schedule = await self._post(reference, "enable")
        return changed

    async def disable(self, reference: str) -> Schedule:
        changed: Schedule = await self._post(reference, "disable")
        return changed

    async def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> Schedule:
        changed: Schedule = await self._post(reference, "pause", until=until, reason=reason)
        return changed

    async def resume(self, reference: str) -> Schedule:
        changed: Schedule = await self._post(reference, "resume")
        return changed

    async def reset_failures(self, reference: str) -> Schedule:
        changed: Schedule = await self._post(reference, "reset-failures")
        return changed

    async def hint(
        self,
        reference: str,
        *,
        interval_s: float | None = None,
        next_run_at: str | None = None,
        ttl_s: float | None = None,
        reason: str | None = None,
    ) -> Schedule:
        """Asks an adaptive schedule for another pace, for a run at a time, or both."""
        changed: Schedule = await self._post(
            reference, "hints", interval_s=interval_s, next_run_at=next_run_at, ttl_s=ttl_s, reason=reason
        )
        return changed

    async def clear_hints(self, reference: str) -> Schedule:
        changed: Schedule = await self._transport.call("DELETE", self._path(reference, "hints"))
        return changed

    async def trigger(self, reference: str) -> JsonObject:
        """Fires now, whatever the timetable says."""
        fired: JsonObject = await self._post(reference, "trigger")
        return fired

    async def occurrences(
        self, reference: str, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Occurrence]:
        query = {"status": status, "limit": limit, "cursor": cursor}
        page: Page[Occurrence] = await self._transport.call("GET", self._path(reference, "occurrences"), query=query)
        return page

    async def explain(self, reference: str) -> JsonObject:
        said: JsonObject = await self._transport.call("GET", self._path(reference, "explain"))
        return said

    async def preview(self, reference: str, *, n: int | None = None) -> Items[DueTime]:
        """The next due times of a schedule."""
        times: Items[DueTime] = await self._transport.call("GET", self._path(reference, "preview"), query={"n": n})
        return times

    async def preview_timetable(self, timetable: Mapping[str, Any]) -> Items[DueTime]:
        """The next due times of a timetable that nobody saved: {cron or interval_s, timezone?, dst?, after?, n?}."""
        path = f"{self.road}/preview"
        times: Items[DueTime] = await self._transport.call("POST", path, body=timetable, is_repeatable=True)
        return times


class AsyncEndpoints(AsyncSchedules):
    """`client.endpoints`."""

    road = "/api/endpoints"

    async def test(self, reference: str) -> JsonObject:
        """Calls the endpoint at once; plan, counters and health stay as they are."""
        path = self._path(reference, "test")
        said: JsonObject = await self._transport.call("POST", path, timeout_s=None)
        return said

    async def health(self, reference: str) -> JsonObject:
        said: JsonObject = await self._transport.call("GET", self._path(reference, "health"))
        return said
