"""The Schedule: when to make a Job, and with which settings.

Guards the merged whole: a Schedule that was created or edited always has one timetable (cron or interval),
one thing to run, bounds that do not contradict each other, and the governor's fields only where the governor
plans.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from holdbeat.domain.bounds import check_instant
from holdbeat.domain.cron import Cron, Dst, zone_of
from holdbeat.domain.endpoint import HTTP_TYPE, EndpointCall, validate_call
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.lease import HTTP_RESOURCE

INDEFINITE = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
"""`paused_until` of a pause without an end: the last instant that can be stored."""

GRACE_S = 60.0
"""The grace of a schedule without one of its own. Slots of a cron expression are never closer together."""
VERBS = frozenset({"pause", "preview", "resume"})
"""Words that stand in the API where a name could stand."""

TIMING_FIELDS = ("enabled", "adaptive", "cron", "interval_s", "timezone", "dst", "start_at", "end_at")
"""A change of one of these makes a new timetable; a change of any other leaves the due times as they are."""
INTERVAL_HINT_FIELDS = ("hint_interval_s", "hint_interval_expires_at", "hint_interval_reason")
ONE_SHOT_HINT_FIELDS = ("hint_next_run_at", "hint_next_run_expires_at", "hint_next_run_reason")
HINT_FIELDS = INTERVAL_HINT_FIELDS + ONE_SHOT_HINT_FIELDS


BOTH_HINTS = (
    "Both hints are set: the earlier of the two wins, and the baseline is ignored. Usually one is meant: interval_s "
    "for another pace, next_run_at for a single run. Clear the hints and set that one."
)


class CatchUp(StrEnum):
    """The policy for due times that passed while no trigger ran."""

    LATEST = "latest"
    NONE = "none"
    ALL = "all"


class Overlap(StrEnum):
    """The policy for a due time while an earlier job of the same schedule is unfinished."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    CANCEL_PREVIOUS = "cancel_previous"


@dataclass(slots=True)
class Schedule:
    id: str
    name: str
    created_at: datetime
    enabled: bool = True
    template_id: str | None = None
    type: str | None = None
    params: dict[str, Any] | None = None
    priority: int | None = None
    resource: str | None = None
    retry_policy: dict[str, Any] | None = None
    """The members that it sets; the others come from its template and the job type."""
    timeout_s: float | None = None
    """The Job's timeout. An Endpoint has `endpoint.max_execution_s` instead."""
    webhook_url: str | None = None
    labels: dict[str, str] | None = None
    cron: str | None = None
    interval_s: float | None = None
    timezone: str = "UTC"
    dst: Dst = Dst.VIXIE
    jitter_s: float = 0.0
    start_at: datetime | None = None
    """No due time before it; one exactly at it counts."""
    end_at: datetime | None = None
    """No due time after it; one exactly at it counts."""
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_limit: int = 100
    overlap: Overlap = Overlap.ALLOW
    adaptive: bool = False
    min_interval_s: float | None = None
    max_interval_s: float | None = None
    paused_until: datetime | None = None
    pause_reason: str | None = None
    hint_interval_s: float | None = None
    hint_interval_expires_at: datetime | None = None
    hint_interval_reason: str | None = None
    hint_next_run_at: datetime | None = None
    hint_next_run_expires_at: datetime | None = None
    hint_next_run_reason: str | None = None
    failure_count: int = 0
    last_run_at: datetime | None = None
    """Start of the latest run."""
    next_run_at: datetime | None = None
    """The next due time to be judged, without jitter; None while disabled, over or in flight."""
    last_decision: dict[str, Any] | None = None
    version: int = 1
    misfire_grace_s: float | None = None
    """A due time that is not later than this simply fires; None: `GRACE_S`, or the interval if that is less."""
    cancel_grace_s: float | None = None
    """How long a cancelled handler has before it is killed; None: as the template or the job type says."""
    endpoint: EndpointCall | None = None
    trouble: str | None = None
    """Why its due times cannot be told, such as a zone that is gone; the trigger tries again until they can."""

    @property
    def grace_s(self) -> float:
        """How late a due time may be and still count as on time."""
        if self.misfire_grace_s is not None:
            return self.misfire_grace_s
        if self.adaptive or self.interval_s is None:
            return GRACE_S
        return min(GRACE_S, self.interval_s)

    @property
    def warnings(self) -> list[str]:
        """Warnings about settings that its owner may not have meant, with what to do about them."""
        has_both = self.hint_interval_s is not None and self.hint_next_run_at is not None
        return [BOTH_HINTS] if has_both else []

    def is_paused(self, at: datetime) -> bool:
        return self.paused_until is not None and at < self.paused_until


def instant_in(timezone: Any, value: Any, field: str) -> datetime:
    """An instant; a text without an offset is wall time in a time zone, which is looked up only then."""
    has_offset = True
    if isinstance(value, str):
        with suppress(ValueError):
            has_offset = datetime.fromisoformat(value).tzinfo is not None
    return check_instant(value, field, UTC if has_offset else zone_of(timezone))


