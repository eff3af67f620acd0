"""PendingJob: a job to be. What was asked for in Python, in the form that every way into the queue uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from holdbeat.actors import this_program
from holdbeat.domain.bounds import duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import JobGroup
from holdbeat.domain.schema import near_matches
from holdbeat.domain.submission import Submission, as_sent, check_params
from holdbeat.domain.uniform_batch import SubmissionKind, UniformSubmissions
from holdbeat.store.tracing import current_traceparent

_SAME_NAME = frozenset(
    {
        "priority", "resource", "not_before", "labels", "webhook_url", "partition", "title", "unique_key",
        "unique_while", "on_duplicate", "expires_at", "weight", "preempt",
    }
)  # fmt: skip
_DURATIONS = {"delay": "delay_s", "timeout": "timeout_s", "max_wait": "max_wait_s", "expires_in": "expires_in_s"}
_TRANSLATED = {"key", "retries", "cancel_grace", "connection", "after", "on_upstream", "detached"}
OPTIONS = _SAME_NAME | _DURATIONS.keys() | _TRANSLATED

TYPE_OPTIONS = (
    "name", "aliases", "resource", "timeout", "retries", "isolation", "priority", "cancel_grace", "labels",
    "webhook_url", "partition", "title", "weight", "affinity", "preemptible",
)  # fmt: skip
"""What `@app.job(...)` takes."""


class CallOptions(dict[str, Any]):
    """The options of an App for what it enqueues. They do not change; other options are another App's."""

    def __init__(self, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(options)
        self.kinds: dict[str | None, SubmissionKind] = {}
        """By job type: requests with these options, checked once for all calls."""


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job type or a template with its params, not yet enqueued: what groups and batches are made of."""

    type: str | None
    params: Mapping[str, Any]
    options: Mapping[str, Any]
    template: str | None = None

    def as_request(self) -> dict[str, Any]:
        """The job as the body of a request, for the child of a handler."""
        request = as_sent(_request(self, {}))
        if self.options.get("detached") is not None:
            request["detached"] = bool(self.options["detached"])
        return request


def submissions_of(calls: Sequence[PendingJob]) -> Sequence[Submission]:
    """PendingJobs that are stored together as checked requests; they may name each other in `after`."""
    if calls and _are_uniform(calls):
        return UniformSubmissions(_kind_of(calls[0]), [check_params(dict(call.params)) for call in calls])
    refs = {id(call): f"call {number}" for number, call in enumerate(calls)}
    # Only a call that another one names gets a ref: it is part of the request that an idempotency key stands for.
    named = {id(upstream) for call in calls for upstream in _named(call.options.get("after"))}
    return [_submission(call, refs, is_named=id(call) in named) for call in calls]


def _are_uniform(calls: Sequence[PendingJob]) -> bool:
    """Whether calls differ in their params alone: as calls of one App do, which share its options."""
    first = calls[0]
    type_, template, options = first.type, first.template, first.options
    if "after" in options or options.get("key") is not None:
        return False
    return len(calls) == 1 or all(
        call.options is options and call.type == type_ and call.template == template for call in calls
    )


def _kind_of(call: PendingJob) -> SubmissionKind:
    """The common part of all calls of this type and these options; kept with the options, unless a span is traced."""
    kept: dict[str | None, SubmissionKind] = {}
    if isinstance(call.options, CallOptions) and call.template is None and current_traceparent() is None:
        kept = call.options.kinds
    kind = kept.get(call.type)
    if kind is None:
        kind = kept[call.type] = SubmissionKind(_submission(replace(call, params={}), {}, is_named=False))
    return kind


def _named(after: Any) -> Iterable[Any]:
    if isinstance(after, Mapping):
        return after.values()
    return after if isinstance(after, list | tuple) else (after,)


def _submission(call: PendingJob, refs: Mapping[int, str], *, is_named: bool) -> Submission:
    if call.options.get("detached") is not None:
        raise Invalid(
            "Only the child of a handler can be detached: hand the call to ctx.enqueue.",
            code="no_parent",
            field="detached",
        )
    fields = _request(call, refs)
    if is_named:
        fields["ref"] = refs[id(call)]
    submission = Submission.read(fields)
    submission.trace = current_traceparent()
    submission.actor = this_program()
    return submission


def _request(call: PendingJob, refs: Mapping[int, str]) -> dict[str, Any]:
    options = call.options
    fields: dict[str, Any] = {"type": call.type, "template": call.template, "params": dict(call.params)}
    for name, value in options.items():
        if name in _SAME_NAME:
            fields[name] = value
        elif name == "cancel_grace":
            fields["cancel_grace_s"] = None if value is None else duration_s(value, field="cancel_grace")
        elif value is None:
            continue
        elif name == "key":
            fields["idempotency_key"] = value
        elif name in _DURATIONS:
            fields[_DURATIONS[name]] = duration_s(value, field=name)
        elif name == "retries":
            fields["retry_policy"] = {"max_attempts": value} if isinstance(value, int) else value
        elif name == "after":
            fields["after"] = _after(value, refs)
            fields["on_upstream"] = options.get("on_upstream")
    return fields


def _after(value: Any, refs: Mapping[int, str]) -> list[dict[str, Any]]:
    """`after` as it is given in Python, in the form of a request: one, a list, or a dict by name, of JobHandles,
    JobGroups, ids of jobs, and PendingJobs that are stored together with this one."""
    if isinstance(value, Mapping):
        return [{**_upstream(upstream, refs), "as": name} for name, upstream in value.items()]
    if isinstance(value, list | tuple):
        return [_upstream(upstream, refs) for upstream in value]
    return [_upstream(value, refs)]


def _upstream(value: Any, refs: Mapping[int, str]) -> dict[str, Any]:
    if isinstance(value, str):
        return {"job_id": value}
    if isinstance(value, JobGroup):
        return {"group_id": value.id}
    if isinstance(value, PendingJob):
        if id(value) not in refs:
            raise Invalid(
                "A call in after is not enqueued yet: enqueue both together with enqueue_many, or name the handle of "
                "the job.",
                code="unknown_upstream",
                field="after",
            )
        return {"ref": refs[id(value)]}
    job_id = getattr(value, "id", None)
    if not isinstance(job_id, str):
        raise Invalid(
            "after takes the handles of jobs, groups, ids, and calls that are enqueued together with this one, not "
            f"{type(value).__name__}.",
            code="invalid_after",
            field="after",
        )
    return {"job_id": job_id}


def connection_of(options: Mapping[str, Any], calls: Sequence[PendingJob]) -> Any:
    """The caller's own connection, which calls that are stored together share; None if the store's own is meant."""
    connection = options.get("connection")
    for call in calls:
        own = call.options.get("connection")
        if connection is None:
            connection = own
        elif own is not None and own is not connection:
            raise Invalid(
                "These calls name different connections, but are stored in one transaction. Give them the same one.",
                code="many_connections",
                field="connection",
            )
    return None if connection is None else driver_connection(connection)


def driver_connection(connection: Any) -> Any:
    """The driver's own connection inside a Session or connection of SQLAlchemy or of Django; others as they are."""
    if hasattr(connection, "sync_session"):
        raise Invalid(
            "Hand in the connection of the AsyncSession: connection=await session.connection().",
            code="no_transaction",
            field="connection",
        )
    connection = getattr(connection, "sync_connection", connection)
    while not hasattr(connection, "driver_connection"):
        inner = getattr(connection, "connection", None)
        inner = inner() if callable(inner) else inner
        if inner is None and hasattr(connection, "in_atomic_block"):
            raise Invalid(
                "No transaction is open on this connection of Django. Enqueue inside `transaction.atomic()`.",
                code="no_transaction",
                field="connection",
            )
        if inner is None or inner is connection:
            return connection
        connection = inner
    return connection.driver_connection


def refuse_unknown_options(options: Mapping[str, Any]) -> None:
    """Lists the options of a job type after an unknown one."""
    for name in options:
        if name not in TYPE_OPTIONS:
            near = near_matches(name, TYPE_OPTIONS, limit=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise Invalid(
                f"A job type has no option {name}.{hint} Options are: {', '.join(TYPE_OPTIONS)}.",
                code="bad_job_type",
                field=name,
            )


def refuse_connection(options: Mapping[str, Any], deed: str) -> None:
    """Says so where a transaction of the caller's own cannot be joined."""
    if options.get("connection") is not None:
        raise Invalid(
            f"{deed} cannot be part of your own transaction. Leave out the connection.",
            code="cannot_join",
            field="connection",
        )
