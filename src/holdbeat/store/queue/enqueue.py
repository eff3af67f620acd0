"""Enqueue: Jobs into the queue, at the end of their priority.

Guards QUE-01 and QUE-02: one key, one job; a batch is stored whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.job import DEFAULT_RETRY_POLICY, PREEMPTS, Hold, Job, JobStatus, NewJob
from holdbeat.domain.json_text import json_text
from holdbeat.domain.params import dumps
from holdbeat.domain.uniform_batch import PreparedKind, UniformJobs, distinct_items
from holdbeat.domain.views import UniformJobText, job_json
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.queue.ageing import counted_from
from holdbeat.store.queue.labels import add_labels
from holdbeat.store.reads.columns import copier, row_writer
from holdbeat.store.reads.rows import JOBS, policy_text
from holdbeat.store.single_insert import SingleInsert, UniformInsert
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.work import Coalesced

_COLUMNS = (
    "id", "type", "params", "priority", "position", "resource", "template_id", "schedule_id", "scheduled_for",
    "group_id", "sequence", "retry_of", "retry_kind", "retry_policy", "timeout_s", "cancel_grace_s", "not_before",
    "idempotency_key", "request_hash", "webhook_url", "labels", "created_at", "hold", "effective_priority", "ages_at",
    "attempt", "trace", "partition", "title", "root_id", "waits", "on_upstream",
    "is_awaited", "unique_key", "unique_while", "expires_at", "parent_id", "is_detached", "weight",
    "affinity", "preemption",
)  # fmt: skip
COLUMN_DEFAULTS = {
    "resource": "default", "labels": "{}", "effective_priority": 0, "attempt": 0, "partition": "", "weight": 1,
    "affinity": "", "preemption": 0,
}  # fmt: skip
"""What the schema gives to columns that a statement does not name: each name costs both sides a value."""
PART = 250
"""Rows of one statement, of a uniform batch: a server inserts one part while the next is made."""

_written = lru_cache(maxsize=256)(iso)
"""Jobs of one batch are made at the same instant."""
_DEFAULT_POLICY = policy_text(DEFAULT_RETRY_POLICY)

_row_of = row_writer(
    _COLUMNS,
    ("id", "position", "created_at", "hold", "effective_priority", "ages_at"),
    {
        "params": dumps,
        "retry_policy": lambda policy: _DEFAULT_POLICY if policy is DEFAULT_RETRY_POLICY else policy_text(policy),
        "labels": lambda labels: dumps(labels) if labels else "{}",
        "waits": lambda waits: dumps(waits) if waits else None,
        "is_awaited": lambda is_awaited: is_awaited or None,
        "is_detached": lambda is_detached: is_detached or None,
    },
)
"""The row of a NewJob."""

_SHARED = {field.name for field in fields(Job)} & {field.name for field in fields(NewJob)}
_job_of = copier(
    Job, sorted(_SHARED - {"position", "hold", "after"}), ("status", "id", "position", "created_at", "hold")
)
"""The Job that a NewJob has become."""


_Stored = tuple[str, int, datetime, Hold]
"""What the store gives to a job: its id, position, created_at and hold."""

_FLAGS = tuple(map(_COLUMNS.index, ("is_awaited", "is_detached")))


def _with_flags(row: Row) -> Row:
    """The row with its flags written out. A None leaves a column to its default only if all rows of a batch have it."""
    values = list(row)
    for index in _FLAGS:
        values[index] = bool(values[index])
    return tuple(values)


@lru_cache(maxsize=1024)
def _data_of(type_: str, actor: str | None) -> str:
    """The data of the Event for a new job of this type."""
    return dumps({"type": type_} if actor is None else {"type": type_, "actor": actor})


def _job(request: NewJob, stored: _Stored) -> Job:
    return _job_of(request, JobStatus.QUEUED, *stored)


class NewlyStored:
    """A Job that was just stored, and is made when somebody looks at it: it has fifty fields."""

    __slots__ = ("_batch", "_number", "id")

    def __init__(self, batch: Enqueued, number: int, job_id: str) -> None:
        self._batch = batch
        self._number = number
        self.id = job_id

    def as_job(self) -> Job:
        return self._batch.job_at(self._number)


class Enqueued:
    """The Jobs of one batch in the order asked for, and which of them were there before.

    New ones are made into Jobs by whoever looks at them, not by the writer, for whom others wait.
    """

    __slots__ = ("_jobs", "_requests", "_stored", "known")

    def __init__(self, requests: Sequence[NewJob] = (), stored: Sequence[_Stored] = ()) -> None:
        self._jobs: list[Job] | None = None
        self._requests = requests
        self._stored = stored
        self.known: set[str] = set()
        """Ids of jobs that an idempotency key found again."""

    @property
    def jobs(self) -> list[Job]:
        if self._jobs is None:
            self._jobs = [_job(request, stored) for request, stored in zip(self._requests, self._stored, strict=True)]
        return self._jobs

    def __len__(self) -> int:
        return len(self._stored if self._jobs is None else self._jobs)

    def split(self, sizes: Sequence[int]) -> list[Enqueued]:
        """The Jobs of a uniform batch that was made of several, in batches of these sizes."""
        requests = self._requests
        assert isinstance(requests, UniformJobs)
        parts, first = [], 0
        for size in sizes:
            part = slice(first, first + size)
            own = UniformJobs(requests.kind, requests.params[part], requests.titles[part])
            parts.append(Enqueued(own, self._stored[part]))
            first += size
        return parts

    @property
    def first_id(self) -> str:
        return self._stored[0][0] if self._jobs is None else self._jobs[0].id

    def job_at(self, number: int) -> Job:
        """One of the Jobs."""
        return self._jobs[number] if self._jobs is not None else _job(self._requests[number], self._stored[number])

    def handed_out(self) -> Sequence[Job | NewlyStored]:
        """One for each Job, for whoever may never look at most of them."""
        if self._jobs is not None:
            return self._jobs
        return [NewlyStored(self, number, stored[0]) for number, stored in enumerate(self._stored)]

    def texts(self, first: int = 0, last: int | None = None) -> list[str]:
        """These of the Jobs as JSON. Those of a uniform batch need not be made for it."""
        requests = self._requests
        numbers = range(len(self))[first:last]
        if self._jobs is not None or not isinstance(requests, UniformJobs):
            return [json_text(job_json(self.job_at(number))) for number in numbers]
        kind = requests.kind
        if kind.text is None:
            kind.text = UniformJobText(self.job_at(0))
        texts = []
        for number in numbers:
            job_id, position, created_at, _ = self._stored[number]
            params, title = requests.params[number], requests.titles[number]
            texts.append(kind.text.write(job_id, params, title, position, _written(created_at)))
        return texts

    @property
    def any_new(self) -> bool:
        return len(self.known) < len({job.id for job in self.jobs})


def _enqueue_many(tx: Transaction, batches: list[Sequence[NewJob]]) -> list[Enqueued | Exception]:
    """Stores batches of Jobs; each batch whole or not at all, none because of another.

    - The same idempotency key with the same request gives back the Job that is there (QUE-01), also within a
      batch; with another request the batch is refused with a Conflict.
    - Each Job stands at the end of its priority, in the order of the batch (DEC-005).
    - Jobs whose `not_before` lies ahead, or whose gate is closed, are not ready.
    """
    uniform = [batch for batch in batches if isinstance(batch, UniformJobs)]
    if len(uniform) == len(batches) and all(batch.kind is uniform[0].kind for batch in uniform):
        params = [own_params for batch in uniform for own_params in batch.params]
        titles = [title for batch in uniform for title in batch.titles]
        inserted = iter(_insert_uniform(tx, UniformJobs(uniform[0].kind, params, titles)))
        return [Enqueued(batch, list(islice(inserted, len(batch)))) for batch in uniform]
    if not any(request.idempotency_key for batch in batches for request in distinct_items(batch)):
        stored = iter(_insert(tx, [request for batch in batches for request in batch]))
        return [Enqueued(batch, list(islice(stored, len(batch)))) for batch in batches]
    held = _holders_of_keys(tx, batches)
    results: list[Enqueued | Exception] = []
    fresh: list[NewJob] = []
    for batch in batches:
        try:
            results.append(_sort_out(batch, held, fresh))
        except Conflict as refusal:
            results.append(refusal)
    new_jobs = insert_jobs(tx, fresh)
    by_request = {id(request): job for request, job in zip(fresh, new_jobs, strict=True)}
    for batch, result in zip(batches, results, strict=True):
        if isinstance(result, Enqueued):
            made_here = {by_request[id(request)].id for request in batch if id(request) in by_request}
            for request in batch:
                job = by_request.get(id(request))
                if job is None:
                    holder = held[request.idempotency_key or ""]
                    job = holder[1] if isinstance(holder[1], Job) else by_request[id(holder[1])]
                result.jobs.append(job)
                if job.id not in made_here:
                    result.known.add(job.id)
    return results


enqueue: Coalesced[Sequence[NewJob], Enqueued] = Coalesced(_enqueue_many)


def _holders_of_keys(tx: Transaction, batches: list[Sequence[NewJob]]) -> dict[str, tuple[str | None, Job | NewJob]]:
    keys = sorted({job.idempotency_key for batch in batches for job in batch if job.idempotency_key})
    if not keys:
        return {}
    # On PostgreSQL two callers with one key must wait for each other before they look.
    tx.lock_pools(f"key:{key}" for key in keys)
    rows = tx.rows(f"SELECT {JOBS.columns}, request_hash FROM jobs WHERE idempotency_key IN :keys", keys=keys)
    jobs = [(JOBS.read(tx, row), row[-1]) for row in rows]
    return {job.idempotency_key or "": (request_hash, job) for job, request_hash in jobs}


def _sort_out(
    batch: Sequence[NewJob], held: dict[str, tuple[str | None, Job | NewJob]], fresh: list[NewJob]
) -> Enqueued:
    """Puts the batch's really new jobs into `fresh`, or refuses all of it."""
    by_key: dict[str, tuple[str | None, Job | NewJob]] = {}
    new: list[NewJob] = []
    for request in batch:
        key = request.idempotency_key
        if key is None:
            new.append(request)
            continue
        holder = held.get(key) or by_key.get(key)
        if holder is None:
            by_key[key] = (request.request_hash, request)
            new.append(request)
        elif holder[0] != request.request_hash:
            raise Conflict(
                f"The idempotency key {key!r} was used before with another request. Use a new key for a new "
                "request; send the same request again to find its job.",
                code="idempotency_conflict",
                field="idempotency_key",
            )
    held.update(by_key)
    fresh.extend(new)
    return Enqueued()


