"""What limits have to do with work that waits: who holds the slots, when the rate permits, who asked to wait."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.job import Job
from holdbeat.domain.reservation import Reservation
from holdbeat.observe.slot_holders import holder_json, holder_words, pool_words, slots_of_pool
from holdbeat.observe.wording import listed, moment, reason
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.rates import instant_of
from holdbeat.store.reads.affinity import last_passed_by
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.lease_holders import holders_of_pool
from holdbeat.store.transaction import Transaction

Reason = dict[str, Any]


def resource_full(tx: Transaction, work: Job | Reservation) -> list[Reason]:
    """All slots of the pool are taken: by whom, and since when."""
    slots = slots_of_pool(tx, work)
    holders = holders_of_pool(tx, work)
    pool = pool_words(tx, work)
    weight = work.weight
    if weight > 1 and slots is not None and (weight > slots or len(holders) < slots):
        held = f" {listed(holder_words(holder, tx.now) for holder in holders)} hold some." if holders else ""
        enough = f"only {slots} are there" if weight > slots else "not as many are free; nothing else starts before it"
        detail = f"It weighs {weight} slots of {pool}, and {enough}.{held}"
        held_by = [holder_json(holder) for holder in holders]
        return [
            reason(Blocker.RESOURCE_FULL, detail, slots=slots, weight=weight, resource=work.resource, holders=held_by)
        ]
    if not holders:
        detail = f"The settings give {pool} no slot, so nothing of it can run. Raise its number in concurrency."
        return [reason(Blocker.RESOURCE_FULL, detail, slots=slots, resource=work.resource, holders=[])]
    taken = f"{len(holders)} of {slots}" if slots is not None and len(holders) != slots else f"{slots}"
    noun = "slot" if slots == 1 else "slots"
    return [
        reason(
            Blocker.RESOURCE_FULL,
            f"The {taken} {noun} of {pool} {'is' if slots == 1 else 'are'} held by "
            f"{listed(holder_words(holder, tx.now) for holder in holders)}.",
            slots=slots,
            resource=work.resource,
            holders=[holder_json(holder) for holder in holders],
        )
    ]


def rate_limited(tx: Transaction, work: Job | Reservation) -> list[Reason]:
    """A rate permits no start now: which one, and when the next may be."""
    at = Blockers(tx).capacity.next_start(work.resource, work.type, work.partition)
    if at is None:
        return []
    limits = [
        pool.limit for pool in limits_in_force(tx).covering(work.resource, work.type) if pool.limit.rate is not None
    ]
    rates = [(limit.name, limit.rate) for limit in limits if limit.rate is not None]
    names = " and ".join(f"{name} ({rate.count} in {rate.per_s:g} s)" for name, rate in rates)
    of = f" of the partition {work.partition}" if work.partition and any(each.per_partition for each in limits) else ""
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
    """Who was called asked for no other call before some time."""
    at = Blockers(tx).capacity.throttled_until(work.resource, work.type, work.partition)
    if at is None:
        return []
    of = f" of the partition {work.partition}" if work.partition else ""
    until = instant_of(tx, at)
    limits = [pool.limit.name for pool in limits_in_force(tx).covering(work.resource, work.type)]
    return [
        reason(
            Blocker.THROTTLED,
            f"Who such jobs{of} call asked for no other call before {moment(until, tx.now)}. To start one earlier, set "
            f"the limit {listed(limits)} again.",
            limits=limits,
            partition=work.partition or None,
            until=until,
        )
    ]


def passed_by(tx: Transaction, job: Job) -> list[Reason]:
    """Who went before it because of what a worker has loaded."""
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
