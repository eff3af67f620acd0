"""Making and editing a Schedule from named fields, as a request brings them.

Guards that a partial edit never leaves half a schedule: each field is read into its own form, what excludes
the new value gives way, and the merged whole is validated before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from holdbeat.domain.bounds import (
    check_choice,
    check_duration_s,
    check_flag,
    check_line,
    check_number,
    check_whole_number,
)
from holdbeat.domain.cron import Dst
from holdbeat.domain.endpoint import EndpointCall
from holdbeat.domain.errors import Invalid
from holdbeat.domain.old_words import field_hint
from holdbeat.domain.params import check_labels
from holdbeat.domain.schedule import (
    HINT_FIELDS,
    TIMING_FIELDS,
    CatchUp,
    Overlap,
    Schedule,
    instant_in,
    validate,
)
from holdbeat.domain.submission import DEFAULT_READERS, check_params
from holdbeat.schemas import field_bounds

Reader = Callable[[Any, str], Any]


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{field} must be a text.", code="invalid_text", field=field)
    return value


def _interval(value: Any, field: str) -> float:
    return check_duration_s(value, field, field_bounds.SHORTEST_INTERVAL_S, field_bounds.LONGEST_INTERVAL_S)


def _headers(value: Any, field: str) -> dict[str, str]:
    headers = {} if value is None else value
    if not isinstance(headers, dict):
        raise Invalid(f"{field} must be an object.", code="invalid_object", field=field)
    if not all(isinstance(text, str) for text in (*headers, *headers.values())):
        raise Invalid(f"{field} must be an object of texts.", code="invalid_object", field=field)
    return dict(headers)


_NULLABLE: dict[str, Reader] = {
    "template_id": check_line,
    "type": check_line,
    "params": lambda value, field: deepcopy(check_params(value, field)),
    **DEFAULT_READERS,
    "labels": lambda value, field: dict(check_labels(value, field=field)),
    "cron": _text,
    "interval_s": _interval,
    "min_interval_s": _interval,
    "max_interval_s": _interval,
    "misfire_grace_s": lambda value, field: check_duration_s(value, field, 0, field_bounds.LONGEST_GRACE_S),
}
_INSTANTS = ("start_at", "end_at")
_REQUIRED: dict[str, Reader] = {
    "name": check_line,
    "enabled": check_flag,
    "timezone": _text,
    "dst": partial(check_choice, Dst),
    "jitter_s": lambda value, field: check_number(value, field, 0, field_bounds.LONGEST_JITTER_S),
    "catch_up": partial(check_choice, CatchUp),
    "catch_up_limit": lambda value, field: check_whole_number(value, field, 1, field_bounds.MOST_CAUGHT_UP),
    "overlap": partial(check_choice, Overlap),
    "adaptive": check_flag,
}
_CALL: dict[str, Reader] = {
    "url": _text,
    "method": lambda value, field: _text(value, field).upper(),
    "headers": _headers,
    "body": lambda value, field: deepcopy(value),
    "timeout_s": lambda value, field: check_duration_s(value, field, 0.1, field_bounds.LONGEST_CALL_S),
    "max_execution_s": lambda value, field: check_duration_s(value, field, 0.1, field_bounds.LONGEST_CALL_S),
    "max_response_kb": lambda value, field: check_whole_number(value, field, 1, field_bounds.LARGEST_RESPONSE_KB),
}
TOLD_ON_CHANGE = (
    "name", "type", "template_id", "priority", "resource", "timeout_s", "labels", "cron", "interval_s", "timezone",
    "dst", "jitter_s", "start_at", "end_at", "catch_up", "catch_up_limit", "overlap", "adaptive", "min_interval_s",
    "max_interval_s",
)  # fmt: skip
"""Fields whose values may be recorded with an edit; params, URLs, headers and bodies may hold secrets."""


_FIXED_BY_ENDPOINT = frozenset({"template_id", "type", "params", "resource", "retry_policy", "cancel_grace_s"})
_EXCLUDES = {"cron": "interval_s", "interval_s": "cron", "type": "template_id", "template_id": "type"}


def created(schedule_id: str, fields: Mapping[str, Any], now: datetime, *, endpoint: bool = False) -> Schedule:
    """A new schedule from a request's fields; an Endpoint is adaptive, and adaptive means overlap `skip`."""
    own, call = _read(fields, endpoint, fields.get("timezone", "UTC"))
    if "name" not in own:
        raise Invalid("Give the schedule a name.", code="missing_field", field="name")
    if endpoint:
        if "url" not in call:
            raise Invalid("Give the endpoint a url.", code="missing_field", field="url")
        own["endpoint"] = EndpointCall(**call)
        own.setdefault("adaptive", True)
    if own.get("adaptive"):
        own.setdefault("overlap", Overlap.SKIP)
    schedule = Schedule(id=schedule_id, created_at=now, **own)
    validate(schedule)
    return schedule


def edited(schedule: Schedule, changes: Mapping[str, Any]) -> Schedule:
    """A copy with the changes applied, or a refusal; the given schedule stays as it is.

    A new `interval_s` takes the place of the cron expression, and the other way round; likewise `type` and
    `template_id`. Turning `adaptive` on makes the overlap `skip` where it was `allow`; turning it off drops
    the hints and the failure count, but clamps have to be cleared by name. `version` is left to the store.
    """
    own, call = _read(changes, schedule.endpoint is not None, changes.get("timezone", schedule.timezone))
    for name, excluded in _EXCLUDES.items():
        if own.get(name) is not None and own.get(excluded) is None:
            own[excluded] = None
    if own.get("adaptive") is True and not schedule.adaptive and schedule.overlap is Overlap.ALLOW:
        own.setdefault("overlap", Overlap.SKIP)
    if own.get("adaptive") is False and schedule.adaptive:
        own |= dict.fromkeys(HINT_FIELDS) | {"failure_count": 0}
    if call and schedule.endpoint is not None:
        own["endpoint"] = replace(schedule.endpoint, **call)
    result = replace(schedule, **own)
    changed = {name for name in TIMING_FIELDS if getattr(result, name) != getattr(schedule, name)}
    is_read = bool(changed - {"enabled"}) or (bool(changed) and result.enabled) or result.jitter_s > schedule.jitter_s
    validate(result, reads_timetable=is_read)
    return result


def _read(fields: Mapping[str, Any], is_endpoint: bool, timezone: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits fields into the schedule's own and the call's. Instants without an offset are in its own `timezone`."""
    own: dict[str, Any] = {}
    call: dict[str, Any] = {}
    for name, value in fields.items():
        if is_endpoint and name in _CALL:
            if value is None and name not in ("body", "headers"):
                raise Invalid(f"{name} cannot be null.", code="missing_field", field=name)
            call[name] = _CALL[name](value, name)
        elif is_endpoint and name in _FIXED_BY_ENDPOINT:
            raise Invalid(f"An endpoint has no {name}: it makes an HTTP call.", code="unknown_field", field=name)
        elif name in _INSTANTS:
            own[name] = None if value is None else instant_in(_text(timezone, "timezone"), value, name)
        elif name in _NULLABLE:
            own[name] = None if value is None else _NULLABLE[name](value, name)
        elif name in _REQUIRED:
            if value is None:
                raise Invalid(f"{name} cannot be null.", code="missing_field", field=name)
            own[name] = _REQUIRED[name](value, name)
        else:
            hint = field_hint(name)
            raise Invalid(f"A schedule has no field {name} to set.{hint}", code="unknown_field", field=name)
    return own, call
