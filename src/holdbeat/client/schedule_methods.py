"""Schedules and Endpoints: the same methods under two paths."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from holdbeat.client.method import calls
from holdbeat.schemas.base import Page
from holdbeat.schemas.schedules import (
    Endpoint,
    EndpointHealth,
    EndpointTest,
    Occurrence,
    Preview,
    ScheduleExplanation,
    TriggeredJob,
)

S = TypeVar("S")


class ScheduleMethods(Generic[S]):
    """What schedules and endpoints share; each is named by its id or its name."""

    base_path = "/api/schedules"
    """All paths are below this one."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def _call(self, verb: str, path: str, **options: Any) -> Any:
        return self._client.call(verb, self.base_path + path, **options)

    @calls("POST", "", body="request")
    def create(self, request: Mapping[str, Any]) -> S:
        """Makes a schedule: `{name, type or template, cron or interval_s, ...}`."""

    @calls("GET", "")
    def list(self, /, *, limit: int | None = None, cursor: str | None = None, **filters: Any) -> Page[S]:
        """Lists schedules. Filters: q (a text), enabled, adaptive, paused, failing, type, template_id, order."""

    @calls("GET", "/{reference}")
    def get(self, reference: str) -> S:
        """Reads one schedule."""

    @calls("PATCH", "/{reference}", body="changes")
    def update(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> S:
        """Changes a schedule and plans it again at once; jobs that it made stay as they are.

        With `version` the change is refused if somebody else changed it since.
        """

    @calls("DELETE", "/{reference}", is_repeatable=False)
    def delete(self, reference: str, *, version: int | None = None) -> None:
        """Deletes a schedule. Its jobs and the record of its due times stay."""

    @calls("POST", "/{reference}/enable")
    def enable(self, reference: str) -> S:
        """Lets a schedule fire again, from now on."""

    @calls("POST", "/{reference}/disable")
    def disable(self, reference: str) -> S:
        """Lets a schedule fire no more."""

    @calls("POST", "/{reference}/pause")
    def pause(self, reference: str, *, until: str | None = None, reason: str | None = None) -> S:
        """Pauses a schedule until an instant, or until `resume`."""

    @calls("POST", "/{reference}/resume")
    def resume(self, reference: str) -> S:
        """Ends the pause of a schedule."""

    @calls("POST", "/pause")
    def pause_many(
        self,
        ids: Sequence[str] | None = None,
        *,
        label: str | None = None,
        until: str | None = None,
        reason: str | None = None,
    ) -> Page[S]:
        """Pauses many: those named, or all that are enabled and have a label, written as name=value."""

    @calls("POST", "/resume")
    def resume_many(self, ids: Sequence[str] | None = None, *, label: str | None = None) -> Page[S]:
        """Ends the pauses of many, spread over a minute: those named, all with a label, or all."""

    @calls("POST", "/{reference}/reset-failures")
    def reset_failures(self, reference: str) -> S:
        """Ends the backoff of an adaptive schedule."""

    @calls("POST", "/{reference}/hints")
    def hint(
        self,
        reference: str,
        *,
        interval_s: float | None = None,
        next_run_at: str | None = None,
        ttl_s: float | None = None,
        reason: str | None = None,
    ) -> S:
        """Asks an adaptive schedule for another interval, for a run at an instant, or both."""

    @calls("DELETE", "/{reference}/hints")
    def clear_hints(self, reference: str) -> S:
        """Removes the hints of an adaptive schedule."""

    @calls("POST", "/{reference}/trigger")
    def trigger(self, reference: str) -> TriggeredJob:
        """Fires a schedule now, whatever its timetable says."""

    @calls("GET", "/{reference}/occurrences")
    def occurrences(
        self,
        reference: str,
        *,
        status: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Occurrence]:
        """Lists the due times of a schedule and their verdicts, the latest first."""

    @calls("GET", "/{reference}/explain")
    def explain(self, reference: str) -> ScheduleExplanation:
        """Says why a schedule fires when it does, or why it does not."""

    @calls("GET", "/{reference}/preview")
    def preview(self, reference: str, *, n: int | None = None) -> Preview:
        """Lists the next due times of a schedule."""

    @calls("POST", "/preview", body="timetable", is_repeatable=True)
    def preview_timetable(self, timetable: Mapping[str, Any]) -> Preview:
        """Lists the next due times of a timetable that is not saved: `{cron or interval_s, timezone?, dst?, n?}`."""


class EndpointMethods(ScheduleMethods[Endpoint]):
    """What only endpoints have."""

    base_path = "/api/endpoints"

    @calls("POST", "/{reference}/test", timeout_s=None)
    def test(self, reference: str) -> EndpointTest:
        """Calls the endpoint at once; plan, counters and health stay as they are."""

    @calls("GET", "/{reference}/health")
    def health(self, reference: str) -> EndpointHealth:
        """Reads how an endpoint did over the last 1, 4 and 24 hours."""
