"""ConcurrencyPolicy: how many leases a pool may hold.

Guards CON-002 and CAP-01: capacity is a pure function of the live leases, so there is no counter to leak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdbeat.domain.errors import SettingsError

UNLISTED_SLOTS = 1
"""What a resource or type that nobody listed may hold."""


class PolicyKind(StrEnum):
    RESOURCES = "resources"
    GLOBAL = "global"
    PER_TYPE = "per_type"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class ConcurrencyPolicy:
    """Maps work to pools, and pools to their number of slots."""

    kind: PolicyKind = PolicyKind.RESOURCES
    slots: Mapping[str, int] = field(default_factory=lambda: {"default": 1, "http": 16})
    total: int = 0

    @staticmethod
    def parse(text: str) -> ConcurrencyPolicy:
        """Reads `resources:a=1,b=2`, `per_type:story=1`, `global:4` or `unlimited`."""
        name, _, rest = text.strip().partition(":")
        try:
            kind = PolicyKind(name.strip())
        except ValueError:
            raise _refused(text) from None
        if kind is PolicyKind.UNLIMITED:
            if rest.strip():
                raise _refused(text)
            return ConcurrencyPolicy(kind, {})
        if kind is PolicyKind.GLOBAL:
            return ConcurrencyPolicy(kind, {}, total=_count(rest, text))
        slots: dict[str, int] = {}
        for part in filter(None, (piece.strip() for piece in rest.split(","))):
            key, equals, value = part.partition("=")
            if not key.strip() or not equals or key.strip() in slots:
                raise _refused(text)
            slots[key.strip()] = _count(value, text)
        return ConcurrencyPolicy(kind, slots)

    def __str__(self) -> str:
        if self.kind is PolicyKind.UNLIMITED:
            return "unlimited"
        if self.kind is PolicyKind.GLOBAL:
            return f"global:{self.total}"
        return f"{self.kind}:" + ",".join(f"{name}={count}" for name, count in self.slots.items())

    def pool(self, resource: str, type_: str) -> str | None:
        """The pool that work of this kind draws from; None where nothing limits it."""
        match self.kind:
            case PolicyKind.RESOURCES:
                return resource
            case PolicyKind.PER_TYPE:
                return type_
            case PolicyKind.GLOBAL:
                return "*"
            case _:
                return None

    def limit(self, pool: str | None) -> int | None:
        """How many leases the pool may hold; None without limit."""
        if pool is None or self.kind is PolicyKind.UNLIMITED:
            return None
        if self.kind is PolicyKind.GLOBAL:
            return self.total
        return self.slots.get(pool, UNLISTED_SLOTS)


class Capacity:
    """The free slots of each pool at one instant, from the leases counted in the claiming transaction.

    A queued job may take a slot only while free slots outnumber the direct requests that still wait for one.
    """

    def __init__(
        self,
        policy: ConcurrencyPolicy,
        leases: Iterable[tuple[str, str, int]],
        waiting_reservations: Iterable[tuple[str, str, int]] = (),
    ) -> None:
        self._policy = policy
        self._used: Counter[str | None] = Counter()
        self._waiting: Counter[str | None] = Counter()
        for resource, type_, count in leases:
            self._used[policy.pool(resource, type_)] += count
        for resource, type_, count in waiting_reservations:
            self._waiting[policy.pool(resource, type_)] += count

    def free(self, resource: str, type_: str) -> int | None:
        """Free slots of the pool; None without limit. Never negative, even if a limit was lowered."""
        pool = self._policy.pool(resource, type_)
        limit = self._policy.limit(pool)
        return None if limit is None else max(0, limit - self._used[pool])

    def free_for_jobs(self, resource: str, type_: str) -> int | None:
        """Free slots that no waiting direct request has a claim on."""
        free = self.free(resource, type_)
        if free is None:
            return None
        return max(0, free - self._waiting[self._policy.pool(resource, type_)])

    def take(self, resource: str, type_: str) -> None:
        self._used[self._policy.pool(resource, type_)] += 1

    def grant(self, resource: str, type_: str) -> None:
        """A waiting direct request got its slot."""
        pool = self._policy.pool(resource, type_)
        self._used[pool] += 1
        self._waiting[pool] -= 1


def _count(text: str, whole: str) -> int:
    try:
        count = int(text.strip())
    except ValueError:
        raise _refused(whole) from None
    if not 0 <= count <= 1_000_000:
        raise _refused(whole)
    return count


def _refused(text: str) -> SettingsError:
    return SettingsError(
        f"{text!r} is no concurrency policy. Write resources:name=slots,…, per_type:type=slots,…, "
        "global:slots or unlimited.",
        field="concurrency",
    )
