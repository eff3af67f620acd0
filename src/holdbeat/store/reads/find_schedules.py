"""Schedules and Endpoints as a person looks for one among many: by text, by state, in an order of choice.

A page is found in one pass over their table, which is small beside the jobs; outcomes come from the newest end of each
schedule's index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.schedule import Schedule
from holdbeat.store.reads.find_jobs import label_column, like, like_label
from holdbeat.store.reads.job_filter import Conditions, label_parts
from holdbeat.store.reads.schedules import SCHEDULE, schedule_of
from holdbeat.store.transaction import Transaction

_PAUSED = "(paused_until IS NOT NULL AND paused_until > :now)"
STATES = ("active", "failing", "paused", "disabled")
STATE_CONDITIONS = {
    "disabled": "NOT enabled",
    "paused": f"enabled AND {_PAUSED}",
    "failing": f"enabled AND (failure_count > 0 OR trouble IS NOT NULL) AND NOT {_PAUSED}",
    "active": f"enabled AND failure_count = 0 AND trouble IS NULL AND NOT {_PAUSED}",
}
_STATE = f"CASE {' '.join(f'WHEN {condition} THEN {state!r}' for state, condition in STATE_CONDITIONS.items())} END"
ORDERS = {
    "failing": "failure_count DESC, name",
    "name": "name",
    "next": "CASE WHEN next_run_at IS NULL THEN 1 ELSE 0 END, next_run_at, name",
    "last": "CASE WHEN last_run_at IS NULL THEN 1 ELSE 0 END, last_run_at DESC, name",
    "newest": "id DESC",
}
OUTCOMES = 10


@dataclass(frozen=True, slots=True)
class Found:
    schedules: list[Schedule]
    total: int
    """How many there are in this state that the text finds."""
    by_state: dict[str, int]
    """How many the text finds in each state, and in all under the empty name."""


@dataclass(frozen=True, slots=True)
class PastRun:
    job_id: str
    status: str
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None


def add_text(tx: Transaction, conditions: Conditions, text: str) -> None:
    """Only schedules with this text in name, type, labels, id or, of endpoints, URL."""
    url = "json_extract(endpoint, '$.url')" if tx.dialect == "sqlite" else "(endpoint ->> 'url')"
    columns = ("name", "coalesce(type, '')", "id", f"coalesce({url}, '')")
    # One text with all of them is compared once; a line break is in none of them.
    wholes = " || '\n' || ".join(columns)
    labels = f"coalesce({label_column(tx, 'labels')}, '')"
    conditions.add(
        f"(lower({wholes}) LIKE :like ESCAPE '!' OR {labels} LIKE :label ESCAPE '!')",
        like=like(text),
        label=like_label(text),
    )


def add_label(tx: Transaction, conditions: Conditions, text: str) -> None:
    """Only schedules with this label, written as name=value."""
    key, value = label_parts(text)
    names = {"label_key": key, "label_value": value}
    if tx.dialect == "sqlite":
        # The operator ->> would read some names as paths into the object.
        conditions.add(
            "EXISTS (SELECT 1 FROM json_each(labels) AS l WHERE l.key = :label_key AND l.value = :label_value)", **names
        )
    else:
        conditions.add("labels ->> :label_key::text = :label_value", **names)


def find_schedules(
    tx: Transaction, *, endpoint: bool, text: str | None, state: str | None, order: str, limit: int, offset: int
) -> Found:
    """One page, and how many there are."""
    base = Conditions()
    base.add(f"endpoint IS {'NOT ' if endpoint else ''}NULL")
    if text:
        ids, by_state = _found_by_text(tx, base, text, state, order)
        ids = ids[offset : offset + limit]
    else:
        key = f"{'endpoints' if endpoint else 'schedules'} by state"
        by_state = tx.terms.counts.get(key, lambda: _by_state(tx, base))
        if state is not None:
            base.add(STATE_CONDITIONS[state], **({} if state == "disabled" else {"now": tx.now}))
        rows = tx.rows(
            f"SELECT id FROM schedules WHERE {base.where} ORDER BY {ORDERS[order]} LIMIT :limit OFFSET :offset",
            limit=limit,
            offset=offset,
            **base.params,
        )
        ids = [row[0] for row in rows]
    # Whole rows are read of one page only: they are long to carry through a sort.
    schedules = {
        schedule.id: schedule
        for schedule in (
            schedule_of(tx, row) for row in tx.rows(f"SELECT {SCHEDULE} FROM schedules WHERE id IN :ids", ids=ids)
        )
    }
    return Found([schedules[id_] for id_ in ids], by_state[state or ""], by_state)


def _found_by_text(
    tx: Transaction, base: Conditions, text: str, state: str | None, order: str
) -> tuple[list[str], dict[str, int]]:
    """The ids of all in this state that the text finds, and the counts of each state, in one pass."""
    add_text(tx, base, text)
    rows = tx.rows(
        f"SELECT id, {_STATE} FROM schedules WHERE {base.where} ORDER BY {ORDERS[order]}", now=tx.now, **base.params
    )
    by_state = dict.fromkeys(STATES, 0)
    for _, its_state in rows:
        by_state[its_state] += 1
    return [id_ for id_, its_state in rows if state in (None, its_state)], {**by_state, "": len(rows)}


def _by_state(tx: Transaction, base: Conditions) -> tuple[dict[str, int], int]:
    counted = tx.rows(
        f"SELECT state, count(*) FROM (SELECT {_STATE} AS state FROM schedules WHERE {base.where}) AS s GROUP BY state",
        now=tx.now,
        **base.params,
    )
    by_state = dict.fromkeys(STATES, 0) | {row[0]: int(row[1]) for row in counted}
    by_state[""] = sum(by_state.values())
    return by_state, by_state[""]


def past_runs(tx: Transaction, schedule_ids: Sequence[str], most: int = OUTCOMES) -> dict[str, list[PastRun]]:
    """The last jobs of each schedule, the oldest first."""
    runs = {}
    for schedule_id in schedule_ids:
        rows = tx.rows(
            "SELECT j.id, j.status, r.started_at, r.finished_at, r.error FROM jobs j "
            "LEFT JOIN job_runs r ON r.job_id = j.id WHERE j.schedule_id = :id ORDER BY j.id DESC LIMIT :most",
            id=schedule_id,
            most=most,
        )
        runs[schedule_id] = [
            PastRun(row[0], row[1], tx.time(row[2]), tx.time(row[3]), row[4]) for row in reversed(rows)
        ]
    return runs
