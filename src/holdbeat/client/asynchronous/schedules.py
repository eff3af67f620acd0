"""Schedules and Endpoints: the same methods under two paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from holdbeat.client.asynchronous.transport import AsyncTransport, if_match, segment, sent
from holdbeat.schemas.base import Page
from holdbeat.schemas.schedules import (
    Endpoint,
    EndpointHealth,
    EndpointTest,
    Occurrence,
    Preview,
    Schedule,
    ScheduleExplanation,
    TriggeredJob,
)

S = TypeVar("S")


class AsyncScheduleMethods(Generic[S]):
    """What schedules and endpoints share; each is named by its id or its name."""

    base_path: str

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def _path(self, reference: str, *parts: str) -> str:
        return "/".join([self.base_path, segment(reference), *parts])

    async def _post(self, reference: str, verb: str, **fields: Any) -> Any:
        return await self._transport.call("POST", self._path(reference, verb), body=sent(**fields))

    async def create(self, request: Mapping[str, Any]) -> S:
        """Makes a schedule: `{name, type or template, cron or interval_s, ...}`."""
        return await self._transport.call("POST", self.base_path, body=request)

    async def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Page[S]:
        """Lists schedules. Filters: q (a text), enabled, adaptive, paused, failing, type, template_id, order."""
        query = {**filters, "limit": limit, "cursor": cursor}
        return await self._transport.call("GET", self.base_path, query=query)

    async def get(self, reference: str) -> S:
        """Reads one schedule."""
        return await self._transport.call("GET", self._path(reference))

    async def update(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> S:
        """Changes a schedule and plans it again at once; jobs that it made stay as they are.

        With `version` the change is refused if somebody else changed it since.
        """
        return await self._transport.call("PATCH", self._path(reference), body=changes, headers=if_match(version))

    async def delete(self, reference: str, *, version: int | None = None) -> None:
        """Deletes a schedule. Its jobs and the record of its due times stay."""
        path = self._path(reference)
        await self._transport.call("DELETE", path, headers=if_match(version), is_repeatable=False)

    async def enable(self, reference: str) -> S:
        """Lets a schedule fire again, from now on."""
        return await self._post(reference, "enable")

    async def disable(self, reference: str) -> S:
        """Lets a schedule fire no more."""
        return await self._post(reference, "disable")

    async def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> S:
        """Pauses a schedule until an instant, or until `resume`."""
        return await self._post(reference, "pause", until=until, reason=reason)

    async def resume(self, reference: str) -> S:
        """Ends the pause of a schedule."""
        return await self._post(reference, "resume")

    async def pause_many(
        self,
        ids: Sequence[str] | None = None,
        *,
        label: str | None = None,
        until: str | None = None,
        reason: str | None = None,
    ) -> Page[S]:
        """Pauses many: those named, or all that are enabled and have a label, written as name=value."""
        body = sent(ids=None if ids is None else [*ids], label=label, until=until, reason=reason)
        return await self._transport.call("POST", f"{self.base_path}/pause", body=body)

    async def resume_many(self, ids: Sequence[str] | None = None, *, label: str | None = None) -> Page[S]:
        """Ends the pauses of many, spread over a minute: those named, all with a label, or all."""
        body = sent(ids=None if ids is None else [*ids], label=label)
        return await self._transport.call("POST", f"{self.base_path}/resume", body=body)

    async def reset_failures(self, reference: str) -> S:
        """Ends the backoff of an adaptive schedule."""
        return await self._post(reference, "reset-failures")

    async def hint(
        self,
        reference: str,
        *,
        interval_s: float | None = None,
        next_run_at: str | None = None,
        ttl_s: float | None = None,
        reason: str | None = None,
    ) -> S:
        """Asks an adaptive schedule for another interval, for a run at an instant, or both."""
        return await self._post(
            reference, "hints", interval_s=interval_s, next_run_at=next_run_at, ttl_s=ttl_s, reason=reason
        )

    async def clear_hints(self, reference: str) -> S:
        """Removes the hints of an adaptive schedule."""
        return await self._transport.call("DELETE", self._path(reference, "hints"))

    async def trigger(self, reference: str) -> TriggeredJob:
        """Fires a schedule now, whatever its timetable says."""
        return await self._post(reference, "trigger")

    async def occurrences(
        self,
        reference: str,
        *,
        status: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Occurrence]:
        """Lists the due times of a schedule and their verdicts, the latest first."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return await self._transport.call("GET", self._path(reference, "occurrences"), query=query)

    async def explain(self, reference: str) -> ScheduleExplanation:
        """Says why a schedule fires when it does, or why it does not."""
        return await self._transport.call("GET", self._path(reference, "explain"))

    async def preview(self, reference: str, *, n: int | None = None) -> Preview:
        """Lists the next due times of a schedule."""
        return await self._transport.call("GET", self._path(reference, "preview"), query={"n": n})

    async def preview_timetable(self, timetable: Mapping[str, Any]) -> Preview:
        """Lists the next due times of a timetable that is not saved: `{cron or interval_s, timezone?, dst?, n?}`."""
        path = f"{self.base_path}/preview"
        return await self._transport.call("POST", path, body=timetable, is_repeatable=True)


class AsyncSchedules(AsyncScheduleMethods[Schedule]):
    """`client.schedules`."""

    base_path = "/api/schedules"


class AsyncEndpoints(AsyncScheduleMethods[Endpoint]):
    """`client.endpoints`."""

    base_path = "/api/endpoints"

    async def test(self, reference: str) -> EndpointTest:
        """Calls the endpoint at once; plan, counters and health stay as they are."""
        path = self._path(reference, "test")
        return await self._transport.call("POST", path, timeout_s=None)

    async def health(self, reference: str) -> EndpointHealth:
        """Reads how an endpoint did over the last 1, 4 and 24 hours."""
        return await self._transport.call("GET", self._path(reference, "health"))
