"""Reads the next times of the ScheduleTrigger, and repairs plans when a clock has gone back.

Guards TIME-04: looking ahead reads a bounded piece of one index, however many schedules there are, and claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdbeat.domain import events
from holdbeat.domain.governor import CRON, PlanInputs
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.schedule_steps import replanned
from holdbeat.domain.timetable import UNREADABLE, next_due, trouble_of
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.schedules.after_run import record_plan
from holdbeat.store.schedules.schedule_rows import save_plans
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

MOST_MOMENTS = 1000
JUST_NOW = timedelta(seconds=5)


@dataclass(slots=True)
class UpcomingMoments:
    """The moments at which something has to be done, in order."""

    moments: list[datetime] = field(default_factory=list)
    known_until: datetime | None = None
    """Beyond this there may be more."""


def read_upcoming(tx: Transaction, until: datetime, limit: int = MOST_MOMENTS) -> UpcomingMoments:
    """When the trigger must act between now and `until`; what is overdue comes first."""
    rows = tx.rows(
        "SELECT wake_at FROM schedules INDEXED BY schedules_wake WHERE wake_at IS NOT NULL AND wake_at <= :until "
        "ORDER BY wake_at LIMIT :limit",
        until=until,
        limit=limit,
    )
    moments = list(dict.fromkeys(tx.instant(row[0]) for row in rows))
    return UpcomingMoments(moments, moments[-1] if len(rows) == limit else until)


def database_time(tx: Transaction) -> datetime:
    """The database's own clock, where it has one."""
    if tx.dialect == "sqlite":
        return tx.now
    row = tx.one("SELECT clock_timestamp()")
    assert row is not None
    return tx.instant(row[0])


def record_clock_jump(tx: Transaction, clock: str, amount_s: float, *, host: str, worker_id: str | None) -> None:
    """Notes that a clock is not where it should be, and which process on which machine saw that (TIME-07)."""
    tx.record(events.CLOCK_JUMPED, worker_id=worker_id, host=host, clock=clock, amount_s=amount_s)


def realign(tx: Transaction, after_id: str = "", limit: int = 500, *, went_back: bool = True) -> str | None:
    """Brings plans that do not fit the present time or the present timetables back to what comes next.

    Such plans come from a clock that ran ahead and went back, or from zones whose rules were changed since. Goes
    through the schedules in batches: returns where to go on, None at the end. What was fired stays fired: its row
    refuses a second time when its slot comes round again.
    """
    schedules = _planned_after(tx, after_id, limit, went_back, " FOR UPDATE")
    changed = []
    for schedule in schedules:
        realigned = _realigned(schedule, tx.now, went_back)
        if realigned is not None:
            changed.append(realigned)
            record_plan(tx, realigned)
    save_plans(tx, changed)
    if changed:
        tx.wake(Topic.SCHEDULES)
    return schedules[-1].id if len(schedules) == limit else None


def drifted(tx: Transaction, after_id: str = "", limit: int = 500) -> tuple[bool, str | None]:
    """Whether `realign` would find something in this batch, and where the next one begins. Writes nothing."""
    schedules = _planned_after(tx, after_id, limit, False)
    has_drifted = any(_realigned(schedule, tx.now, False) is not None for schedule in schedules)
    return has_drifted, schedules[-1].id if len(schedules) == limit else None


def _planned_after(tx: Transaction, after_id: str, limit: int, went_back: bool, lock: str = "") -> list[Schedule]:
    # Without a jump only the rules of a zone can have moved a due time.
    zoned = "" if went_back else "AND cron IS NOT NULL AND timezone <> 'UTC' "
    planned = f"WHERE id > :after AND wake_at IS NOT NULL {zoned}ORDER BY id LIMIT :limit{lock}"
    return SCHEDULES.all(tx, planned, after=after_id, limit=limit)


def _realigned(schedule: Schedule, now: datetime, went_back: bool) -> Schedule | None:
    """The schedule with another plan, if the present one does not fit."""
    present = schedule.next_run_at
    if present is None or present <= now:
        return None
    if not schedule.adaptive:
        # After a jump from a little earlier: a slot that passed since the clock went back is still to be fired.
        try:
            following = next_due(schedule, now - JUST_NOW if went_back else now)
        except UNREADABLE as error:
            # Reported early, so that it can be repaired before it is due.
            return None if schedule.trouble is not None else replace(schedule, trouble=trouble_of(error))
        if following == present:
            return None
        schedule.next_run_at = following
        return schedule
    decision = schedule.last_decision
    last_due = PlanInputs.of(schedule).last_due
    if last_due is not None and last_due > now and decision is not None:
        schedule.last_decision = {**decision, "memory": {**decision["memory"], "last_due": None}}
    elif not went_back and (decision is None or decision["winner"] != CRON or decision["clamps"]):
        # Without a jump only the zone of a cron expression can have moved a plan.
        return None
    schedule = replanned(schedule, now).schedule
    if schedule.next_run_at is None or schedule.next_run_at == present:
        return None
    return schedule if schedule.next_run_at < present or not went_back else None


def is_behind(tx: Transaction, tolerance_s: float) -> bool:
    """Whether the record of due times is ahead of the clock: it has gone back since."""
    last = tx.time(tx.column("SELECT max(recorded_at) FROM occurrences")[0])
    return last is not None and last > tx.now + timedelta(seconds=tolerance_s)
