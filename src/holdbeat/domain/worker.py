"""The worker: one process that takes part in a store, as it introduces itself to the others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdbeat.domain.lease import HTTP_RESOURCE


class WorkerKind(StrEnum):
    SERVE = "serve"
    WORKER = "worker"
    EMBED = "embed"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of the machine by a process at its last heartbeat; None for figures that are not known."""

    memory_bytes: int | None = None
    cpu_share: float | None = None
    """Of one processor, since the heartbeat before; 2.0 is two of them."""


UNKNOWN_USAGE = Usage()


@dataclass(slots=True)
class Worker:
    """A process that takes on work. The times are the store's: it fills them in."""

    id: str
    kind: WorkerKind
    host: str
    pid: int
    slots: int = 1
    http_slots: int = 0
    types: tuple[str, ...] = ()
    resources: tuple[str, ...] | None = None
    """Only these resources; None for all."""
    version: str = ""
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    expires_at: datetime | None = None
    stopping_at: datetime | None = None
    """Since when it claims nothing more."""
    stopped_at: datetime | None = None
    memory_bytes: int | None = None
    cpu_share: float | None = None
    machine: str | None = None
    """What its process shares with others that can tell whether it lives; None if nobody can."""
    process_started: int | None = None

    def can_serve(self, resource: str, type_: str) -> bool:
        """Whether such work could ever run there."""
        places = self.http_slots if resource == HTTP_RESOURCE else self.slots
        return places > 0 and type_ in self.types and (self.resources is None or resource in self.resources)
