"""Throttles: what does not start because who was called asked for no other call before some time.

Guards LIM-06: a throttle holds for one limit and one partition. A limit that covers everything, or a resource that
stands for no real thing (`default`, `http`), holds back only jobs of the type that was throttled: what it covers
besides may call somebody else.
"""

from __future__ import annotations

from typing import NamedTuple

from holdbeat.domain.limit import Limit

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