def insert_jobs(tx: Transaction, requests: Sequence[NewJob], *, kind: str = events.JOB_QUEUED) -> list[Job]:
    """Writes Jobs as they are asked for, without looking at keys. Other verbs make retries and fires with it."""
    return [_job(request, stored) for request, stored in zip(requests, _insert(tx, requests, kind), strict=True)]


def _insert(tx: Transaction, requests: Sequence[NewJob], kind: str = events.JOB_QUEUED) -> list[_Stored]:
    if not requests:
        return []
    counts = Counter([request.priority for request in requests if request.position is None])
    places = _positions(tx, counts)
    rows: list[Row] = []
    stored: list[_Stored] = []
    now = tx.now
    labelled: list[tuple[str, dict[str, str]]] = []
    ages = tx.terms.aging_s > 0
    record = tx.events.append
    for job_id, request in zip(tx.new_ids(len(requests)), requests, strict=True):
        priority = request.priority
        hold = _hold_of(request, now)
        position = request.position
        if position is None:
            position = next(places[priority])
        ages_at = counted_from(tx, priority, hold) if ages else None
        rows.append(_row_of(request, job_id, position, now, hold, priority, ages_at))
        stored.append((job_id, position, now, hold))
        if request.labels:
            labelled.append((job_id, request.labels))
        data = _data_of(request.type, request.actor or tx.actor)
        record((kind, now, job_id, None, None, request.group_id, request.schedule_id, data))
    if any(request.is_awaited or request.is_detached for request in requests):
        rows = [_with_flags(row) for row in rows]
    tx.insert("jobs", _COLUMNS, rows)
    _after_insert(tx, requests, labelled, is_ready=any(hold is Hold.READY for *_, hold in stored))
    return stored


