"""Submitting: requests become jobs, with what they depend on, for the API, the CLI, the App and groups alike.

Guards QUE-02 and DEP-04: a batch is decided whole before any of it is stored, and is stored with its edges.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdbeat.domain.bounds import check_line
from holdbeat.domain.dependencies import OnUpstream, Upstream
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.group import GroupMode, JobGroup, OnFailure, ThenWhen
from holdbeat.domain.job import Hold, Job, NewJob
from holdbeat.domain.submission import Submission
from holdbeat.domain.uniform_batch import UniformSubmissions, distinct_items
from holdbeat.store.dependencies.linking import NewEdges, known_upstreams, link
from holdbeat.store.jobs.single_job import single_job, uniform_jobs
from holdbeat.store.jobs.unique import enqueue_unique
from holdbeat.store.queue.enqueue import Enqueued, enqueue
from holdbeat.store.queue.groups import create_group, load_group
from holdbeat.store.queue.submission import Preparation
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.tracing import tracer
from holdbeat.store.transaction import Transaction
from holdbeat.store.work import Coalesced

_NOT_STORED = Enqueued()


def _submit_many(tx: Transaction, batches: list[Sequence[Submission]]) -> list[Enqueued | Exception]:
    """Prepares and stores batches, each whole or not at all, none because of another; refusals name the job."""
    preparation = Preparation(tx)
    runs = [(_joined(run), run) for run in _runs(batches)]
    preparation.expect([batch for batch, _ in runs])
    results: list[Enqueued | Exception] = [_NOT_STORED] * len(batches)
    good: list[Sequence[NewJob]] = []
    places: list[range] = []
    first = 0
    for joined, run in runs:
        jobs = preparation.prepare_uniform(joined) if isinstance(joined, UniformSubmissions) else None
        # Jobs with unique keys or upstreams depend on those of other batches.
        if jobs is not None and (len(run) == 1 or not (jobs.model.unique_key or jobs.model.after)):
            good.append(jobs)
            places.append(range(first, first + len(run)))
        else:
            for index, batch in enumerate(run, first):
                try:
                    good.append(preparation.prepare_batch(batch))
                    places.append(range(index, index + 1))
                except HoldbeatError as refusal:
                    results[index] = refusal
        first += len(run)
    good, places = _without_unknown_upstreams(tx, good, places, results)
    if good:
        stored = _store(tx, good)
        for place, result in zip(places, stored, strict=True):
            if len(place) > 1 and isinstance(result, Enqueued):
                results[place.start : place.stop] = result.split([len(batches[index]) for index in place])
            else:
                results[place.start] = result
        _link(tx, good, stored)
    return results


def _runs(batches: Sequence[Sequence[Submission]]) -> list[list[Sequence[Submission]]]:
    """The batches in their order; neighbours that differ in their params alone are together, if nobody traces them."""
    runs: list[list[Sequence[Submission]]] = []
    kind = None
    joins = tracer() is None
    for batch in batches:
        own_kind = batch.kind if joins and isinstance(batch, UniformSubmissions) else None
        if own_kind is not None and own_kind is kind:
            runs[-1].append(batch)
        else:
            runs.append([batch])
        kind = own_kind
    return runs


def _joined(run: list[Sequence[Submission]]) -> Sequence[Submission]:
    """One batch instead of several of a kind."""
    if len(run) == 1:
        return run[0]
    uniform = [batch for batch in run if isinstance(batch, UniformSubmissions)]
    return UniformSubmissions(uniform[0].kind, [params for batch in uniform for params in batch.params])


def _store(tx: Transaction, batches: list[Sequence[NewJob]]) -> list[Enqueued | Exception]:
    """Stores batches; those with unique keys one after the other, so that each sees what the one before has stored."""
    is_plain = [not any(job.unique_key for job in distinct_items(batch)) for batch in batches]
    if all(is_plain):
        return enqueue.many(tx, batches)
    plain_batches = [batch for batch, plain in zip(batches, is_plain, strict=True) if plain]
    stored = iter(enqueue.many(tx, plain_batches) if plain_batches else ())
    results: list[Enqueued | Exception] = []
    for batch, plain in zip(batches, is_plain, strict=True):
        try:
            results.append(next(stored) if plain else enqueue_unique(tx, batch))
        except HoldbeatError as refusal:
            results.append(refusal)
    return results


def _without_unknown_upstreams(
    tx: Transaction, batches: list[Sequence[NewJob]], places: list[range], results: list[Enqueued | Exception]
) -> tuple[list[Sequence[NewJob]], list[range]]:
    """The batches that name only what exists; the others are refused."""
    if not any(job.after for batch in batches for job in distinct_items(batch)):
        return batches, places
    upstreams = known_upstreams(tx, (job for batch in batches for job in batch))
    good: list[tuple[Sequence[NewJob], range]] = []
    for batch, place in zip(batches, places, strict=True):
        try:
            upstreams.check(batch)
        except Invalid as refusal:
            results[place.start] = refusal
        else:
            good.append((batch, place))
    return [batch for batch, _ in good], [place for _, place in good]


def _link(tx: Transaction, batches: Sequence[Sequence[NewJob]], stored: Sequence[Enqueued | Exception]) -> None:
    """Stores the dependencies of what was new in each batch."""
    links: dict[str, NewEdges] = {}
    changed: list[Enqueued] = []
    for batch, result in zip(batches, stored, strict=True):
        if isinstance(result, Enqueued) and any(job.after for job in distinct_items(batch)):
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


submit: Coalesced[Sequence[Submission], Enqueued] = Coalesced(
    _submit_many, batches_behind=True, alone=single_job, uniform=uniform_jobs
)


@dataclass(frozen=True, slots=True)
class Then:
    """A job that runs when a group has ended: always, or only if the group has completed."""

    submission: Submission
    when: ThenWhen = ThenWhen.COMPLETED


def submit_group_with_then(
    tx: Transaction,
    name: str | None,
    mode: GroupMode,
    on_failure: OnFailure,
    when: ThenWhen,
    submissions: Sequence[Submission],
) -> tuple[JobGroup, list[Job]]:
    """`submit_group` for submissions of which the last is the job that runs when the group has ended."""
    return submit_group(tx, name, mode, on_failure, submissions[:-1], Then(submissions[-1], when))


def submit_group(
    tx: Transaction,
    name: str | None,
    mode: GroupMode,
    on_failure: OnFailure,
    submissions: Sequence[Submission],
    then: Then | None = None,
) -> tuple[JobGroup, list[Job]]:
    """Stores a group with all its members and the job that runs after it, or nothing.

    Members may carry idempotency keys: if every one of them does, and all were used for the same requests by one group
    of the same name, mode and policy, with the same members in the same order, that group is given back. Any other
    meeting with a used key is a Conflict.
    """
    if name is not None:
        check_line(name, "name")
    if not submissions:
        raise Invalid("A group needs at least one job.", code="empty_group", field="jobs")
    members = Preparation(tx).prepare_batch(submissions)
    if any(member.unique_key for member in members):
        raise Invalid(
            "A member of a group is always a job of its own: leave out unique_key.",
            code="unknown_field",
            field="jobs.unique_key",
        )
    earlier = _group_of_keys(tx, (name, mode, on_failure), members)
    if earlier is not None:
        return load_group(tx, earlier)
    has_edges = any(member.after for member in members)
    if has_edges:
        if mode is GroupMode.SEQUENTIAL:
            _refuse_two_orders(members)
        known_upstreams(tx, members).check(members)
    group, jobs = create_group(tx, name, mode, on_failure, members)
    if then is not None:
        # Before the members are linked: what they depend on may have ended, and end the group with them.
        _make_then(tx, group, then)
    if has_edges:
        link(tx, _edges(members, jobs))
    return load_group(tx, group.id) if has_edges else (group, jobs)


def _make_then(tx: Transaction, group: JobGroup, then: Then) -> None:
    """Stores the job that runs when a new group has ended."""
    job = Preparation(tx).prepare_batch([then.submission])[0]
    if job.after or job.ref or job.unique_key:
        raise Invalid(
            "The job in then waits for its group and is made with it: leave out after, ref and unique_key.",
            code="unknown_field",
            field="then",
        )
    job.on_upstream = OnUpstream.RUN if then.when is ThenWhen.ALWAYS else OnUpstream.CANCEL
    job.hold = Hold.BLOCKED
    enqueued = enqueue(tx, [job])
    if enqueued.known:
        raise Conflict(
            "The idempotency key of then was used before. Use a new one for a new group.",
            code="idempotency_conflict",
            field="then.idempotency_key",
        )
    group.then_job_id = enqueued.jobs[0].id
    tx.execute("UPDATE job_groups SET then_job_id = :then WHERE id = :id", id=group.id, then=group.then_job_id)
    link(tx, [NewEdges(group.then_job_id, [Upstream(group_id=group.id, name="group")])])


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
    tx: Transaction, policy: tuple[str | None, GroupMode, OnFailure], members: Sequence[NewJob]
) -> str | None:
    keys = [member.idempotency_key for member in members if member.idempotency_key is not None]
    if not keys:
        return None
    tx.lock_pools(f"key:{key}" for key in keys)
    holders = {
        row[0]: row[1:]
        for row in tx.rows(
            "SELECT idempotency_key, request_hash, sequence, group_id FROM jobs WHERE idempotency_key IN :keys",
            keys=keys,
        )
    }
    if not holders and len(set(keys)) == len(keys):
        return None
    groups = {group for _, _, group in holders.values()}
    same = [
        holders.get(member.idempotency_key or "", (None, None))[:2] == (member.request_hash, sequence)
        for sequence, member in enumerate(members)
    ]
    group = next(iter(groups), None)
    if all(same) and len(groups) == 1 and group is not None:
        stored, jobs = load_group(tx, group)
        sequences = {job.sequence for job in jobs}
        if (stored.name, stored.mode, stored.on_failure) == policy and len(sequences) == len(members):
            return stored.id
    used = next((key for key in keys if key in holders), keys[0])
    raise Conflict(
        f"The idempotency key {used!r} was used before, or twice in this group. Use new keys for a new group; send the "
        "same group again, whole, to find it.",
        code="idempotency_conflict",
        field="idempotency_key",
    )
