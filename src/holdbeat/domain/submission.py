"""The Submission: a request for one Job as somebody sent it, and how the layers of defaults become a NewJob.

Guards the order of the layers: job > schedule > template > job type > settings. The nearest layer that says something
wins; params and the members of a retry policy are merged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from holdbeat.domain.bounds import (
    LAST_INSTANT,
    check_choice,
    check_duration_s,
    check_flag,
    check_instant,
    check_line,
    check_number,
    check_whole_number,
)
from holdbeat.domain.clock import iso, to_millis
from holdbeat.domain.dependencies import OnUpstream, check_after, check_on_upstream
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import (
    DEFAULT_CANCEL_GRACE_S,
    DEFAULT_RESOURCE,
    DEFAULT_RETRY_POLICY,
    PREEMPTIBLE,
    PREEMPTS,
    Hold,
    NewJob,
    OnDuplicate,
    RetryPolicy,
    UniqueWhile,
)
from holdbeat.domain.params import check_json, check_labels, check_text, request_hash
from holdbeat.schemas import field_bounds

Layer = Mapping[str, Any]
"""What one layer says: only the fields that it sets."""


# --- single fields ----------------------------------------------------------------------------------------


def check_resource(value: Any, field: str = "resource") -> str:
    """The name of a resource: one line without blanks at its ends; `*` means all of them and names none."""
    name = check_line(value, field)
    if name == "*" or name != name.strip():
        raise Invalid(
            f"{name!r} cannot name a resource; use letters and digits, such as gpu.",
            code="invalid_resource",
            field=field,
        )
    return name


def check_priority(value: Any, field: str = "priority") -> int:
    return check_whole_number(value, field, 0, field_bounds.PRIORITY_MAX)


def check_timeout(value: Any, field: str = "timeout_s") -> float:
    return check_duration_s(value, field, 0.001)


def check_cancel_grace(value: Any, field: str = "cancel_grace_s") -> float | None:
    """None is a value of its own here: never kill."""
    return None if value is None else check_duration_s(value, field, 0)


def check_params(value: Any, field: str = "params") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid(f"{field} must be an object.", code="invalid_params", field=field)
    check_json(value, field=field)
    return value


def check_webhook_url(value: Any, field: str = "webhook_url") -> str:
    """An address that a message could be sent to. Whether it may be is decided when it is (SEC-04)."""
    url = check_text(value, field, field_bounds.LONGEST_URL)
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or " " in url or "\\" in url:
        raise Invalid(f"{field} must be an address such as https://example.org/hook.", code="invalid_url", field=field)
    if parts.username is not None or parts.password is not None:
        raise Invalid(f"{field} must not carry credentials: it is shown in lists.", code="invalid_url", field=field)
    return url


def check_retry_policy(value: Any, field: str = "retry_policy") -> dict[str, Any]:
    """The members of a retry policy that were given; a policy as a whole gives all of them."""
    if isinstance(value, RetryPolicy):
        return dict(value.as_dict())
    if not isinstance(value, Mapping):
        raise Invalid(f"{field} must be an object.", code="invalid_object", field=field)
    for name, amount in value.items():
        place = f"{field}.{name}"
        if name == "max_attempts":
            check_whole_number(amount, place, 0, field_bounds.ATTEMPTS_MAX)
        elif name in ("base_delay_s", "max_delay_s"):
            check_duration_s(amount, place, 0)
        elif name == "jitter":
            check_number(amount, place, 0, 1)
        else:
            members = ", ".join(DEFAULT_RETRY_POLICY.as_dict())
            raise Invalid(f"{field} has no member {name}; it has {members}.", code="unknown_field", field=place)
    return dict(value)


def _title(value: Any, field: str) -> str:
    """Any text: line breaks and control characters are taken out when the job is made."""
    if not isinstance(value, str) or not 1 <= len(value) <= field_bounds.LONGEST_GIVEN_TITLE:
        longest = field_bounds.LONGEST_GIVEN_TITLE
        raise Invalid(f"{field} must be a text of 1 to {longest} characters.", code="invalid_text", field=field)
    return value


_READERS: dict[str, Any] = {
    "type": check_line,
    "template": check_line,
    "params": check_params,
    "priority": check_priority,
    "resource": check_resource,
    "not_before": check_instant,
    "delay_s": lambda value, field: check_duration_s(value, field, 0, field_bounds.LONGEST_DELAY_S),
    "timeout_s": check_timeout,
    "retry_policy": check_retry_policy,
    "idempotency_key": lambda value, field: check_text(value, field, field_bounds.LONGEST_KEY),
    "webhook_url": check_webhook_url,
    "labels": lambda value, field: check_labels(value),
    "partition": check_line,
    "title": _title,
    "after": check_after,
    "on_upstream": check_on_upstream,
    "ref": check_line,
    "unique_key": lambda value, field: check_text(value, field, field_bounds.LONGEST_KEY),
    "unique_while": lambda value, field: check_choice(UniqueWhile, value, field, code="invalid_choice"),
    "on_duplicate": lambda value, field: check_choice(OnDuplicate, value, field, code="invalid_choice"),
    "max_wait_s": lambda value, field: check_duration_s(value, field, 0.001, field_bounds.LONGEST_DELAY_S),
    "expires_at": check_instant,
    "expires_in_s": lambda value, field: check_duration_s(value, field, 0.001, field_bounds.LONGEST_DELAY_S),
    "weight": lambda value, field: check_whole_number(value, field, 1, field_bounds.HEAVIEST),
    "preempt": check_flag,
}
DEFAULT_READERS: dict[str, Callable[[Any, str], Any]] = {
    "priority": check_priority,
    "resource": check_resource,
    "retry_policy": check_retry_policy,
    "timeout_s": check_timeout,
    "cancel_grace_s": check_cancel_grace,
    "webhook_url": check_webhook_url,
}
"""The checks of what templates and schedules give to their jobs."""

_OF_KEYS = ("unique_while", "on_duplicate", "max_wait_s")
_MERGED = frozenset({"priority", "resource", "timeout_s", "webhook_url", "labels", "weight"})


# --- the request ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Submission:
    """One Job as it was asked for: checked field by field, nothing merged in yet."""

    type: str | None = None
    template: str | None = None
    """Id or name."""
    own: dict[str, Any] = field(default_factory=dict)
    """The job's own layer."""
    not_before: datetime | None = None
    delay_s: float | None = None
    idempotency_key: str | None = None
    request_hash: str | None = None
    schedule: Layer | None = None
    """The layer of the Schedule that makes the job (`schedule.job_for`)."""
    hold: Hold | None = None
    trace: str | None = None
    parent_id: str | None = None
    """The first job of the chain whose handler submits it."""
    is_detached: bool = False
    is_awaited: bool = False
    actor: str | None = None
    """Who submits it."""

    @staticmethod
    def read(fields: Mapping[str, Any], *, place: str = "") -> Submission:
        """Checks a request. A field that is null counts as not given; only `cancel_grace_s` means something by it.

        `place` goes in front of the names of refused fields, such as `jobs[3].`.
        """
        try:
            return _read(fields)
        except Invalid as refusal:
            if place and refusal.field is not None:
                refusal.field = f"{place}{refusal.field}"
            raise

    @staticmethod
    def for_schedule(layer: Layer, *, hold: Hold | None = None, trace: str | None = None) -> Submission:
        """The submission of a Schedule that fires: its layer, and none of the job's own."""
        template = layer.get("template_id")
        type_ = layer.get("type") if template is None else None
        return Submission(type_, template, schedule=layer, hold=hold, trace=trace)


