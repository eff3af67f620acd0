"""Submission: how requests become Jobs, for the API, the CLI, the App and schedules alike.

Guards QUE-06 and the merging of defaults: what passes has a known type, params that fit its schema, and is a whole
snapshot (INV-005). A batch is prepared whole before any of it is stored (QUE-02).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdbeat.domain.bounds import check_line
from holdbeat.domain.dependencies import Upstream, check_refs
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.group import GroupMode, JobGroup, OnFailure
from holdbeat.domain.job import Job, NewJob
from holdbeat.domain.params import check_json
from holdbeat.domain.redaction import refuse_marks, refuse_other_server
from holdbeat.domain.submission import LONGEST_NAME, Layer, Submission, merged
from holdbeat.domain.template import JobTemplate
from holdbeat.domain.title import job_title
from holdbeat.store.dependencies.linking import NewEdges, known_upstreams, link
from holdbeat.store.queue.ageing import PRIORITY_MAX
from holdbeat.store.queue.enqueue import Enqueued, enqueue
from holdbeat.store.queue.groups import create_group, load_group
from holdbeat.store.queue.job_types import AnnouncedType, Catalogue
from holdbeat.store.queue.templates import find_template
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.tracing import submit_span
from holdbeat.store.transaction import Transaction
from holdbeat.store.work import Coalesced


class Preparation:
    """Turns submissions into NewJobs. Types and templates are read once for all that one transaction prepares."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._catalogue = Catalogue(tx)
        self._templates: dict[str, JobTemplate | None] = {}

    def expect(self, submissions: Sequence[Submission]) -> None:
        """Reads at once what many submissions will need."""
        if len(submissions) == 1 and submissions[0].template is None:
            priority = submissions[0].own.get("priority", 0)
            if type(priority) is int and 0 <= priority <= PRIORITY_MAX:
                self._tx.expect_position(priority)
        self._catalogue.prefetch(s.type for s in submissions if s.type is not None)

    def prepare(self, submission: Submission) -> NewJob:
        """The whole snapshot of one submission, or the reason why it is refused."""
        template = self._template(submission.template) if submission.template is not None else None
        type_ = self._type(submission, template)
        if type_.name == "http" and "params" in submission.own:
            refuse_marks(submission.own["params"])
        below: list[Layer] = []
        if submission.schedule is not None:
            below.append(submission.schedule)
        if template is not None:
            below.append(_layer(template))
        below.append(type_.defaults)
        new = merged(submission, type_.name, below, self._tx.now)
        if type_.name == "http":
            stored: dict[str, Any] = {}
            for layer in reversed(below[:-1]):
                stored |= layer.get("params") or {}
                refuse_other_server(new.params, stored, "params.url")
        if template is not None:
            new.template_id = template.id
        new.title = job_title(
            type_.name,
            new.params,
            title=submission.own.get("title"),
            pattern=type_.defaults.get("title"),
            schedule_name=(submission.schedule or {}).get("schedule_name"),
            schema=type_.schema,
        )
        if len(below) > 1:
            check_json(new.params, field="params")
        self._catalogue.check_params(type_.name, new.params)
        return new

    def prepare_batch(self, batch: Sequence[Submission]) -> list[NewJob]:
        """The snapshots of jobs that are submitted together, within a span of theirs. Every new job passes here.

        A refusal names the job of the batch that it is about.
        """
        if not batch:
            raise Invalid("Give at least one job.", code="empty_batch", field="jobs")
        jobs = []
        with submit_span(batch) as trace:
            for index, submission in enumerate(batch):
                try:
                    job = self.prepare(submission)
                    job.trace = trace or job.trace
                except HoldbeatError as refusal:
                    key = submission.idempotency_key
                    if key is not None and self.has_job_for(key):
                        # That job is the answer, or the reason of the refusal, whether or not it could be made today.
                        job = NewJob("", idempotency_key=key, request_hash=submission.request_hash)
                    else:
                        if len(batch) > 1 and refusal.field is not None:
                            refusal.field = f"jobs[{index}].{refusal.field}"
                        raise
                jobs.append(job)
        if any(job.after or job.ref for job in jobs):
            check_refs(jobs)
        return jobs

    def has_job_for(self, key: str) -> bool:
        """Whether a job with this idempotency key is there, and stays until this transaction has ended."""
        return self._tx.one("SELECT id FROM jobs WHERE idempotency_key = :key FOR UPDATE", key=key) is not None

    def _type(self, submission: Submission, template: JobTemplate | None) -> AnnouncedType:
        if template is None:
            if submission.type is None:
                raise Invalid("Say what to run: give a type or a template.", code="missing_type", field="type")
            return self._catalogue.resolve(submission.type)
        type_ = self._catalogue.resolve(template.type)
        if submission.type is not None and self._catalogue.resolve(submission.type).name != type_.name:
            raise Invalid(
                f"Template {template.name} makes jobs of type {template.type}, not {submission.type}. Leave the type "
                "out.",
                code="other_type",
                field="type",
            )
        return type_

    def _template(self, reference: str) -> JobTemplate:
        if reference not in self._templates:
            self._templates[reference] = find_template(self._tx, reference)
        template = self._templates[reference]
        if template is None:
            raise Invalid(
                f"There is no job template {reference!r}. Name one by its id or its name.",
                code="unknown_template",
                field="template",
            )
        if template.archived_at is not None:
            raise Conflict(
                f"Template {template.name} is archived; no new jobs are made from it.",
                code="archived",
                field="template",
                template_id=template.id,
            )
        return template


