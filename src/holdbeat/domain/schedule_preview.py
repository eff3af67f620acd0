"""The next fires of a saved Schedule, from its plan on.

Guards that a preview never contradicts `next_run_at`: it begins with that time, pending ones included, and leaves out
what a pause keeps from firing. The plan of an adaptive schedule ends with its next run; later ones are projected as if
each run started when its jitter lets it and succeeded at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from holdbeat.domain.bounds import check_whole_number
from holdbeat.domain.cron import Cron, Fire, zone_of
from holdbeat.domain.schedule import INDEFINITE, Schedule
from holdbeat.domain.schedule_steps import ChainEnd, after_run, fired, replanned
from holdbeat.domain.timetable import MILLISECOND, fire_at, next_run, preview
from holdbeat.schemas.field_bounds import MOST_PREVIEWED


def preview_of_saved(schedule: Schedule, now: datetime, n: int, *, in_flight: bool = False) -> list[Fire]:
    """The next `n` due times that fire. One that is disabled shows its timetable, as it would be if enabled now."""
    check_whole_number(n, "n", 1, MOST_PREVIEWED)
    if not schedule.enabled:
        return preview(schedule, now, n)
    if schedule.paused_until is not None and schedule.paused_until >= INDEFINITE:
        return []
    if schedule.adaptive:
        return list(islice(_projected(schedule, now, in_flight), n))
    first = next_run(schedule)
    return [] if first is None else preview(schedule, first - MILLISECOND, n)


def _projected(schedule: Schedule, now: datetime, in_flight: bool) -> Iterator[Fire]:
    if in_flight:
        # As if it ended now; when it really began does not matter as much.
        schedule = after_run(schedule, ChainEnd.COMPLETED, now, None, now).schedule
    due_at = schedule.next_run_at
    while due_at is not None:
        ends_at = (schedule.last_decision or {}).get("replan_at")
        if ends_at is not None and (expired := datetime.fromisoformat(ends_at)) < due_at:
            # A hint that the plan rests on ends before: then it is planned anew.
            schedule = replanned(schedule, expired).schedule
            if schedule.next_run_at != due_at:
                due_at = schedule.next_run_at
                continue
        yield _fire(schedule, due_at)
        starts_at = fire_at(schedule) or due_at
        schedule = after_run(
            fired(schedule, due_at, starts_at), ChainEnd.COMPLETED, starts_at, due_at, starts_at
        ).schedule
        due_at = schedule.next_run_at


def _fire(schedule: Schedule, at: datetime) -> Fire:
    zone = zone_of(schedule.timezone)
    if schedule.cron is not None:
        slot = next(Cron.parse(schedule.cron).fires(at - MILLISECOND, zone, schedule.dst), None)
        if slot is not None and slot.at == at:
            return slot
    return Fire(at=at, local=at.astimezone(zone), note=None)
