"""Capacity: what each limit has left at one instant.

Guards CON-002 and CAP-01: used slots are a pure function of the live leases, so there is no counter to leak. What a
rate has left follows from one instant that is kept for each limit and partition (LIM-05).

A throttle holds for one limit and one partition (LIM-06). A limit that covers everything, or a resource that names no
real thing (`default`, `http`), holds back only jobs of the type that was throttled.

Preemption interrupts only work that agreed to it, only for work of a higher priority that asked for it, and only as
much as is needed (LIM-13). What has run for the shortest time loses least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from holdbeat.domain.limit import Limit, Limits, Pool
from holdbeat.domain.rate import Rate, due_after, next_start, permitted

_NO_REAL_THING = ("default", "http")


class Throttle(NamedTuple):
    """Where nothing starts: the key of a limit's pool, the type that it concerns or empty for all, the partition."""

    key: str
    type: str
    partition: str


def throttle_of(key: str, limit: Limit, type_: str, partition: str = "") -> Throttle:
    """Where a limit holds back other work when a job of this type and partition was throttled."""
    resource = key.removeprefix(f"{limit.name}/") if limit.resource == "*" else limit.resource
    is_whole = limit.type is None and (resource is None or resource in _NO_REAL_THING)
    return Throttle(key, type_ if is_whole else "", partition)


class Usage(NamedTuple):
    """A count of leases, or waiting direct requests, of one kind."""

    resource: str
    type: str
    amount: int
    partition: str = ""
    weight: int | None = None
    """The slots of the resource that they take together; None: one each."""


class Place(NamedTuple):
    """Where a limit counts: the key of the pool, and the partition if it counts by partition."""

    key: str
    partition: str = ""


def needed(pool: Pool, weight: int) -> int:
    """The slots of a pool that such work takes: what it weighs counts where the limit is by resource."""
    return weight if pool.limit.resource is not None else 1


def place_of(pool: Pool, partition: str) -> Place:
    return Place(pool.key, partition if pool.limit.per_partition else "")


def _left(room: int, before: int, is_turn: bool) -> int:
    """The room that remains after the work ahead; at least one if it is the turn of the work behind."""
    if is_turn and room > 0:
        before = min(before, room - 1)
    return max(0, room - before)