def _read(fields: Mapping[str, Any]) -> Submission:
    values: dict[str, Any] = {}
    for name, value in fields.items():
        reader = _READERS.get(name)
        if reader is not None:
            if value is not None:
                values[name] = reader(value, name)
        elif name == "cancel_grace_s":
            values[name] = check_cancel_grace(value)
        else:
            raise Invalid(
                f"{name} is not a field of a job; its fields are {', '.join((*_READERS, 'cancel_grace_s'))}.",
                code="unknown_field",
                field=str(name),
            )
    if "not_before" in values and "delay_s" in values:
        raise Invalid("Give not_before or delay_s, not both.", code="not_before_or_delay", field="delay_s")
    submission = Submission(
        values.pop("type", None),
        values.pop("template", None),
        not_before=values.pop("not_before", None),
        delay_s=values.pop("delay_s", None),
        idempotency_key=values.pop("idempotency_key", None),
        own=values,
    )
    if "on_upstream" in values and not values.get("after"):
        raise Invalid(
            "on_upstream says what to do if something named in after does not complete: give after, too.",
            code="missing_after",
            field="on_upstream",
        )
    _check_unique(values, submission)
    if "expires_at" in values and "expires_in_s" in values:
        raise Invalid("Give expires_at or expires_in_s, not both.", code="two_expiries", field="expires_in_s")
    if submission.type is None and submission.template is None:
        raise Invalid("Say what to run: give a type or a template.", code="missing_type", field="type")
    if submission.idempotency_key is not None:
        submission.request_hash = fingerprint(fields)
    return submission


def _check_unique(values: Mapping[str, Any], submission: Submission) -> None:
    alone = next((name for name in _OF_KEYS if name in values and "unique_key" not in values), None)
    if alone is not None:
        raise Invalid(f"{alone} is about jobs with one unique_key: give that, too.", code="missing_key", field=alone)
    is_pushed = values.get("on_duplicate") == OnDuplicate.PUSH_BACK
    if is_pushed and submission.delay_s is None and submission.not_before is None:
        raise Invalid(
            "push_back moves the start of the job that waits to that of this one: give delay_s or not_before.",
            code="missing_delay",
            field="on_duplicate",
        )
    if "max_wait_s" in values and not is_pushed:
        raise Invalid("max_wait_s limits on_duplicate push_back.", code="missing_push_back", field="max_wait_s")


