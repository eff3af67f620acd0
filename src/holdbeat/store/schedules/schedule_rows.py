"""Schedules as rows, and when the trigger must check them next.

Guards `wake_at`, the only column that the ScheduleTrigger reads: every plan computes it with `wake_of`, so it is always
the instant at which the trigger has to act next, and null if there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdbeat.domain.clock import from_iso
from holdbeat.domain.params import dumps
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.timetable import fire_at
from holdbeat.store.reads.columns import optional, row_writer
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction

STORED_FIELDS = (*SCHEDULES.fields, "replan_at", "wake_at")

TRIED_AGAIN = timedelta(seconds=60)
"""So long after the last look a timetable that could not be read is looked at again."""
NEAR = timedelta(seconds=60)
"""A plan that lies further ahead is found by the trigger's own look; nobody has to wake it for that."""

_PLAN_COLUMNS = (
    ("id", "text"),
    ("next_run_at", "time"),
    ("replan_at", "time"),
    ("wake_at", "time"),
    ("last_run_at", "time"),
    ("failure_count", "int"),
    ("hint_interval_s", "real"),
    ("hint_interval_expires_at", "time"),
    ("hint_interval_reason", "text"),
    ("hint_next_run_at", "time"),
    ("hint_next_run_expires_at", "time"),
    ("hint_next_run_reason", "text"),
    ("last_decision", "json"),
    ("trouble", "text"),
)
_SAVE_PLANS = (
    f"UPDATE schedules SET {', '.join(f'{name} = p.{name}' for name, _ in _PLAN_COLUMNS[1:])} "
    f"FROM rows(:plans; {', '.join(f'{name} {kind}' for name, kind in _PLAN_COLUMNS)}) AS p "
    "WHERE schedules.id = p.id"
)


_LABEL_COLUMNS = ("label_name", "label_value", "label_of", "schedule_id")


def _value(policy: StrEnum) -> str:
    return policy.value


def replan_of(schedule: Schedule) -> datetime | None:
    """When the plan of an adaptive schedule has to be made anew although nothing was due: a hint ends."""
    if not schedule.adaptive or schedule.next_run_at is None:
        return None
    at = (schedule.last_decision or {}).get("replan_at")
    return None if at is None else from_iso(at)


def wake_of(schedule: Schedule, now: datetime) -> datetime | None:
    """When the trigger must look at the schedule next."""
    if not schedule.enabled:
        return None
    if schedule.trouble is not None:
        return now + TRIED_AGAIN
    return min((at for at in (fire_at(schedule), replan_of(schedule)) if at is not None), default=None)


_stored = row_writer(
    STORED_FIELDS,
    ("replan_at", "wake_at"),
    {
        "params": optional(dumps),
        "retry_policy": optional(dumps),
        "labels": optional(dumps),
        "dst": _value,
        "catch_up": _value,
        "overlap": _value,
        "last_decision": optional(dumps),
        "endpoint": optional(lambda endpoint: dumps(asdict(endpoint))),
    },
)


def _row(schedule: Schedule, now: datetime) -> Row:
    """The values of STORED_FIELDS."""
    return _stored(schedule, replan_of(schedule), wake_of(schedule, now))


def insert_schedules(tx: Transaction, schedules: Sequence[Schedule]) -> None:
    tx.insert("schedules", STORED_FIELDS, [_row(schedule, tx.now) for schedule in schedules])
    tx.insert("schedule_labels", _LABEL_COLUMNS, [row for schedule in schedules for row in _label_rows(schedule)])
    tx.wake(Topic.SCHEDULES)


def save_schedule(tx: Transaction, schedule: Schedule, before: Schedule) -> None:
    """Writes all of a schedule that the caller has locked and read as `before`."""
    tx.update("schedules", STORED_FIELDS, _row(schedule, tx.now))
    if schedule.labels != before.labels:
        _forget_labels(tx, before)
        tx.insert("schedule_labels", _LABEL_COLUMNS, _label_rows(schedule))
    tx.wake(Topic.SCHEDULES)


def delete_row(tx: Transaction, schedule: Schedule) -> None:
    """Deletes a schedule that the caller has locked."""
    tx.execute("DELETE FROM schedules WHERE id = :id", id=schedule.id)
    _forget_labels(tx, schedule)
    tx.wake(Topic.SCHEDULES)


def _label_rows(schedule: Schedule) -> list[Row]:
    """The index of labels (`schedule_labels`): one row for each."""
    kind = "schedule" if schedule.endpoint is None else "endpoint"
    return [(name, value, kind, schedule.id) for name, value in (schedule.labels or {}).items()]


def _forget_labels(tx: Transaction, schedule: Schedule) -> None:
    if schedule.labels:
        columns = ", ".join(_LABEL_COLUMNS)
        tx.execute(
            f"DELETE FROM schedule_labels WHERE ({columns}) IN (SELECT {', '.join(f'o.{c}' for c in _LABEL_COLUMNS)} "
            f"FROM rows(:old; {', '.join(f'{c} text' for c in _LABEL_COLUMNS)}) AS o)",
            old=_label_rows(schedule),
        )


_plan = row_writer([name for name, _ in _PLAN_COLUMNS], ("replan_at", "wake_at"), {"last_decision": optional(dumps)})


def save_plans(tx: Transaction, schedules: Sequence[Schedule]) -> list[datetime]:
    """Writes what planning changes of schedules that the caller has locked; returns when to look at them next."""
    if not schedules:
        return []
    wakes = [wake_of(schedule, tx.now) for schedule in schedules]
    tx.execute(
        _SAVE_PLANS,
        plans=[_plan(schedule, replan_of(schedule), wake) for schedule, wake in zip(schedules, wakes, strict=True)],
    )
    return [wake for wake in wakes if wake is not None]


def wake_trigger(tx: Transaction, wakes: Sequence[datetime]) -> None:
    """Tells the triggers of all processes, if one of these moments may come before they look again."""
    if any(at <= tx.now + NEAR for at in wakes):
        tx.wake(Topic.SCHEDULES)


def locked_schedules(tx: Transaction, ids: Sequence[str], condition: str = "1 = 1", **params: Any) -> list[Schedule]:
    """Schedules by id, locked in the order in which everyone locks them."""
    return SCHEDULES.all(tx, f"WHERE id IN :ids AND {condition} ORDER BY id FOR UPDATE", ids=ids, **params)
