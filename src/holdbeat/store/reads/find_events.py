"""Events by a text, an actor, a name, a job, a schedule, a worker or a time, the newest first.

Guards the store against searches that read everything: a page reads no more than READ_AT_MOST rows of the log, and
its cursor goes on where it ended, so that a long search is made of short reads. Rare names and jobs have an index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdbeat.domain.events import Event
from holdbeat.store.rare_events import HOT_EVENTS
from holdbeat.store.reads.event_log import events_of_job, newest_events, newest_rare_events
from holdbeat.store.reads.names import ids_called
from holdbeat.store.transaction import Transaction

READ_AT_MOST = 20_000
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class EventSearch:
    """A filter of Events; None asks for nothing."""

    text: str | None = None
    names: Sequence[str] | None = None
    actor: str | None = None
    job_id: str | None = None
    schedule_id: str | None = None
    worker_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def fits(self, event: Event, named: Set[str | None]) -> bool:
        """`named` has the ids of the jobs and schedules whose titles or names the text finds."""
        return (
            (self.names is None or event.name in self.names)
            and (self.actor is None or self.actor.lower() in _actor(event))
            and (self.job_id is None or event.job_id == self.job_id)
            and (self.schedule_id is None or event.schedule_id == self.schedule_id)
            and (self.worker_id is None or event.worker_id == self.worker_id)
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at < self.until)
            and (self.text is None or self._has_text(event, named))
        )

    def _has_text(self, event: Event, named: Set[str | None]) -> bool:
        text = (self.text or "").lower()
        ids = (event.job_id, event.run_id, event.worker_id, event.group_id, event.schedule_id)
        if not named.isdisjoint({event.job_id, event.schedule_id} - {None}):
            return True
        words = [event.name, *(part for part in ids if part), *_texts(event.data)]
        return any(text in word.lower() for word in words)


@dataclass(slots=True)
class FoundEvents:
    """A page of what a search finds."""

    events: list[Event] = field(default_factory=list)
    following: int | None = None
    """The id before which the next page goes on; None at the end of the log."""
    read_count: int = 0
    """How many Events were read."""


def find_events(
    tx: Transaction,
    search: EventSearch,
    *,
    before: int | None = None,
    limit: int = 50,
    is_wanted: Callable[[Event], bool] = lambda event: True,
) -> FoundEvents:
    """A page of what the search finds and `is_wanted` lets through."""
    if search.job_id is not None:
        every = [logged.event for logged in reversed(events_of_job(tx, search.job_id, READ_AT_MOST))]
        events = [event for event in every if before is None or (event.id or 0) < before]
        fitting = [event for event in events if search.fits(event, set()) and is_wanted(event)]
        return FoundEvents(fitting[:limit], fitting[limit - 1].id if len(fitting) > limit else None, len(events))
    named = ids_called(tx, search.text) if search.text else set()
    rare = sorted(set(search.names)) if search.names and set(HOT_EVENTS).isdisjoint(search.names) else None
    found = FoundEvents()
    while found.read_count < READ_AT_MOST:
        page = newest_rare_events(tx, rare, before, AT_ONCE) if rare else newest_events(tx, before, AT_ONCE)
        if not page:
            found.following = None
            break
        for event in page:
            if search.since is not None and event.at < search.since:
                found.following = None
                return found
            found.read_count += 1
            found.following = before = event.id
            if search.fits(event, named) and is_wanted(event):
                found.events.append(event)
                if len(found.events) == limit:
                    return found
    return found


def _actor(event: Event) -> str:
    return " ".join(str(event.data[name]) for name in ("actor", "by") if event.data.get(name)).lower()


def _texts(value: Any) -> list[str]:
    match value:
        case dict():
            return [text for item in value.values() for text in _texts(item)]
        case list():
            return [text for item in value for text in _texts(item)]
        case str() | int() | float():
            return [str(value)]
    return []