def _insert_uniform(tx: Transaction, batch: UniformJobs) -> list[_Stored]:
    """`_insert` for a uniform batch: column by column, without a row for each."""
    model, now = batch.model, tx.now
    hold = _hold_of(model, now)
    positions = list(islice(_positions(tx, {model.priority: len(batch)})[model.priority], len(batch)))
    job_ids = tx.new_ids(len(batch))
    shared = {**_shared_columns(tx, batch.kind, hold), "created_at": now, "hold": hold}
    for first in range(0, len(batch), PART):
        part = slice(first, first + PART)
        params = [dumps(params) for params in batch.params[part]]
        titles = batch.titles[part]
        varied: dict[str, Sequence[Any]] = {
            "id": job_ids[part],
            "position": positions[part],
            "params": params,
            "title": titles,
        }
        tx.insert_columns("jobs", shared, varied)
    data = _data_of(model.type, model.actor or tx.actor)
    tx.events += [(events.JOB_QUEUED, now, job_id, None, None, None, None, data) for job_id in job_ids]
    labelled = [(job_id, model.labels) for job_id in job_ids] if model.labels else []
    _after_insert(tx, [model], labelled, is_ready=hold is Hold.READY)
    return [(job_id, position, now, hold) for job_id, position in zip(job_ids, positions, strict=True)]


