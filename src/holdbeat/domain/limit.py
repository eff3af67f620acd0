"""Limits: how much of which work may run at once, and how often it may start.

Guards LIM-01: every limit that covers a piece of work must have room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid
from holdbeat.domain.rate import Rate
from holdbeat.schemas.field_bounds import LONGEST_NAME, SLOTS_MAX, YEAR_S

EACH = "*"
"""As a limit's resource or type: every one that no other limit lists, each with slots of its own."""
FIELDS = ("resource", "type", "slots", "rate", "per_partition", "fair", "weights")
WEIGHT_MAX = 1000
WEIGHTS_MAX = 10_000


class Origin(StrEnum):
    SETTINGS = "settings"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Limit:
    """Covers the work of its resource and of its type; with neither, everything."""

    name: str
    resource: str | None = None
    type: str | None = None
    slots: int | None = None
    rate: Rate | None = None
    per_partition: bool = False
    fair: bool = False
    weights: Mapping[str, int] | None = field(default=None, hash=False)
    """How many starts a partition has in its turn, if not one."""
    origin: Origin = field(default=Origin.SETTINGS, compare=False)
    version: int = field(default=1, compare=False)
    """Grows with each change of the limit of this name, by programs and operators."""

    def as_dict(self) -> dict[str, Any]:
        """The settings of the limit, without its name, origin and version."""
        return {
            "resource": self.resource,
            "type": self.type,
            "slots": self.slots,
            "rate": None if self.rate is None else self.rate.as_dict(),
            "per_partition": self.per_partition,
            "fair": self.fair,
            "weights": None if self.weights is None else dict(self.weights),
        }

    def words(self) -> str:
        """The work that it covers, in words."""
        if self.resource == EACH:
            return "each resource without a limit of its own"
        if self.type == EACH:
            return "each job type without a limit of its own"
        if self.resource is not None and self.type is not None:
            return f"the job type {self.type} on the resource {self.resource}"
        if self.resource is not None:
            return f"the resource {self.resource}"
        return "all work together" if self.type is None else f"the job type {self.type}"

    @property
    def lists_resource(self) -> bool:
        """Whether it says what its resource may hold, so that the limit for the unlisted does not apply."""
        return self.type is None and (self.slots is not None or self.rate is None)

    @property
    def lists_type(self) -> bool:
        return self.resource is None and (self.slots is not None or self.rate is None)


def limit_of(name: str, values: Mapping[str, Any], origin: Origin = Origin.SETTINGS) -> Limit:
    """A Limit from plain values, as settings and requests bring them; anything impossible is refused by its name."""
    check_line(name, "name")
    if "/" in name:
        raise Invalid("The name of a limit must not contain a slash.", field="name")
    unknown = sorted(values.keys() - set(FIELDS))
    if unknown:
        raise _refused(name, f"there is no field {unknown[0]}. Fields are: {', '.join(FIELDS)}", unknown[0])
    for key in ("resource", "type"):
        value = values.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip() or len(value) > LONGEST_NAME):
            raise _refused(name, f"{key} must be a name", key)
    covered = [values[key] for key in ("resource", "type") if values.get(key) is not None]
    if EACH in covered and len(covered) > 1:
        raise _refused(name, f"resource or type may be {EACH}, but then the other must be left out", "type")
    slots = values.get("slots")
    if slots is not None:
        _check_whole(name, "slots", slots, 0, SLOTS_MAX)
    for key in ("per_partition", "fair"):
        if not isinstance(values.get(key, False), bool | None):
            raise _refused(name, f"{key} must be true or false", key)
    if values.get("weights") and not values.get("fair"):
        raise _refused(name, "weights are starts in a turn, and partitions take turns only with fair", "weights")
    return Limit(
        name,
        values.get("resource"),
        values.get("type"),
        slots,
        _rate_of(name, values.get("rate")),
        bool(values.get("per_partition")),
        bool(values.get("fair")),
        _weights_of(name, values.get("weights")),
        origin,
    )


def _weights_of(name: str, value: Any) -> dict[str, int] | None:
    if not value:
        return None
    if not isinstance(value, Mapping) or len(value) > WEIGHTS_MAX or not all(isinstance(key, str) for key in value):
        raise _refused(name, f"weights is an object of at most {WEIGHTS_MAX} partitions and their weights", "weights")
    for partition, weight in value.items():
        _check_whole(name, f"weights.{partition}", weight, 1, WEIGHT_MAX)
    return dict(value)


