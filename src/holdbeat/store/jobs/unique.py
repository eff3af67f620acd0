"""Unique jobs: a submission whose key is taken does what its `on_duplicate` says (QUE-08)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.job import Job, JobStatus, NewJob, OnDuplicate, pushed_back
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.queue.enqueue import Enqueued, enqueue
from holdbeat.store.queue.unique_keys import holders, lock_keys
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def enqueue_unique(tx: Transaction, batch: Sequence[NewJob]) -> Enqueued:
    """Stores a batch in which jobs have unique keys: a job whose key is taken does what its `on_duplicate` says."""
    unique_keys = [job.unique_key for job in batch if job.unique_key is not None]
    if len(set(unique_keys)) < len(unique_keys):
        twice = next(key for key in unique_keys if unique_keys.count(key) > 1)
        raise Invalid(f"The unique key {twice!r} is used twice in this batch.", code="duplicate", field="unique_key")
    lock_keys(tx, unique_keys)
    known = _known_requests(tx, batch)
    holder_of = holders(tx, unique_keys)
    if holder_of:
        # A claim that comes meanwhile passes over those that are locked here.
        tx.wake(Topic.READY)
    duplicates: dict[int, str] = {}
    for index, job in enumerate(batch):
        if job.unique_key in holder_of and job.idempotency_key not in known:
            duplicates[index] = holder_of[job.unique_key]
            _refuse(tx, load_job(tx, holder_of[job.unique_key]), job)
    stored = enqueue(tx, [job for index, job in enumerate(batch) if index not in duplicates])
    fresh = iter(stored.jobs)
    jobs = [
        _merged(tx, duplicates[index], job) if index in duplicates else next(fresh) for index, job in enumerate(batch)
    ]
    result = Enqueued()
    result.jobs.extend(jobs)
    result.known = stored.known | set(duplicates.values())
    return result


def _known_requests(tx: Transaction, batch: Sequence[NewJob]) -> set[str | None]:
    keys = [job.idempotency_key for job in batch if job.idempotency_key is not None]
    if not keys:
        return set()
    return set(tx.column("SELECT idempotency_key FROM jobs WHERE idempotency_key IN :keys", keys=keys))


def _refuse(tx: Transaction, holder: Job, job: NewJob) -> None:
    """Refuses the batch where a duplicate cannot be merged into the job that is there."""
    named = f"Job {holder.id} with the unique key {job.unique_key!r}"
    if job.on_duplicate == OnDuplicate.REFUSE:
        detail = f"{named} is {holder.status}. Wait for its end."
    elif job.on_duplicate == OnDuplicate.RETURN:
        return
    elif holder.status is JobStatus.RUNNING:
        detail = f"{named} is RUNNING and cannot be changed any more."
    elif _has_begun(tx, holder):
        detail = f"{named} is in the middle of its work and cannot be changed any more."
    else:
        return
    raise Conflict(detail, code="duplicate", field="unique_key", job_id=holder.id)


def _has_begun(tx: Transaction, job: Job) -> bool:
    """Whether its chain has kept something that was made of its params, or waits for something."""
    step = tx.one("SELECT 1 FROM steps WHERE root_id = :root_id LIMIT 1", root_id=job.chain_id)
    return job.retry_kind == "continue" or step is not None


def _merged(tx: Transaction, holder_id: str, job: NewJob) -> Job:
    """The job that is there, changed as the duplicate demands."""
    if job.on_duplicate == OnDuplicate.REPLACE:
        changed = change_job(tx, holder_id, {"params": job.params})
        tx.execute("UPDATE jobs SET title = :title WHERE id = :id", title=job.title, id=holder_id)
        changed.title = job.title
        return changed
    holder = load_job(tx, holder_id)
    if job.on_duplicate == OnDuplicate.PUSH_BACK and job.not_before is not None:
        longest = None if job.max_wait_s is None else timedelta(seconds=job.max_wait_s)
        not_before = pushed_back(holder.created_at, holder.not_before, job.not_before, longest)
        return change_job(tx, holder_id, {"not_before": not_before})
    return holder