def _shared_columns(tx: Transaction, kind: PreparedKind, hold: Hold) -> Mapping[str, Any]:
    """The columns that are equal in all rows of a kind, apart from their time and their hold."""
    model = kind.model
    if kind.columns is None:
        row = zip(_COLUMNS, _row_of(model, None, None, None, None, model.priority, None), strict=True)
        own = {name: value for name, value in row if value is not None and value != COLUMN_DEFAULTS.get(name)}
        kind.columns = {name: value for name, value in own.items() if name not in ("params", "title")}
    if tx.terms.aging_s <= 0:
        return kind.columns
    return {**kind.columns, "ages_at": counted_from(tx, model.priority, hold)}


def single_insert(tx: Transaction, jobs: Sequence[NewJob], type_announced_at: datetime) -> SingleInsert[Enqueued]:
    """`_insert` for one ready job, to be written by a statement of the engine's own, which draws its position."""
    job_id = tx.new_id()
    if isinstance(jobs, UniformJobs):
        (params,), (title,) = jobs.params, jobs.titles
        kind = jobs.kind
    else:
        params, title = jobs[0].params, jobs[0].title
        kind = PreparedKind(type_announced_at, jobs[0])
    columns = {**_shared_columns(tx, kind, Hold.READY), "id": job_id, "params": dumps(params), "title": title}
    return SingleInsert(
        job_id,
        columns,
        {"name": events.JOB_QUEUED, "data": _data_of(kind.model.type, kind.model.actor or tx.actor)},
        type_announced_at,
        lambda position, created_at: Enqueued(jobs, [(job_id, position, created_at, Hold.READY)]),
    )


def uniform_insert(
    tx: Transaction, jobs: UniformJobs, sizes: Sequence[int], type_announced_at: datetime
) -> UniformInsert[Enqueued]:
    """`single_insert` for ready jobs of one kind, of callers with so many each."""
    job_ids, model = tx.new_ids(len(jobs)), jobs.model

    def answers(positions: Sequence[int], created_at: datetime) -> list[Enqueued]:
        stored = [(job_id, place, created_at, Hold.READY) for job_id, place in zip(job_ids, positions, strict=True)]
        return Enqueued(jobs, stored).split(sizes)

    return UniformInsert(
        job_ids,
        _shared_columns(tx, jobs.kind, Hold.READY),
        [dumps(params) for params in jobs.params],
        jobs.titles,
        {"name": events.JOB_QUEUED, "data": _data_of(model.type, model.actor or tx.actor)},
        type_announced_at,
        answers,
    )


def _positions(tx: Transaction, counts: Mapping[int, int]) -> dict[int, Iterator[int]]:
    """Fresh positions at the end of each priority."""
    if any(not 0 <= priority <= PRIORITY_MAX for priority in counts):
        raise Invalid(f"A priority lies between 0 and {PRIORITY_MAX}.", code="out_of_range", field="priority")
    return {priority: iter(positions) for priority, positions in tx.next_positions(counts).items()} if counts else {}


def _hold_of(request: NewJob, now: datetime) -> Hold:
    """Why a new job is not ready, if it is not."""
    if request.hold:
        return request.hold
    return Hold.DELAYED if request.not_before is not None and request.not_before > now else Hold.READY


def _after_insert(
    tx: Transaction, requests: Sequence[NewJob], labelled: list[tuple[str, dict[str, str]]], *, is_ready: bool
) -> None:
    if any(request.preemption >= PREEMPTS for request in requests):
        tx.wake(Topic.PREEMPT)
    if labelled:
        add_labels(tx, labelled)
    tx.wake(Topic.READY if is_ready else Topic.DELAYED)
