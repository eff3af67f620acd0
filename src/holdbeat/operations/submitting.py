"""Operations that submit jobs, and the guard of shell jobs.

Guards SEC-05: who has no admin key runs shell templates as they are, and makes no shell job of his own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.job import SHELL
from holdbeat.domain.json_text import json_text
from holdbeat.domain.submission import Submission, check_params
from holdbeat.domain.uniform_batch import SubmissionKind, UniformSubmissions, distinct_items
from holdbeat.domain.views import job_json
from holdbeat.operations.checks import check_admin, check_call
from holdbeat.operations.kept_kinds import key_of
from holdbeat.operations.operation import OperationContext, Step, Steps, Written, in_steps
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.templates import find_template
from holdbeat.store.reads.jobs import load_job, load_jobs
from holdbeat.store.tracing import current_traceparent
from holdbeat.store.transaction import Transaction

MOST_JOBS = 10_000
PART = 250
"""So many jobs of a large batch are read, or written as JSON, before other requests of the event loop go on."""


@in_steps
def submit_job(context: OperationContext, request: Mapping[str, Any]) -> Steps:
    """Submit a job.

    201 if it is new; 200 if its idempotency key found the job that was there already.
    """
    submissions = _read_uniform(context, [request]) or [read_submission(context, request)]
    enqueued = yield submit_step(context, submissions)
    if not enqueued.known:
        return Written(enqueued.texts()[0], enqueued.first_id)
    # It may have run since.
    job = yield Step(load_job, (enqueued.first_id,), read_only=True)
    return Written(json_text(job_json(job)), job.id, is_new=False)


@in_steps
def submit_jobs(context: OperationContext, requests: Sequence[Mapping[str, Any]]) -> Steps:
    """Submit several jobs in one transaction: all or none."""
    enqueued = yield submit_step(context, (yield from _read_batch(context, requests)))
    if enqueued.known:
        known_jobs = yield Step(load_jobs, (sorted(enqueued.known),), read_only=True)
        known = {job.id: job for job in known_jobs}
        enqueued.jobs[:] = [known.get(job.id, job) for job in enqueued.jobs]
    texts: list[str] = []
    for first in range(0, len(enqueued), PART):
        texts += enqueued.texts(first, first + PART)
        yield None
    return Written(f'{{"items":[{",".join(texts)}]}}', is_new=not enqueued.known or enqueued.any_new)


def _read_batch(context: OperationContext, requests: Any) -> Generator[Step | None, Any, Sequence[Submission]]:
    check_batch(requests)
    uniform = _read_uniform(context, requests)
    if uniform is not None:
        return uniform
    submissions = []
    for index, request in enumerate(requests):
        submissions.append(read_submission(context, request, place=f"jobs[{index}]."))
        if index % PART == PART - 1:
            yield None
    return submissions


def _read_uniform(context: OperationContext, requests: Sequence[Any]) -> UniformSubmissions | None:
    """Requests that differ in their params alone, as jobs of one kind; None if they do not, or one is refused."""
    if context.traceparent is not None or current_traceparent() is not None:
        return None
    caller = context.caller
    key = key_of(requests[0], caller) if requests else None
    if key is None or (len(requests) > 1 and not all(key_of(request, caller) == key for request in requests)):
        return None
    try:
        kind = context.kinds.find(key)
        if kind is None:
            shared = {name: value for name, value in requests[0].items() if name != "params"}
            kind = context.kinds.keep(key, SubmissionKind(read_submission(context, shared)))
        params = [{} if request.get("params") is None else check_params(request["params"]) for request in requests]
        for own in params:
            check_call(context, kind.submission.type, own)
    except HoldbeatError:
        return None
    return UniformSubmissions(kind, params)


def read_submission(context: OperationContext, request: Any, *, place: str = "") -> Submission:
    if not isinstance(request, dict):
        raise Invalid(
            f"{place.rstrip('.') or 'The body'} must be a JSON object.", code="invalid_body", field=place[:-1] or None
        )
    submission = Submission.read(request, place=place)
    check_call(context, submission.type, submission.own.get("params"), submission.own.get("webhook_url"))
    submission.trace = context.traceparent or current_traceparent()
    submission.actor = context.caller
    return submission


def read_submissions(context: OperationContext, requests: Any) -> list[Submission]:
    """The jobs of a group."""
    check_batch(requests)
    return [read_submission(context, request, place=f"jobs[{index}].") for index, request in enumerate(requests)]


def check_batch(requests: Any) -> None:
    """Refuses what is no list of jobs, or more than one transaction may hold."""
    if not isinstance(requests, list | tuple):
        raise Invalid("jobs must be a list of jobs.", code="invalid_body", field="jobs")
    check_count(requests)


def check_count(jobs: Sequence[Any]) -> None:
    """Refuses more jobs than one transaction may hold."""
    if len(jobs) > MOST_JOBS:
        raise Invalid(f"jobs may hold at most {MOST_JOBS:,} jobs; send several requests.", field="jobs")


def submit_step(context: OperationContext, submissions: Sequence[Submission]) -> Step:
    """Stores jobs on behalf of the caller: all or none."""
    is_guarded = False
    if not context.is_admin or context.strict_policy is not None:
        for submission in distinct_items(submissions):
            if submission.template is not None or (submission.type == SHELL and not context.is_admin):
                is_guarded = True
    return Step(_guarded_submit, (context, submissions)) if is_guarded else Step(submit, (submissions,))


def _guarded_submit(tx: Transaction, context: OperationContext, submissions: Sequence[Submission]) -> Enqueued:
    guard_submissions(tx, context, submissions)
    return submit(tx, submissions)


def guard_submissions(tx: Transaction, context: OperationContext, submissions: Sequence[Submission]) -> None:
    """Refuses what this caller may not submit: shell jobs of his own, and calls of an exposed server to itself."""
    if not context.is_admin:
        guard_shell(tx, context, submissions)
    if context.strict_policy is None:
        return
    for submission in submissions:
        template = find_template(tx, submission.template) if submission.template is not None else None
        if template is not None:
            own = submission.own.get("params")
            check_call(context, template.type, {**template.default_params, **(own if isinstance(own, dict) else {})})


def guard_shell(tx: Transaction, context: OperationContext, submissions: Sequence[Submission]) -> None:
    """Refuses shell jobs of somebody without an admin key, except templates run as they are."""
    for submission in submissions:
        if submission.type == SHELL and submission.template is None:
            check_admin(context, "Making a shell job")
        if submission.template is not None and submission.own.get("params"):
            template = find_template(tx, submission.template)
            if template is not None and template.type == SHELL:
                check_admin(context, "Giving params to a shell template")
