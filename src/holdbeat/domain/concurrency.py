"""ConcurrencyPolicy: the setting `concurrency`, a short way to declare limits (DEC-011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdbeat.domain.endpoint import HTTP_TYPE
from holdbeat.domain.errors import SettingsError
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.limit import EACH, Limit, Limits
from holdbeat.schemas.field_bounds import SLOTS_MAX

UNLISTED_SLOTS = 1
"""What a resource or type that nobody listed may hold."""
HTTP_SLOTS = 256
"""How many calls run at once. One that waits for its answer costs a socket and little memory."""
HOST_SLOTS = 128
"""How many of them go to one host, so that a host that hangs cannot take all slots."""
EACH_RESOURCE, EACH_TYPE = "each:resource", "each:type"
"""The names of the limits for each resource and each type that has none of its own."""
EACH_HOST = "each:host"
"""The name of the limit for calls to one host, which is the partition of an http job."""


class PolicyKind(StrEnum):
    RESOURCES = "resources"
    GLOBAL = "global"
    PER_TYPE = "per_type"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class ConcurrencyPolicy:
    """The setting `concurrency`, and the limits that it declares."""

    kind: PolicyKind = PolicyKind.RESOURCES
    slots: Mapping[str, int] = field(default_factory=lambda: {"default": 1, HTTP_RESOURCE: HTTP_SLOTS})
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

    def limits(self) -> Limits:
        """The limits that this policy declares.

        With `per_type` a named resource still runs one piece of work at a time: only `default`, which names no real
        thing, is limited by the types alone.
        """
        match self.kind:
            case PolicyKind.RESOURCES:
                named = [Limit(name, resource=name, slots=count) for name, count in self.slots.items()]
                each_host = _each_host(self.slots.get(HTTP_RESOURCE, UNLISTED_SLOTS))
                return Limits([*named, *each_host, Limit(EACH_RESOURCE, resource=EACH, slots=UNLISTED_SLOTS)])
            case PolicyKind.GLOBAL:
                return Limits([Limit("global", slots=self.total)])
            case PolicyKind.PER_TYPE:
                return Limits(
                    [
                        *(Limit(f"type:{name}", type=name, slots=count) for name, count in self.slots.items()),
                        Limit(EACH_TYPE, type=EACH, slots=UNLISTED_SLOTS),
                        Limit("default", resource="default"),
                        Limit(HTTP_RESOURCE, resource=HTTP_RESOURCE, slots=HTTP_SLOTS),
                        *_each_host(HTTP_SLOTS),
                        Limit(EACH_RESOURCE, resource=EACH, slots=UNLISTED_SLOTS),
                    ]
                )
            case _:
                return Limits()


def _each_host(http_slots: int) -> list[Limit]:
    """The limit for each host, where one host could take more of these slots than it permits."""
    if http_slots <= HOST_SLOTS:
        return []
    return [Limit(EACH_HOST, resource=HTTP_RESOURCE, type=HTTP_TYPE, slots=HOST_SLOTS, per_partition=True)]


def _count(text: str, whole: str) -> int:
    try:
        count = int(text.strip())
    except ValueError:
        raise _refused(whole) from None
    if not 0 <= count <= SLOTS_MAX:
        raise _refused(whole)
    return count


def _refused(text: str) -> SettingsError:
    return SettingsError(
        f"{text!r} is no concurrency policy. Write resources:name=slots,…, per_type:type=slots,…, "
        "global:slots or unlimited.",
        field="concurrency",
    )