def _expiry(submission: Submission, not_before: datetime | None, now: datetime) -> datetime | None:
    expires_at: datetime | None = submission.own.get("expires_at")
    if "expires_in_s" in submission.own:
        expires_at = to_millis(min(now + timedelta(seconds=submission.own["expires_in_s"]), LAST_INSTANT))
    if expires_at is not None and not_before is not None and expires_at <= not_before:
        raise Invalid(
            "It would expire before it may start: expires_at must lie after not_before.",
            code="expires_too_early",
            field="expires_in_s" if "expires_in_s" in submission.own else "expires_at",
        )
    return expires_at


def fingerprint(fields: Mapping[str, Any]) -> str:
    """The hash of a request as it was sent, apart from its key and what was left empty (QUE-01)."""
    sent = as_sent(fields)
    sent.pop("idempotency_key", None)
    return request_hash(sent)


def as_sent(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request in the form of JSON, without those that were left empty."""
    return {name: _plain(value) for name, value in fields.items() if value is not None or name == "cancel_grace_s"}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    return value.as_dict() if isinstance(value, RetryPolicy) else value


# --- the snapshot -----------------------------------------------------------------------------------------


def merged(submission: Submission, type_: str, below: Sequence[Layer], now: datetime) -> NewJob:
    """The NewJob of a submission over the layers below it, nearest first (schedule, template, job type)."""
    layers = [submission.own, *below]
    params: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for layer in reversed(layers):
        for name, value in layer.items():
            if name == "cancel_grace_s" or (value is not None and name in _MERGED):
                chosen[name] = value
            elif name == "params":
                params |= value or {}
            elif name == "retry_policy" and value is not None:
                policy |= check_retry_policy(value)
    not_before = submission.not_before
    if submission.delay_s is not None:
        not_before = to_millis(min(now + timedelta(seconds=submission.delay_s), LAST_INSTANT))
    schedule = submission.schedule or {}
    after = submission.own.get("after") or ()
    return NewJob(
        type=type_,
        params=params,
        priority=chosen.get("priority", 0),
        resource=chosen.get("resource", DEFAULT_RESOURCE),
        retry_policy=RetryPolicy(**{**DEFAULT_RETRY_POLICY.as_dict(), **policy}) if policy else DEFAULT_RETRY_POLICY,
        timeout_s=chosen.get("timeout_s"),
        cancel_grace_s=chosen.get("cancel_grace_s", DEFAULT_CANCEL_GRACE_S),
        not_before=not_before,
        idempotency_key=submission.idempotency_key,
        request_hash=submission.request_hash,
        webhook_url=chosen.get("webhook_url"),
        labels=dict(chosen.get("labels") or {}),
        schedule_id=schedule.get("schedule_id"),
        scheduled_for=schedule.get("scheduled_for"),
        hold=Hold.BLOCKED if after else submission.hold,
        trace=submission.trace,
        actor=submission.actor,
        partition=_by_param("partition", submission, params, below),
        weight=chosen.get("weight", 1),
        affinity=_by_param("affinity", submission, params, below),
        preemption=PREEMPTIBLE * any(layer.get("preemptible") for layer in below)
        + PREEMPTS * bool(submission.own.get("preempt")),
        on_upstream=submission.own.get("on_upstream", OnUpstream.CANCEL) if after else None,
        unique_key=submission.own.get("unique_key"),
        unique_while=submission.own.get("unique_while", UniqueWhile.UNFINISHED)
        if "unique_key" in submission.own
        else None,
        parent_id=submission.parent_id,
        is_detached=submission.is_detached,
        is_awaited=submission.is_awaited,
        on_duplicate=submission.own.get("on_duplicate", OnDuplicate.RETURN),
        max_wait_s=submission.own.get("max_wait_s"),
        expires_at=_expiry(submission, not_before, now) if submission.own else None,
        after=after,
        ref=submission.own.get("ref"),
    )


def _by_param(what: str, submission: Submission, params: Mapping[str, Any], below: Sequence[Layer]) -> str:
    """What the submission says, or the value of the param that its type names, of a URL the host; empty without one."""
    param_name: str | None = submission.own.get(what)
    if param_name is not None:
        return param_name
    name = None
    for layer in below:
        name = name or layer.get(f"{what}_by")
    value = None if not name else params.get(name)
    if value is None:
        return ""
    if isinstance(value, str) and value.lower().startswith(("http://", "https://")):
        # The rest of a URL differs from call to call, and may hold secrets.
        return urlsplit(value).netloc.rpartition("@")[2].lower()[: field_bounds.LONGEST_NAME]
    if isinstance(value, bool | int | str):
        return str(value)[: field_bounds.LONGEST_NAME]
    raise Invalid(
        f"The param {name} names the {what} of this job, so it must be a text or a whole number.",
        code=f"invalid_{what}",
        field=f"params.{name}",
    )