def prepare(tx: Transaction, submission: Submission) -> NewJob:
    """`Preparation.prepare` for a single one."""
    return Preparation(tx).prepare(submission)


def _submit_many(tx: Transaction, batches: list[Sequence[Submission]]) -> list[Enqueued | Exception]:
    """Prepares and stores batches of submissions; each batch whole or not at all, none because of another.

    Refusals name the job of a batch that they are about. What is stored is what `enqueue` stores.
    """
    preparation = Preparation(tx)
    preparation.expect([submission for batch in batches for submission in batch])
    results: list[Enqueued | Exception] = []
    good: list[Sequence[NewJob]] = []
    places: list[int] = []
    for index, batch in enumerate(batches):
        try:
            jobs = preparation.prepare_batch(batch)
        except HoldbeatError as refusal:
            results.append(refusal)
            continue
        results.append(Enqueued())
        good.append(jobs)
        places.append(index)
    good, places = _without_unknown_upstreams(tx, good, places, results)
    if good:
        stored = enqueue.many(tx, good)
        for index, result in zip(places, stored, strict=True):
            results[index] = result
        _link(tx, good, stored)
    return results


def _without_unknown_upstreams(
    tx: Transaction, batches: list[Sequence[NewJob]], places: list[int], results: list[Enqueued | Exception]
) -> tuple[list[Sequence[NewJob]], list[int]]:
    """The batches that name only what exists; the others are refused."""
    if not any(job.after for batch in batches for job in batch):
        return batches, places
    known = known_upstreams(tx, (job for batch in batches for job in batch))
    good: list[tuple[Sequence[NewJob], int]] = []
    for batch, place in zip(batches, places, strict=True):
        try:
            known.check(batch)
        except Invalid as refusal:
            results[place] = refusal
        else:
            good.append((batch, place))
    return [batch for batch, _ in good], [place for _, place in good]


def _link(tx: Transaction, batches: Sequence[Sequence[NewJob]], stored: Sequence[Enqueued | Exception]) -> None:
    """Stores the dependencies of what was new in each batch."""
    links: dict[str, NewEdges] = {}
    changed: list[Enqueued] = []
    for batch, result in zip(batches, stored, strict=True):
        if isinstance(result, Enqueued) and any(job.after for job in batch):
            links |= {edges.job_id: edges for edges in _edges(batch, result.jobs, result.known)}
            changed.append(result)
    if links:
        link(tx, list(links.values()))
        jobs = {job.id: job for job in load_jobs(tx, list(links))}
        for result in changed:
            result.jobs[:] = [jobs.get(job.id, job) for job in result.jobs]


