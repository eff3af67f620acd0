# Made from asynchronous/schedules.py by tools/unasync.py: change that one, then run `python -m tools.unasync`.
"""Schedules and Endpoints: the same methods on two roads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdbeat.client.blocking.transport import Transport, segment
from holdbeat.client.types import DueTime, Items, JsonObject, Occurrence, Page, Schedule


class Schedules:
    """`client.schedules`; a schedule is named by its id or its name."""

    road = "/api/schedules"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _path(self, reference: str, *parts: str) -> str:
        return "/".join([self.road, segment(reference), *parts])

    def _post(self, reference: str, verb: str, **fields: Any) -> Any:
        body = {name: value for name, value in fields.items() if value is not None}
        return self._transport.call("POST", self._path(reference, verb), body=body)

    def create(self, request: Mapping[str, Any]) -> Schedule:
        """Makes a schedule: `{name, type or template, cron or interval_s, ...}`."""
        made: Schedule = self._transport.call("POST", self.road, body=request)
        return made

    def list(self, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Page[Schedule]:
        """Lists schedules. Filters: enabled, adaptive, paused, type, template_id; order: newest or next_run."""
        query = {**filters, "limit": limit, "cursor": cursor}
        page: Page[Schedule] = self._transport.call("GET", self.road, query=query)
        return page

    def get(self, reference: str) -> Schedule:
        """Reads one schedule."""
        found: Schedule = self._transport.call("GET", self._path(reference))
        return found

    def update(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> Schedule:
        """Changes a schedule and plans it again at once; jobs that it made stay as they are.

        With `version` the change is refused if somebody else changed it since.
        """
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        changed: Schedule = self._transport.call("PATCH", self._path(reference), body=changes, headers=headers)
        return changed

    def delete(self, reference: str) -> None:
        """Deletes a schedule. Its jobs and the record of its due times stay."""
        self._transport.call("DELETE", self._path(reference), is_repeatable=False)

    def enable(self, reference: str) -> Schedule:
        """Lets a schedule fire again, from now on."""
        changed: Schedule = self._post(reference, "enable")
        return changed

    def disable(self, reference: str) -> Schedule:
        """Lets a schedule fire no more."""
        changed: Schedule = self._post(reference, "disable")
        return changed

    def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> Schedule:
        """Pauses a schedule until an instant, or until `resume`."""
        changed: Schedule = self._post(reference, "pause", until=until, reason=reason)
        return changed

    def resume(self, reference: str) -> Schedule:
        """Ends the pause of a schedule."""
        changed: Schedule = self._post(reference, "resume")
        return changed

    def reset_failures(self, reference: str) -> Schedule:
        """Ends the backoff of an adaptive schedule."""
        changed: Schedule = self._post(reference, "reset-failures")
        return changed

    def hint(
        self,
        reference: str,
        *,
        interval_s: float | None = None,
        next_run_at: str | None = None,
        ttl_s: float | None = None,
        reason: str | None = None,
    ) -> Schedule:
        """Asks an adaptive schedule for another interval, for a run at an instant, or both."""
        changed: Schedule = self._post(
            reference, "hints", interval_s=interval_s, next_run_at=next_run_at, ttl_s=ttl_s, reason=reason
        )
        return changed

    def clear_hints(self, reference: str) -> Schedule:
        """Removes the hints of an adaptive schedule."""
        changed: Schedule = self._transport.call("DELETE", self._path(reference, "hints"))
        return changed

    def trigger(self, reference: str) -> JsonObject:
        """Fires a schedule now, whatever its timetable says."""
        fired: JsonObject = self._post(reference, "trigger")
        return fired

    def occurrences(
        self, reference: str, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Occurrence]:
        """Lists the due times of a schedule and what became of each, the latest first."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        page: Page[Occurrence] = self._transport.call("GET", self._path(reference, "occurrences"), query=query)
        return page

    def explain(self, reference: str) -> JsonObject:
        """Says why a schedule fires when it does, or why it does not."""
        said: JsonObject = self._transport.call("GET", self._path(reference, "explain"))
        return said

    def preview(self, reference: str, *, n: int | None = None) -> Items[DueTime]:
        """Lists the next due times of a schedule."""
        times: Items[DueTime] = self._transport.call("GET", self._path(reference, "preview"), query={"n": n})
        return times

    def preview_timetable(self, timetable: Mapping[str, Any]) -> Items[DueTime]:
        """Lists the next due times of a timetable that is not saved: `{cron or interval_s, timezone?, dst?, n?}`."""
        path = f"{self.road}/preview"
        times: Items[DueTime] = self._transport.call("POST", path, body=timetable, is_repeatable=True)
        return times


class Endpoints(Schedules):
    """`client.endpoints`: the methods of schedules, and two more."""

    road = "/api/endpoints"

    def test(self, reference: str) -> JsonObject:
        """Calls the endpoint at once. Its plan, counters and health stay as they are."""
        path = self._path(reference, "test")
        said: JsonObject = self._transport.call("POST", path, timeout_s=None)
        return said

    def health(self, reference: str) -> JsonObject:
        """Reads how an endpoint did over the last 1, 4 and 24 hours."""
        said: JsonObject = self._transport.call("GET", self._path(reference, "health"))
        return said
