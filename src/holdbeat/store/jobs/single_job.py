"""Single jobs: submissions of one plain job, which can be stored without reading anything before.

Guards QUE-06 for them: the type is the one that was read last, and the statement that stores the job stores nothing if
the type has changed since. Whatever needs more than its own row is stored by `submit.py`, and so are refusals:
only a type that was read in the same transaction may refuse.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.job import PREEMPTS, NewJob
from holdbeat.domain.submission import Submission
from holdbeat.domain.uniform_batch import UniformSubmissions, distinct_items
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.queue.enqueue import Enqueued, single_insert, uniform_insert
from holdbeat.store.queue.submission import Preparation
from holdbeat.store.single_insert import SingleInsert, UniformInsert
from holdbeat.store.tracing import tracer
from holdbeat.store.transaction import Transaction


def single_job(tx: Transaction, batch: Sequence[Submission]) -> SingleInsert[Enqueued] | None:
    """The insert for a batch of one job that needs nothing but its row; None for all others."""
    if len(batch) != 1:
        return None
    (submission,) = distinct_items(batch)
    known = tx.terms.known_types.get(submission.type or "")
    if known is None or known.announced_at is None or not _is_plain(submission):
        return None
    preparation = Preparation(tx, known)
    try:
        uniform = preparation.prepare_uniform(batch) if isinstance(batch, UniformSubmissions) else None
        jobs = uniform or preparation.prepare_batch(batch)
    except HoldbeatError:
        return None
    (model,) = distinct_items(jobs)
    if _needs_more(model) or not 0 <= model.priority <= PRIORITY_MAX:
        return None
    return single_insert(tx, jobs, known.announced_at)


def uniform_jobs(tx: Transaction, batches: list[Sequence[Submission]]) -> UniformInsert[Enqueued] | None:
    """`single_job` for calls whose jobs differ in their params alone."""
    uniform = [batch for batch in batches if isinstance(batch, UniformSubmissions)]
    if len(uniform) < len(batches) or any(batch.kind is not uniform[0].kind for batch in uniform):
        return None
    joined = UniformSubmissions(uniform[0].kind, [params for batch in uniform for params in batch.params])
    known = tx.terms.known_types.get(joined.model.type or "")
    if known is None or known.announced_at is None or not _is_plain(joined.model) or tracer() is not None:
        return None
    jobs = Preparation(tx, known).prepare_uniform(joined)
    if jobs is None or _needs_more(jobs.model) or not 0 <= jobs.model.priority <= PRIORITY_MAX:
        return None
    return uniform_insert(tx, jobs, [len(batch) for batch in uniform], known.announced_at)


def _is_plain(submission: Submission) -> bool:
    return (
        submission.template is None
        and submission.schedule is None
        and submission.idempotency_key is None
        and submission.parent_id is None
        and submission.not_before is None
        and submission.delay_s is None
    )


def _needs_more(request: NewJob) -> bool:
    """Whether something has to be read, locked, or written elsewhere for this job."""
    return bool(
        request.unique_key
        or request.after
        or request.ref
        or request.labels
        or request.hold
        or request.preemption >= PREEMPTS
        or request.is_awaited
        or request.is_detached
    )
