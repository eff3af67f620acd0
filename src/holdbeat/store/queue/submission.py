"""Submission: how requests become Jobs, for the API, the CLI, the App and schedules alike.

Guards QUE-06 and the merging of defaults: what passes has a known type, params that fit its schema, and is a whole
snapshot (INV-005). A batch is prepared whole before any of it is stored (QUE-02).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.dependencies import check_refs
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.job import JobTemplate, NewJob
from holdbeat.domain.params import check_json
from holdbeat.domain.redaction import refuse_marks, refuse_other_server
from holdbeat.domain.schema import matches
from holdbeat.domain.submission import Layer, Submission, merged
from holdbeat.domain.title import job_title
from holdbeat.domain.uniform_batch import PreparedKind, UniformJobs, UniformSubmissions, distinct_items
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.queue.job_types import AnnouncedType, Catalogue
from holdbeat.store.queue.templates import named_template
from holdbeat.store.tracing import submit_span
from holdbeat.store.transaction import Transaction


class Preparation:
    """Turns submissions into NewJobs. Types and templates are read once for all that one transaction prepares."""

    def __init__(self, tx: Transaction, *known: AnnouncedType) -> None:
        """`known` are types that need not be read."""
        self._tx = tx
        self._catalogue = Catalogue(tx, *known)
        self._templates: dict[str, JobTemplate] = {}

    def expect(self, batches: Sequence[Sequence[Submission]]) -> None:
        """Reads at once what many submissions will need."""
        counts: Counter[int] = Counter()
        types: set[str] = set()
        for batch in batches:
            for submission in distinct_items(batch):
                if submission.type is not None:
                    types.add(submission.type)
                priority = submission.own.get("priority", 0)
                if submission.template is None and type(priority) is int and 0 <= priority <= PRIORITY_MAX:
                    counts[priority] += len(batch) if isinstance(batch, UniformSubmissions) else 1
        self._tx.expect_positions(counts)
        self._catalogue.prefetch(types)

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

    def prepare_uniform(self, batch: UniformSubmissions) -> UniformJobs | None:
        """`prepare_batch` for a uniform batch; None if they have to be looked at one by one.

        That is so where their type takes more than itself from the params, and where one of them is refused.
        """
        submission = batch.model
        type_ = None if submission.type is None else self._catalogue.find(submission.type)
        if type_ is None or type_.name == "http" or submission.template is not None:
            return None
        defaults, schema = type_.defaults, type_.schema
        if defaults.get("partition_by") or defaults.get("affinity_by"):
            return None
        params = batch.params
        if defaults.get("params"):
            params = [{**defaults["params"], **own} for own in params]
        title, pattern = submission.own.get("title"), defaults.get("title")
        titles = []
        for values in params:
            if schema and not matches(schema, values):
                return None
            titles.append(job_title(type_.name, values, title=title, pattern=pattern, schema=schema))
        with submit_span(batch) as trace:
            kind = batch.kind.prepared
            version = type_.name, type_.announced_at
            if kind is None or trace is not None or (kind.model.type, kind.type_announced_at) != version:
                try:
                    model = merged(submission, type_.name, [defaults], self._tx.now)
                except HoldbeatError:
                    return None
                model.trace = trace or model.trace
                kind = PreparedKind(type_.announced_at, model)
                if model.trace is None and submission.delay_s is None and "expires_in_s" not in submission.own:
                    batch.kind.prepared = kind
        return UniformJobs(kind, params, titles)

    def prepare_batch(self, batch: Sequence[Submission]) -> list[NewJob]:
        """The snapshots of jobs that are submitted together, within one tracing span. Every new job is made here.

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
            self._templates[reference] = named_template(self._tx, reference)
        template = self._templates[reference]
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
