"""Items for the attention of a person: one for each trouble, with since when and what to do about it (ALR-01)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from holdbeat.domain import events

KEPT_DAYS: Final = 7.0
"""Operational Events that nobody has seen are shown for so long."""


@dataclass(frozen=True, slots=True)
class AttentionItem:
    kind: str
    """`no_worker`, `failed`, `failing`, `delivery`, `open_reader`, `paused`, `starved`, or the name of an operational
    Event."""
    text: str
    advice: str
    since: datetime | None = None
    last_at: datetime | None = None
    count: int = 1
    detail: str | None = None
    job_id: str | None = None
    schedule_id: str | None = None
    is_endpoint: bool = False
    type: str | None = None
    resource: str | None = None
    event_id: int | None = None
    """The newest Event of the item. Items with one go when they are marked as seen; the others when they are mended."""

    @property
    def can_be_seen(self) -> bool:
        return self.event_id is not None


class OpenReader(NamedTuple):
    """A reader keeps a transaction of the store open: what that costs, and what to do."""

    detail: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Advice:
    one: str
    many: str
    """With {count}."""
    advice: str

    def text(self, count: int) -> str:
        return self.one if count == 1 else self.many.format(count=f"{count:,}")


ADVICE: Final[Mapping[str, Advice]] = {
    events.ZOMBIE_FOUND: Advice(
        "A run lost its worker and was recovered",
        "{count} runs lost their workers and were recovered",
        "Look for a crash, an out-of-memory kill or a lost connection on the worker's host; run the type with "
        'isolation="process" if its own code crashes.',
    ),
    events.LEASE_EXPIRED: Advice(
        "A lease ran out",
        "{count} leases ran out",
        "The worker was silent for longer than lease_s and grace_s: check its host and network, or raise both.",
    ),
    events.STALE_RESULT: Advice(
        "A late result was refused",
        "{count} late results were refused",
        "The work may have happened twice. Check its effects, use ctx.fence in the handler, and see docs/operations.md "
        "on choosing the lease.",
    ),
    events.CLOCK_JUMPED: Advice(
        "A clock jumped", "Clocks jumped {count} times", "Check NTP on the host that the detail names."
    ),
    events.SCHEDULE_MISSED: Advice(
        "A schedule missed due times",
        "Schedules missed due times {count} times",
        "Nobody was there to fire them: keep a `holdbeat serve` running, and look at catch_up and misfire_grace_s.",
    ),
    events.DUPLICATE_REFUSED: Advice(
        "A due time came up a second time and was not fired again",
        "Due times came up a second time {count} times and were not fired again",
        "Nothing ran twice. A clock went back or a store was restored: check the clocks of the hosts that serve.",
    ),
    events.QUEUE_STARVED: Advice(
        "Direct requests left the queue no slot",
        "Direct requests left the queue no slot {count} times",
        "Set direct_burst to give waiting jobs a turn, or add slots.",
    ),
    events.WEBHOOK_DISABLED: Advice(
        "A webhook subscription was disabled",
        "{count} webhook subscriptions were disabled",
        "Its receiver said that it is gone (410). Correct the URL and enable it, or delete it.",
    ),
    events.LIMIT_CHANGED: Advice(
        "A limit changed", "Limits changed {count} times", "Check that the change was meant: holdbeat limits."
    ),
}


def advice_for(name: str) -> Advice:
    """The words for an operational Event; one that has none of its own is shown by its name."""
    plain = Advice(f"{name} happened", f"{name} happened {{count}} times", f"See holdbeat events --name {name}.")
    return ADVICE.get(name, plain)


def detail_of(data: Mapping[str, Any]) -> str | None:
    """The newest Event's data in a line."""
    hidden = {"origin", "actor"} if "by" in data else {"origin"}
    parts = [
        f"{name} {value}"
        for name, value in sorted(data.items(), key=lambda item: (item[0] in ("by", "actor"), item[0]))
        if isinstance(value, str | int | float) and name not in hidden
    ]
    return ", ".join(parts)[:300] or None
