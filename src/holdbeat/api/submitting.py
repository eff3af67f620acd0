"""Requests for jobs as the API takes them: keys from the header, and the guard of shell jobs.

Guards SEC-05: who has no admin key runs shell templates as they are, and makes no shell job of his own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdbeat.api.request import ApiRequest
from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import Forbidden, Invalid
from holdbeat.domain.submission import Submission
from holdbeat.handlers.shell import SHELL
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.submission import submit
from holdbeat.store.queue.templates import find_template
from holdbeat.store.tracing import current_traceparent, is_traceparent
from holdbeat.store.transaction import Transaction

MOST_JOBS = 10_000
_HEADER_KEY = re.compile(r"[!-~]{1,255}")


def read_submission(call: ApiRequest, given: Any, *, place: str = "") -> Submission:
    """One job of a request."""
    if not isinstance(given, dict):
        raise Invalid(
            f"{place.rstrip('.') or 'The body'} must be a JSON object.", code="invalid_body", field=place[:-1] or None
        )
    submission = Submission.read(given, place=place)
    trace = call.request.headers.get("traceparent")
    submission.trace = trace if trace is not None and is_traceparent(trace) else current_traceparent()
    return submission


def read_submissions(call: ApiRequest, given: Any) -> list[Submission]:
    """The jobs of a batch or a group."""
    if not isinstance(given, list):
        raise Invalid("jobs must be a list of jobs.", code="invalid_body", field="jobs")
    check_count(given)
    if call.header("idempotency-key") is not None:
        raise Invalid(
            "The header Idempotency-Key is for a single job; give each job of a list its own idempotency_key.",
            code="key_for_many",
            field="Idempotency-Key",
        )
    return [read_submission(call, each, place=f"jobs[{index}].") for index, each in enumerate(given)]


def check_count(jobs: Sequence[Any]) -> None:
    """Refuses more jobs than one transaction may hold."""
    if len(jobs) > MOST_JOBS:
        raise Invalid(f"jobs may hold at most {MOST_JOBS:,} jobs; send several requests.", field="jobs")


def with_header_key(call: ApiRequest, given: dict[str, Any]) -> dict[str, Any]:
    """The request with the key of the header `Idempotency-Key`; one that differs from the field is refused."""
    sent = call.request.headers.getlist("idempotency-key")
    if not sent:
        return given
    key = sent[0]
    if len(sent) > 1:
        raise Invalid(
            "The header Idempotency-Key is sent more than once; send it once.",
            code="duplicate_header",
            field="Idempotency-Key",
        )
    if not _HEADER_KEY.fullmatch(key):
        raise Invalid(
            "The header Idempotency-Key must be 1 to 255 visible ASCII characters without blanks; a key of other "
            "characters goes into the field idempotency_key.",
            code="invalid_header",
            field="Idempotency-Key",
        )
    if given.get("idempotency_key") not in (None, key):
        raise Invalid(
            "The header Idempotency-Key and the field idempotency_key differ; send one of them, or the same in both.",
            code="idempotency_mismatch",
            field="idempotency_key",
        )
    return {**given, "idempotency_key": key}


async def submit_for(call: ApiRequest, submissions: Sequence[Submission]) -> Enqueued:
    """Stores jobs on behalf of the caller: all or none."""
    if not _needs_guard(submissions) or call.scope.covers(Scope.ADMIN):
        return await call.service.store.write(submit, submissions)
    return await call.service.store.write(_guarded_submit, submissions)


def _needs_guard(submissions: Sequence[Submission]) -> bool:
    return any(submission.template is not None or submission.type == SHELL for submission in submissions)


def _guarded_submit(tx: Transaction, submissions: Sequence[Submission]) -> Enqueued:
    guard_shell(tx, submissions)
    return submit(tx, submissions)


def guard_shell(tx: Transaction, submissions: Sequence[Submission]) -> None:
    """Refuses shell jobs of somebody without an admin key, except templates run as they are."""
    for submission in submissions:
        if submission.type == SHELL and submission.template is None:
            raise needs_admin("Making a shell job")
        if submission.template is not None and submission.own.get("params"):
            template = find_template(tx, submission.template)
            if template is not None and template.type == SHELL:
                raise needs_admin("Giving params to a shell template")


def needs_admin(what: str) -> Forbidden:
    return Forbidden(f"{what} needs a key with the scope admin.", code="needs_admin")