def _rate_of(name: str, value: Any) -> Rate | None:
    if value is None or isinstance(value, Rate):
        return value
    if not isinstance(value, Mapping) or not {"count", "per_s"} <= value.keys() <= {"count", "per_s", "burst"}:
        raise _refused(name, "rate is {count, per_s} or {count, per_s, burst}", "rate")
    count, per_s, burst = value["count"], value["per_s"], value.get("burst") or 0
    _check_whole(name, "rate.count", count, 1, SLOTS_MAX)
    _check_whole(name, "rate.burst", burst, 0, SLOTS_MAX)
    if isinstance(per_s, bool) or not isinstance(per_s, int | float) or not 0.001 <= per_s <= YEAR_S:
        raise _refused(name, "rate.per_s must be a number of seconds between 0.001 and 31536000", "rate.per_s")
    return Rate(count, float(per_s), burst)


def _check_whole(name: str, key: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _refused(name, f"{key} must be a whole number between {low} and {high}", key)


def _refused(name: str, why: str, key: str) -> Invalid:
    return Invalid(f"The limit {name} is not possible: {why}.", code="bad_limit", field=key)


class Pool(NamedTuple):
    """The slots that a limit gives to one piece of work: for a limit of each resource, the part of that resource."""

    key: str
    limit: Limit


class Limits:
    """All limits in force, by what they cover."""

    __slots__ = ("_by_name", "_covering", "_listed_resources", "_listed_types", "version")

    def __init__(self, limits: Iterable[Limit] = (), version: str | None = None) -> None:
        self._by_name = {limit.name: limit for limit in limits}
        self._covering: dict[tuple[str, str], tuple[Pool, ...]] = {}
        self._listed_resources = {limit.resource for limit in self._by_name.values() if limit.lists_resource}
        self._listed_types = {limit.type for limit in self._by_name.values() if limit.lists_type}
        self.version = version
        """What the store calls this set; None for one that is not stored."""

    def __iter__(self) -> Iterator[Limit]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def with_more(self, limits: Iterable[Limit]) -> Limits:
        """These and those; of two with one name the latter."""
        return Limits([*self, *limits])

    @property
    def resources(self) -> set[str]:
        return {limit.resource for limit in self if limit.resource not in (None, EACH)}

    def covering(self, resource: str, type_: str) -> tuple[Pool, ...]:
        """The pools that work of this kind uses; each must have room."""
        try:
            return self._covering[resource, type_]
        except KeyError:
            pools = tuple(
                Pool(_key(limit, resource, type_), limit)
                for limit in self
                if (limit.slots is not None or limit.rate is not None or limit.fair)
                and self._covers(limit, resource, type_)
            )
            self._covering[resource, type_] = pools
            return pools

    def _covers(self, limit: Limit, resource: str, type_: str) -> bool:
        if limit.resource == EACH:
            return resource not in self._listed_resources
        if limit.type == EACH:
            return type_ not in self._listed_types
        return limit.resource in (None, resource) and limit.type in (None, type_)

    def is_partitioned(self, resource: str, type_: str) -> bool:
        """Whether a limit counts such work by partition, or lets partitions take turns."""
        return any(pool.limit.per_partition or pool.limit.fair for pool in self.covering(resource, type_))

    def heaviest(self, resource: str, type_: str) -> int:
        """The largest weight with which such work can ever have room."""
        slots = [
            pool.limit.slots
            for pool in self.covering(resource, type_)
            if pool.limit.slots is not None and pool.limit.resource is not None
        ]
        return min(slots, default=SLOTS_MAX)

    def own_slots_of(self, resource: str) -> int | None:
        """The slots of the limit that is by this resource alone, or by each resource; None if there is none."""
        slots = [
            pool.limit.slots
            for pool in self.covering(resource, "")
            if pool.limit.slots is not None
            and pool.limit.resource is not None
            and pool.limit.type is None
            and not pool.limit.per_partition
        ]
        return min(slots, default=None)

    def slots_of(self, resource: str, type_: str | None = None) -> int | None:
        """How many such pieces of work may run at once; None without limit. Without a type, by the resource alone."""
        pools = self.covering(resource, type_ or "")
        slots = [
            pool.limit.slots
            for pool in pools
            if pool.limit.slots is not None
            and not pool.limit.per_partition
            and (type_ is not None or pool.limit.type is None)
        ]
        return min(slots, default=None)


def _key(limit: Limit, resource: str, type_: str) -> str:
    if limit.resource == EACH:
        return f"{limit.name}/{resource}"
    return f"{limit.name}/{type_}" if limit.type == EACH else limit.name
