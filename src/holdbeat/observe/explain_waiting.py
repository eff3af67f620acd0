"""Why a Job waits: everything that stands in its way, the nearest first.

Guards agreement with the claim: the codes come from the same judgement as `blocked_by` in the queue's list, and each
is completed here with who, which and since when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.job import Hold, Job
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.worker import Worker
from holdbeat.observe.explain_limits import (
    holder_json,
    holder_words,
    passed_by,
    pool_words,
    rate_limited,
    refused_by_policy,
    resource_full,
    throttled,
)
from holdbeat.observe.wording import (
    NAMED_MAX,
    REASONS,
    answer,
    because,
    counted,
    listed,
    moment,
    reason,
    standing,
    wait_words,
)
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.reads.blockers import (
    Blocker,
    Blockers,
    Predecessor,
    unfinished_job_of_schedule,
    unfinished_member,
)
from holdbeat.store.reads.estimates import (
    AHEAD_MAX,
    estimate_start,
    line_before,
    mean_durations,
    waiting_requests,
)
from holdbeat.store.reads.graph import nodes_of
from holdbeat.store.reads.lease_holders import SlotHolder, holders_of_pool, holders_on_workers
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.transaction import Transaction

JOBS_AHEAD = "jobs_ahead"
WORKERS_BUSY = Blocker.WORKERS_BUSY.value
NEXT = "next"

Reason = dict[str, Any]


def explain_waiting(tx: Transaction, job: Job) -> dict[str, Any]:
    """The explanation of a QUEUED job."""
    blockers = Blockers(tx)
    reasons: list[Reason] = []
    blocked_by = blockers.of(job)
    for blocker in blocked_by:
        reasons += _EXPLAINED[blocker](tx, job)
    busy: list[SlotHolder] = []
    if Blocker.NO_WORKER not in blocked_by:
        why, busy = workers_busy(tx, job, blockers.workers)
        # The same holders fill the resource and the workers: that is one reason, not two.
        if Blocker.RESOURCE_FULL not in blocked_by or not set(busy) <= set(holders_of_pool(tx, job)):
            reasons += why
    if Blocker.RESOURCE_FULL in blocked_by:
        reasons += _reservation_waiting(tx, job)
    is_in_line = job.hold is Hold.READY or (
        job.hold is Hold.DELAYED and (job.not_before is None or job.not_before <= tx.now)
    )
    if is_in_line:
        reasons += passed_by(tx, job)
        reasons += _jobs_ahead(tx, job)
    if job.expires_at is not None:
        detail = f"If it has not started by {moment(job.expires_at, tx.now)}, it is skipped."
        reasons.append(reason("expires", detail, at=job.expires_at))
    start = after_the_busy(tx, estimate_start(tx, job, blockers), busy)
    if not blocked_by and all(entry["code"] == "expires" for entry in reasons):
        return answer(
            job.status,
            f"Nothing stands in the way: job {job.id} will start at the next claim of a worker.",
            [reason(NEXT, "It is first in line, and a worker has a free slot for it.")],
            start,
        )
    summary = f"Job {job.id} waits. {reasons[0]['detail']}"
    if len(reasons) == 2:
        summary += f" {reasons[1]['detail']}"
    elif len(reasons) > 2:
        codes = dict.fromkeys(reason["code"] for reason in reasons[1:])
        summary += f" Also: {', '.join(REASONS.get(code, code.replace('_', ' ')) for code in codes)}."
    if start is not None:
        summary += f" It will probably start at {moment(start, tx.now)}."
    return answer(job.status, summary, reasons, start)


# --- each blocker in full -----------------------------------------------------------------------------------


def _delayed(tx: Transaction, job: Job) -> list[Reason]:
    assert job.not_before is not None
    cause = "It is the retry of a failed job, and its delay lasts" if job.retry_kind == "auto" else "It is delayed"
    return [reason(Blocker.DELAYED, f"{cause} until {moment(job.not_before, tx.now)}.", until=job.not_before)]


def _waiting(tx: Transaction, job: Job) -> list[Reason]:
    waits = job.waits or []
    first = waits[0] if waits else {"kind": None, "until": None}
    detail = f"Its handler {wait_words(tx, waits)}, and holds no slot meanwhile."
    return [reason(Blocker.WAITING, detail, **first, waits=waits)]


def _group_predecessor(tx: Transaction, job: Job) -> list[Reason]:
    member = unfinished_member(tx, job)
    if member is None:
        detail = f"An earlier member of its group {job.group_id} must end first."
        return [reason(Blocker.GROUP_PREDECESSOR, detail, group_id=job.group_id)]
    return [
        reason(
            Blocker.GROUP_PREDECESSOR,
            f"It is member {(job.sequence or 0) + 1} of the sequential group {job.group_id}; member "
            f"{(member.sequence or 0) + 1}, job {member.job_id}, must end first and is {_state(member)}.",
            group_id=job.group_id,
            job_id=member.job_id,
            status=member.status,
        )
    ]


def _state(predecessor: Predecessor) -> str:
    runs_on = predecessor.has_lease and predecessor.status == "CANCELLED"
    return f"{predecessor.status} and still runs" if runs_on else predecessor.status


def _overlap(tx: Transaction, job: Job) -> list[Reason]:
    unfinished = unfinished_job_of_schedule(tx, job)
    if unfinished is None:
        detail = f"The job before it of the schedule {job.schedule_id} must end first."
        return [reason(Blocker.OVERLAP, detail, schedule_id=job.schedule_id)]
    return [
        reason(
            Blocker.OVERLAP,
            f"Job {unfinished.job_id} of the same schedule must end first and is {_state(unfinished)}.",
            schedule_id=job.schedule_id,
            job_id=unfinished.job_id,
            status=unfinished.status,
        )
    ]


def _upstream(tx: Transaction, job: Job) -> list[Reason]:
    unmet = [edge for edge in job.after if edge.met_at is None]
    nodes = {node.id: node for node in nodes_of(tx, {edge.upstream_id: edge.is_group for edge in unmet})}
    names = []
    for edge in unmet[: NAMED_MAX + 1]:
        node = nodes[edge.upstream_id]
        noun = "group" if edge.is_group else "job"
        called = f" ({edge.name})" if edge.name else ""
        names.append(f"{noun} {node.last_job_id or node.id}{called}, which {standing(node.status)}")
    names += [""] * (len(unmet) - len(names))
    done = f" {len(job.after) - len(unmet):,} of {len(job.after):,} have ended." if len(job.after) > 1 else ""
    return [
        reason(
            Blocker.UPSTREAM,
            f"It waits for the end of {listed(names)}.{done}",
            on_upstream=job.on_upstream,
            waits_for=[{"group_id" if edge.is_group else "job_id": edge.upstream_id} for edge in unmet],
        )
    ]


def _paused(tx: Transaction, job: Job) -> list[Reason]:
    reasons = []
    for pause in list_pauses(tx):
        if pause.resource not in (None, job.resource):
            continue
        what = "The whole queue" if pause.resource is None else f"The resource {pause.resource}"
        by = f" by {pause.paused_by}" if pause.paused_by else ""
        reasons.append(
            reason(
                Blocker.PAUSED,
                f"{what} was paused{by} at {moment(pause.paused_at, tx.now)}{because(pause.reason)}; it goes on when "
                "somebody resumes it.",
                resource=pause.resource,
                by=pause.paused_by,
                since=pause.paused_at,
                why=pause.reason,
            )
        )
    return reasons


def _reservation_waiting(tx: Transaction, job: Job) -> list[Reason]:
    waiting = waiting_requests(tx, job)
    if not waiting:
        return []
    names = listed(
        f"direct request {reservation.id} since {moment(reservation.requested_at, tx.now)}" for reservation in waiting
    )
    have = "has" if len(waiting) == 1 else "have"
    return [
        reason(
            Blocker.RESERVATION_WAITING,
            f"{counted(len(waiting), 'direct request')} {have} the next slot: {names}.",
            reservation_ids=[reservation.id for reservation in waiting],
        )
    ]


def no_worker(tx: Transaction, work: Job | Reservation) -> list[Reason]:
    """Explains that no live worker could ever run it: none lives, knows the type, serves the resource or has a slot."""
    alive = live_workers(tx)
    claiming = [worker for worker in alive if worker.stopping_at is None]
    knowing = [worker for worker in claiming if work.type in worker.types]
    serving = [worker for worker in knowing if worker.resources is None or work.resource in worker.resources]
    if not alive:
        cause, detail = "none_alive", "No worker is alive. Start one with `holdbeat worker`."
    elif not claiming:
        cause, detail = "stopping", f"{counted(len(alive), 'worker')} alive, but shutting down. Start one."
    elif not knowing:
        cause = "type"
        detail = f"{counted(len(claiming), 'worker')} alive, but none knows the type {work.type}."
    elif not serving:
        cause = "resource"
        detail = f"No live worker that knows the type {work.type} serves the resource {work.resource}."
    else:
        cause, detail = "slots", f"No live worker for the type {work.type} has a slot for it."
    return [
        reason(
            Blocker.NO_WORKER,
            detail,
            cause=cause,
            type=work.type,
            resource=work.resource,
            workers=[worker.id for worker in alive],
        )
    ]


def workers_busy(
    tx: Transaction, work: Job | Reservation, workers: list[Worker]
) -> tuple[list[Reason], list[SlotHolder]]:
    """Whether every worker that could run it has no free slot, and what holds its slots."""
    able = [worker for worker in workers if worker.can_serve(work.resource, work.type)]
    is_http = work.resource == HTTP_RESOURCE
    holders = [
        holder
        for holder in holders_on_workers(tx, [worker.id for worker in able])
        if holder.slot is not None and (holder.slot < 0) == is_http
    ]
    used_slots = Counter(holder.worker_id for holder in holders)
    if any(used_slots[worker.id] < (worker.http_slots if is_http else worker.slots) for worker in able):
        return [], []
    slots = sum(worker.http_slots if is_http else worker.slots for worker in able)
    why = reason(
        WORKERS_BUSY,
        f"No worker that can run it has a free slot ({counted(slots, 'slot')} on {counted(len(able), 'worker')}): "
        f"{listed(holder_words(holder, tx.now) for holder in holders)}.",
        workers=[worker.id for worker in able],
        slots=slots,
        holders=[holder_json(holder) for holder in holders],
    )
    return [why], holders


def _jobs_ahead(tx: Transaction, job: Job) -> list[Reason]:
    line = line_before(tx, job)
    if line is None:
        return [reason(JOBS_AHEAD, f"More than {AHEAD_MAX:,} jobs are in its line.", count=None, position=None)]
    count = len(line.before)
    if not count:
        return []
    are = "is" if count == 1 else "are"
    detail = f"{counted(count, 'job')} {are} ahead of it in the line for {pool_words(tx, job)}."
    turn = {}
    if line.fair is not None:
        limit = line.fair.limit
        own = sum(1 for ahead in line.before if ahead.partition == job.partition)
        of = f"of its own partition {job.partition}" if job.partition else "without a partition, as it is"
        detail = f"Partitions take turns by the limit {limit.name}: {counted(count, 'job')} {are} ahead of it"
        detail += f", {own:,} of them {of}." if own else "."
        turn = {"limit": limit.name, "partition": job.partition or None}
    return [reason(JOBS_AHEAD, detail, count=count, position=count + 1, **turn)]


_EXPLAINED: dict[Blocker, Callable[[Transaction, Job], list[Reason]]] = {
    Blocker.DELAYED: _delayed,
    Blocker.GROUP_PREDECESSOR: _group_predecessor,
    Blocker.OVERLAP: _overlap,
    Blocker.UPSTREAM: _upstream,
    Blocker.WAITING: _waiting,
    Blocker.PAUSED: _paused,
    Blocker.RESOURCE_FULL: resource_full,
    Blocker.RATE_LIMITED: rate_limited,
    Blocker.THROTTLED: throttled,
    Blocker.POLICY: refused_by_policy,
    Blocker.RESERVATION_WAITING: _reservation_waiting,
    Blocker.NO_WORKER: no_worker,
}


def after_the_busy(tx: Transaction, start: datetime | None, busy: list[SlotHolder]) -> datetime | None:
    """`start`, or when the first of these holders probably ends, if later; None if one is of a type that never ran."""
    if start is None or not busy:
        return start
    means = mean_durations(tx, {holder.type for holder in busy})
    if any(holder.type not in means for holder in busy):
        return None
    first = min(holder.since + timedelta(seconds=round(means[holder.type], 3)) for holder in busy)
    return max(start, first)