def _edges(batch: Sequence[NewJob], jobs: Sequence[Job], known: Collection[str] = ()) -> list[NewEdges]:
    refs = {request.ref: job.id for request, job in zip(batch, jobs, strict=True) if request.ref is not None}
    return [
        NewEdges(
            job.id,
            [
                upstream if upstream.ref is None else Upstream(job_id=refs[upstream.ref], name=upstream.name)
                for upstream in request.after
            ],
        )
        for request, job in zip(batch, jobs, strict=True)
        if request.after and job.id not in known
    ]


submit: Coalesced[Sequence[Submission], Enqueued] = Coalesced(_submit_many, batches_behind=True)


def submit_group(
    tx: Transaction,
    name: str | None,
    mode: GroupMode,
    on_failure: OnFailure,
    submissions: Sequence[Submission],
) -> tuple[JobGroup, list[Job]]:
    """Stores a group with all its members, or nothing.

    Members may carry idempotency keys: if every one of them does, and all were used for the same requests by one group
    of the same name, mode and policy, with the same members in the same order, that group is given back. Any other
    meeting with a used key is a Conflict.
    """
    if name is not None:
        check_line(name, "name", LONGEST_NAME)
    if not submissions:
        raise Invalid("A group needs at least one job.", code="empty_group", field="jobs")
    members = Preparation(tx).prepare_batch(submissions)
    known = _group_of_keys(tx, (name, mode, on_failure), members)
    if known is not None:
        return load_group(tx, known)
    if not any(member.after for member in members):
        return create_group(tx, name, mode, on_failure, members)
    if mode is GroupMode.SEQUENTIAL:
        _refuse_two_orders(members)
    known_upstreams(tx, members).check(members)
    group, jobs = create_group(tx, name, mode, on_failure, members)
    link(tx, _edges(members, jobs))
    return load_group(tx, group.id)


def _refuse_two_orders(members: Sequence[NewJob]) -> None:
    late = next((index for index, member in enumerate(members) if index and member.after), None)
    if late is not None:
        raise Invalid(
            "In a sequential group each job waits for the one before it; only the first may have after. Make the group "
            "parallel, or submit the jobs as a batch.",
            code="two_orders",
            field=f"jobs[{late}].after",
        )


def _group_of_keys(
    tx: Transaction, wanted: tuple[str | None, GroupMode, OnFailure], members: Sequence[NewJob]
) -> str | None:
    keys = [member.idempotency_key for member in members if member.idempotency_key is not None]
    if not keys:
        return None
    tx.lock_pools(f"key:{key}" for key in keys)
    held = {
        row[0]: row[1:]
        for row in tx.rows(
            "SELECT idempotency_key, request_hash, sequence, group_id FROM jobs WHERE idempotency_key IN :keys",
            keys=keys,
        )
    }
    if not held and len(set(keys)) == len(keys):
        return None
    groups = {group for _, _, group in held.values()}
    same = [
        held.get(member.idempotency_key or "", (None, None))[:2] == (member.request_hash, sequence)
        for sequence, member in enumerate(members)
    ]
    group = next(iter(groups), None)
    if all(same) and len(groups) == 1 and group is not None:
        found, jobs = load_group(tx, group)
        if (found.name, found.mode, found.on_failure) == wanted and len({job.sequence for job in jobs}) == len(members):
            return found.id
    used = next((key for key in keys if key in held), keys[0])
    raise Conflict(
        f"The idempotency key {used!r} was used before, or twice in this group. Use new keys for a new group; send the "
        "same group again, whole, to find it.",
        code="idempotency_conflict",
        field="idempotency_key",
    )


def _layer(template: JobTemplate) -> Layer:
    layer = {
        "params": template.default_params,
        "priority": template.priority,
        "resource": template.resource,
        "retry_policy": template.retry_policy,
        "timeout_s": template.timeout_s,
        "cancel_grace_s": template.cancel_grace_s,
        "webhook_url": template.webhook_url,
        "labels": template.labels or None,
    }
    return {name: value for name, value in layer.items() if value is not None}
