"""Explains waits for limits: who holds the slots, when the rate permits, who asked to wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdbeat.domain.capacity import needed
from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job
from holdbeat.domain.limit import EACH, Pool
from holdbeat.domain.reservation import Reservation
from holdbeat.observe.wording import listed, moment, reason, span
from holdbeat.store.limits.rates import instant_of
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.estimates import fullest_pool
from holdbeat.store.reads.lease_holders import HOLDERS_MAX, SlotHolder, holders_of_pool
from holdbeat.store.reads.limit_figures import last_passed_by
from holdbeat.store.transaction import Transaction

Reason = dict[str, Any]


def resource_full(tx: Transaction, work: Job | Reservation) -> list[Reason]:
    """All slots of the pool are taken: by whom, and since when."""
    capacity = Blockers(tx).capacity
    pool = capacity.fullest(work.resource, work.type, work.partition, work.weight)
    if pool is None or pool.limit.slots is None:
        return []
    holders = holders_of_pool(tx, work)
    words = [holder_words(holder, tx.now) for holder in holders]
    return [
        reason(
            Blocker.RESOURCE_FULL,
            _full(pool, pool_words(tx, work), capacity.used(pool, work.partition), needed(pool, work.weight), words),
            limit=pool.limit.name,
            slots=pool.limit.slots,
            weight=work.weight,
            resource=work.resource,
            holders=[holder_json(holder) for holder in holders],
        )
    ]


def _full(pool: Pool, covered: str, held: int, weight: int, holders: list[str]) -> str:
    """Why a pool has no room for so many slots more, and what to do where waiting does not help."""
    name, slots = pool.limit.name, pool.limit.slots or 0
    by = f" by {listed(holders, HOLDERS_MAX)}" if holders else ""
    if not slots and not held:
        advice = f"Raise it in the settings (concurrency, limits), or with `holdbeat limits set {name} --slots 1`."
        return f"The limit {name} gives {covered} no slot, so nothing of it can run. {advice}"
    if weight > slots:
        verb = "is" if slots == 1 else "are"
        advice = f"Raise the limit {name}, or submit it with a smaller weight."
        return f"It weighs {weight} slots of {covered}, and only {slots} {verb} there. {advice}"
    if held < slots:
        detail = f"It weighs {weight} slots of {covered}, and not as many are free; nothing else starts before it."
        return f"{detail} {held} of {slots} {'is' if held == 1 else 'are'} held{by}."
    if held > slots:
        return f"Of {covered} {slots} may be held at once, and {held} are{by}."
    return f"The {slots} {'slot' if slots == 1 else 'slots'} of {covered} {'is' if slots == 1 else 'are'} held{by}."


def rate_limited(tx: Transaction, work: Job | Reservation) -> list[Reason]:
    """A rate permits no start now: which one, and when the next may be."""
    capacity = Blockers(tx).capacity
    at = capacity.next_start(work.resource, work.type, work.partition)
    if at is None:
        return []
    limits = [pool.limit for pool in capacity.used_up(work.resource, work.type, work.partition)]
    rates = [(limit.name, limit.rate) for limit in limits if limit.rate is not None]
    names = " and ".join(f"{name} ({rate.count} in {rate.per_s:g} s)" for name, rate in rates)
    is_of_partition = work.partition and any(entry.per_partition for entry in limits)
    of = f" of the partition {work.partition}" if is_of_partition else ""
    until = instant_of(tx, at)
    return [
        reason(
            Blocker.RATE_LIMITED,
            f"The rate of the limit {names} is used up; the next start{of} may be at {moment(until, tx.now)}.",
            limits=[limit.name for limit in limits],
            partition=work.partition or None,
            until=until,
        )
    ]


def refused_by_policy(tx: Transaction, job: Job) -> list[Reason]:
    name = type(tx.terms.policy).__name__
    return [reason(Blocker.POLICY, f"The policy {name} of this program does not let it start now.", policy=name)]


def throttled(tx: Transaction, work: Job | Reservation) -> list[Reason]:
    """A called service asked for no other call before some time."""
    capacity = Blockers(tx).capacity
    at = capacity.throttled_until(work.resource, work.type, work.partition)
    if at is None:
        return []
    of = f" of the partition {work.partition}" if work.partition else ""
    until = instant_of(tx, at)
    limits = [pool.limit.name for pool in capacity.throttling(work.resource, work.type, work.partition)]
    return [
        reason(
            Blocker.THROTTLED,
            f"The service that such jobs{of} call asked for no calls before {moment(until, tx.now)}. To start one "
            f"earlier, set the limit {listed(limits)} again.",
            limits=limits,
            partition=work.partition or None,
            until=until,
        )
    ]


def passed_by(tx: Transaction, job: Job) -> list[Reason]:
    """The jobs that started before it because a worker has their affinity loaded."""
    passed = last_passed_by(tx, job.id)
    if passed is None:
        return []
    data = passed.data
    return [
        reason(
            "affinity",
            f"Job {data['preferred']} went before it at {moment(passed.at, tx.now)}, because the worker "
            f"{passed.worker_id} had run jobs for {data['affinity']} last: {data['run']} in a row, at most "
            f"{data['most']}. "
            f"It goes first when it has waited longer than {data['wait_s']:g} s.",
            preferred=data["preferred"],
            affinity=data["affinity"],
            worker_id=passed.worker_id,
            at=passed.at,
        )
    ]


def holder_words(holder: SlotHolder, now: datetime) -> str:
    lasted = span((now - holder.since).total_seconds())
    if holder.slot is None:
        client = f" by {holder.client}" if holder.client else ""
        cancelled = ", cancelled but not given back" if holder.is_cancelled else ""
        return f"reservation {holder.reservation_id} ({holder.type}{client} for {lasted}{cancelled})"
    work = f"job {holder.job_id}" if holder.job_id else f"direct request {holder.reservation_id}"
    cancelled = ", cancelled but still running" if holder.is_cancelled else ""
    return f"{work} ({holder.type} on {holder.worker_id} for {lasted}{cancelled})"


def holder_json(holder: SlotHolder) -> dict[str, Any]:
    return {
        "job_id": holder.job_id,
        "reservation_id": holder.reservation_id,
        "type": holder.type,
        "worker_id": holder.worker_id,
        "client": holder.client,
        "since": iso(holder.since),
        "cancelled": holder.is_cancelled,
    }


def pool_words(tx: Transaction, work: Job | Reservation) -> str:
    """The pool by what it covers, and by the name of its limit where that says something else."""
    pool = fullest_pool(tx, work)
    if pool is None or pool.limit.resource == EACH:
        return f"the resource {work.resource}"
    if pool.limit.type == EACH:
        return f"the job type {work.type}"
    limit = pool.limit
    of = f" for the partition {work.partition}" if limit.per_partition and work.partition else ""
    named = (
        "" if limit.name in (limit.resource, limit.type, f"type:{limit.type}", "global") else f" (limit {limit.name})"
    )
    return f"{limit.words()}{of}{named}"