class Capacity:
    """The room that limits leave, from what was read in the claiming transaction.

    A queued job may take a slot only while free slots outnumber the direct requests that still wait for one.
    """

    def __init__(
        self, limits: Limits, leases: Iterable[Usage], waiting_reservations: Iterable[Usage] = (), *, now: float = 0.0
    ) -> None:
        self._limits = limits
        self._now = now
        self._used: Counter[Place] = Counter()
        self._waiting: Counter[Place] = Counter()
        self._due: dict[Place, float] = {}
        self._started: Counter[Place] = Counter()
        """Starts of this claim, where a rate counts them."""
        self._rates: dict[Place, Rate] = {}
        """The rates of those places."""
        self._throttles: dict[Throttle, float] = {}
        self._queue_turns: set[str] = set()
        self._kept: set[Place] = set()
        """Where slots are kept for a heavy job."""
        for counter, usages in ((self._used, leases), (self._waiting, waiting_reservations)):
            for resource, type_, amount, partition, weight in usages:
                for pool in limits.covering(resource, type_):
                    by_weight = weight is not None and pool.limit.resource is not None
                    counter[place_of(pool, partition)] += int(weight or 0) if by_weight else amount

    def demand(self, resource: str, type_: str, partition: str = "", weight: int = 1) -> dict[Place, int]:
        """Where work of this kind is counted, and for how many slots."""
        return {place_of(pool, partition): needed(pool, weight) for pool in self._limits.covering(resource, type_)}

    def learn_rates(self, due: Mapping[Place, float]) -> None:
        """Takes in the instants that rates go by; a place without one has not started anything lately."""
        self._due.update(due)

    def learn_throttles(self, until: Mapping[Throttle, float]) -> None:
        """Takes in the throttles: until when nothing may start because a called service asked for a pause."""
        self._throttles.update(until)

    def is_throttled(self, resource: str, type_: str) -> bool:
        """Whether a partition of such work may be throttled."""
        if not self._throttles:
            return False
        keys = {throttle_of(pool.key, pool.limit, type_)[:2] for pool in self._limits.covering(resource, type_)}
        return any(throttle[:2] in keys for throttle in self._throttles)

    def throttled_until(self, resource: str, type_: str, partition: str = "") -> float | None:
        """Until when this partition is throttled because a called service asked for a pause; None if it is not."""
        if not self._throttles:
            return None
        ends = [
            self._throttles.get(throttle_of(pool.key, pool.limit, type_, partition), 0.0)
            for pool in self._limits.covering(resource, type_)
        ]
        until = max(ends, default=0.0)
        return until if until > self._now else None

    def used(self, pool: Pool, partition: str = "") -> int:
        return self._used[place_of(pool, partition)]

    def free_behind(
        self, resource: str, type_: str, ahead: Mapping[Place, int], partition: str | None = "", weight: int = 1
    ) -> int | None:
        """How many of this weight could start when those ahead have; None without limit, never negative.

        A lowered limit may have less than nothing: that is nothing. With None as the partition, limits that count by
        partition are left out.
        """
        free: int | None = None
        if self._throttles and partition is not None and self.throttled_until(resource, type_, partition) is not None:
            return 0
        for pool in self._limits.covering(resource, type_):
            limit = pool.limit
            if partition is None and limit.per_partition:
                continue
            place = place_of(pool, partition or "")
            if self._kept and place in self._kept:
                return 0
            before = ahead.get(place, 0)
            is_turn = pool.key in self._queue_turns and ahead is self._waiting
            if limit.slots is not None:
                left = limit.slots - self._used[place]
                left = _left(left, before, is_turn) // needed(pool, weight)
                free = left if free is None else min(free, left)
            if limit.rate is not None:
                left = permitted(limit.rate, self._due.get(place), self._now) - self._started[place]
                left = _left(left, before, is_turn)
                free = left if free is None else min(free, left)
        return free

    def free(self, resource: str, type_: str, partition: str = "") -> int | None:
        """How many pieces of work of this kind could start; None without limit."""
        return self.free_behind(resource, type_, {}, partition)

    def free_for_jobs(self, resource: str, type_: str, partition: str | None = "", weight: int = 1) -> int | None:
        """How many jobs of this kind could start beside waiting direct requests; None without limit."""
        return self.free_behind(resource, type_, self._waiting, partition, weight)

    def keep_for(self, resource: str, type_: str, partition: str, weight: int) -> None:
        """Lets nothing else start where a heavy job at the head waits for slots, if it can ever have as many (LIM-09).

        Otherwise light jobs would pass it for ever.
        """
        pools = self._limits.covering(resource, type_)
        if all(pool.limit.slots is None or pool.limit.slots >= needed(pool, weight) for pool in pools):
            self._kept.update(
                place_of(pool, partition)
                for pool in pools
                if pool.limit.slots is not None
                and pool.limit.slots - self._used[place_of(pool, partition)] < needed(pool, weight)
            )

    def give_queue_turns(self, keys: Iterable[str]) -> None:
        """Jobs may have one slot of these pools each that direct requests wait for."""
        self._queue_turns = set(keys)

    def take(self, resource: str, type_: str, partition: str = "", count: int = 1, weight: int = 1) -> None:
        for pool in self._limits.covering(resource, type_):
            place = place_of(pool, partition)
            self._used[place] += count * needed(pool, weight)
            if self._queue_turns:
                self._queue_turns.discard(pool.key)
            if pool.limit.rate is not None:
                self._started[place] += count
                self._rates[place] = pool.limit.rate

    def grant(self, resource: str, type_: str, partition: str = "", weight: int = 1) -> None:
        """A waiting direct request got its slot."""
        self.take(resource, type_, partition, weight=weight)
        self._waiting.subtract(self.demand(resource, type_, partition, weight))

    def next_start(
        self, resource: str, type_: str, partition: str | None = "", ahead: Sequence[str] = ()
    ) -> float | None:
        """When rates and throttles permit the next start behind those of the partitions `ahead`, if that lies ahead."""
        latest = self.throttled_until(resource, type_, partition or "") or self._now
        for pool in self._limits.covering(resource, type_):
            if pool.limit.rate is not None and not (partition is None and pool.limit.per_partition):
                latest = max(latest, self._permitted_at(pool, pool.limit.rate, partition or "", ahead))
        return latest if latest > self._now else None

    def _permitted_at(self, pool: Pool, rate: Rate, partition: str, ahead: Sequence[str]) -> float:
        place = place_of(pool, partition)
        due = self._due.get(place)
        if self._started[place]:
            due = due_after(rate, due, self._now, self._started[place])
        at = next_start(rate, due, self._now)
        for _ in range(ahead.count(partition) if pool.limit.per_partition else len(ahead)):
            due = due_after(rate, due, at, 1)
            at = next_start(rate, due, at)
        return at

    def used_up(self, resource: str, type_: str, partition: str = "") -> list[Pool]:
        """The pools whose rate permits no start now."""
        return [
            pool
            for pool in self._limits.covering(resource, type_)
            if pool.limit.rate is not None and self._permitted_at(pool, pool.limit.rate, partition, ()) > self._now
        ]

    def throttling(self, resource: str, type_: str, partition: str = "") -> list[Pool]:
        """The pools that throttle this partition because a called service asked for a pause."""
        return [
            pool
            for pool in self._limits.covering(resource, type_)
            if self._throttles.get(throttle_of(pool.key, pool.limit, type_, partition), 0.0) > self._now
        ]

    def next_permitted(self, resource: str, type_: str) -> float | None:
        """When a rate first permits another start of such work, in whichever of the partitions that are known."""
        partitions = {place.partition for place in (*self._due, *self._started)} | {""}
        partitions |= {throttle.partition for throttle in self._throttles}
        starts = [
            at for at in (self.next_start(resource, type_, partition) for partition in partitions) if at is not None
        ]
        return min(starts, default=None)

    def rates_to_keep(self) -> list[tuple[str, str, float]]:
        """Key, partition and new instant of each place where something has started."""
        return [
            (*place, due_after(rate, self._due.get(place), self._now, self._started[place]))
            for place, rate in self._rates.items()
        ]

    def fullest(self, resource: str, type_: str, partition: str = "", weight: int = 1) -> Pool | None:
        """The pool that has the fewest slots left for such work; None without limit."""
        pools = [pool for pool in self._limits.covering(resource, type_) if pool.limit.slots is not None]
        return min(pools, key=lambda pool: (self._spare(pool, partition, weight), pool.key), default=None)

    def is_full(self, resource: str, type_: str, partition: str = "", weight: int = 1) -> bool:
        """Whether slots are lacking, whatever rates say."""
        pool = self.fullest(resource, type_, partition, weight)
        return pool is not None and self._spare(pool, partition, weight) < 0

    def spare_slots(self, resource: str, type_: str, partition: str = "") -> dict[Place, int]:
        """The slots that are free where such work is counted; less than none where a limit was lowered."""
        return {
            place_of(pool, partition): pool.limit.slots - self.used(pool, partition)
            for pool in self._limits.covering(resource, type_)
            if pool.limit.slots is not None
        }

    def _spare(self, pool: Pool, partition: str, weight: int) -> int:
        """The slots that would be left if such work started."""
        return (pool.limit.slots or 0) - self.used(pool, partition) - needed(pool, weight)


@dataclass(frozen=True, slots=True)
class Interruptible:
    """A run whose type agreed to be interrupted."""

    lease_id: str
    job_id: str
    priority: int
    acquired_at: datetime
    held: Mapping[Place, int]
    """The slots that it would give back."""


def to_interrupt(
    lacking: Mapping[Place, int], priority: int | None, running: Iterable[Interruptible]
) -> list[Interruptible]:
    """The runs to interrupt so that this many slots become free; none if not all can.

    `priority` is that of the work that preempts; None for a direct request, which goes before every job.
    """
    missing = {place: count for place, count in lacking.items() if count > 0}
    chosen = []
    order = sorted(running, key=lambda run: (run.priority, -run.acquired_at.timestamp(), run.lease_id))
    for run in order:
        if not missing:
            break
        is_lower = priority is None or run.priority < priority
        if is_lower and any(place in missing for place in run.held):
            chosen.append(run)
            missing = {place: count - run.held.get(place, 0) for place, count in missing.items()}
            missing = {place: count for place, count in missing.items() if count > 0}
    return [] if missing else chosen