def validate(schedule: Schedule, *, reads_timetable: bool = True) -> None:
    """Refuses a schedule that contradicts itself; looks at the merged whole, never at a request alone.

    Single fields were checked when they were read (`schedule_edit.py`).
    `reads_timetable` is false where the timetable stays as it was: one whose zone is gone since can still be disabled.
    """
    if schedule.name in VERBS:
        raise Invalid(
            f"{schedule.name!r} cannot be a name: it is what one asks of schedules. Choose another.",
            code="reserved_name",
            field="name",
        )
    _validate_work(schedule)
    _validate_timetable(schedule, reads_timetable)
    if schedule.adaptive:
        _validate_adaptive(schedule)
    else:
        _refuse_adaptive_fields(schedule)


def _validate_work(schedule: Schedule) -> None:
    if schedule.endpoint is not None:
        validate_call(schedule.endpoint)
        if schedule.type is not None or schedule.template_id is not None:
            raise Invalid(
                "An endpoint makes its own HTTP call: leave out type and template.",
                code="ambiguous_type",
                field="type",
            )
        if not schedule.adaptive:
            raise Invalid("An endpoint is always adaptive.", code="endpoint_is_adaptive", field="adaptive")
    elif schedule.type is None and schedule.template_id is None:
        raise Invalid("Say what to run: give a type or a template.", code="missing_type", field="type")
    elif schedule.type is not None and schedule.template_id is not None:
        raise Invalid("Give a type or a template, not both.", code="ambiguous_type", field="type")


def _validate_timetable(schedule: Schedule, reads: bool) -> None:
    if (schedule.cron is None) == (schedule.interval_s is None):
        raise Invalid(
            "A schedule has either a cron expression or interval_s: give one of them.",
            code="cron_or_interval",
            field="cron" if schedule.cron is None else "interval_s",
        )
    if reads:
        zone_of(schedule.timezone)
    if schedule.cron is not None:
        if reads:
            step_s = Cron.parse(schedule.cron).shortest_step.total_seconds()
            if schedule.jitter_s > step_s:
                raise Invalid(
                    f"jitter_s must not exceed {step_s:g} s, the least time between two due times of {schedule.cron}.",
                    code="jitter_exceeds_interval",
                    field="jitter_s",
                )
    elif schedule.interval_s is not None and schedule.jitter_s > schedule.interval_s:
        # Beyond the interval one due time would overtake the next.
        raise Invalid("jitter_s must not exceed interval_s.", code="jitter_exceeds_interval", field="jitter_s")
    if schedule.start_at and schedule.end_at and schedule.start_at >= schedule.end_at:
        raise Invalid("start_at must lie before end_at.", code="start_after_end", field="end_at")


def _validate_adaptive(schedule: Schedule) -> None:
    if schedule.overlap is not Overlap.SKIP:
        raise Invalid(
            "An adaptive schedule never overlaps itself: its overlap is skip.",
            code="adaptive_overlap",
            field="overlap",
        )
    if schedule.catch_up is not CatchUp.LATEST:
        raise Invalid(
            "An adaptive schedule catches up with one run: its catch_up is latest.",
            code="adaptive_catch_up",
            field="catch_up",
        )
    if schedule.misfire_grace_s is not None:
        raise Invalid(
            "An adaptive schedule runs at its planned time however late that is: leave out misfire_grace_s.",
            code="adaptive_catch_up",
            field="misfire_grace_s",
        )
    low, high = schedule.min_interval_s, schedule.max_interval_s
    if low is not None and high is not None and low > high:
        raise Invalid(
            f"min_interval_s ({low:g}) must not exceed max_interval_s ({high:g}).",
            code="min_exceeds_max",
            field="min_interval_s",
        )


def _refuse_adaptive_fields(schedule: Schedule) -> None:
    for name in ("min_interval_s", "max_interval_s", "hint_interval_s", "hint_next_run_at"):
        if getattr(schedule, name) is not None:
            raise Invalid(
                f"{name} belongs to adaptive schedules: clear it, or set adaptive to true.",
                code="not_adaptive",
                field=name,
            )


def job_for(schedule: Schedule, due_at: datetime | None) -> dict[str, Any]:
    """The schedule's own layer of the defaults for one job: only what it sets itself, never a null.

    The layers below (template, job type, settings) are merged in when the job is made.
    """
    if schedule.endpoint is not None:
        call = schedule.endpoint
        own: dict[str, Any] = {
            "type": HTTP_TYPE,
            "params": {
                "url": call.url,
                "method": call.method,
                "headers": dict(call.headers),
                "body": call.body,
                "timeout_s": call.timeout_s,
                "max_response_kb": call.max_response_kb,
            },
            "resource": HTTP_RESOURCE,
            "timeout_s": call.max_execution_s,
            "retry_policy": RetryPolicy(max_attempts=0),
        }
    else:
        own = {
            "type": schedule.type,
            "params": schedule.params,
            "resource": schedule.resource,
            "timeout_s": schedule.timeout_s,
            "cancel_grace_s": schedule.cancel_grace_s,
            "retry_policy": schedule.retry_policy,
        }
    own |= {
        "template_id": schedule.template_id,
        "priority": schedule.priority,
        "webhook_url": schedule.webhook_url,
        "labels": schedule.labels,
        "schedule_id": schedule.id,
        "schedule_name": schedule.name,
        "scheduled_for": due_at,
    }
    return {name: value for name, value in own.items() if value is not None}
