"""Schedules and Endpoints as a person looks for one among many: by text, by state, in an order of choice.

What fails first, and the few in another state than active, are read along indexes. A text is looked for in one column
of all of them: an index of parts of three characters (FTS5, or GIN) took as long for 10,000, and longer for a text that
many of them have. Outcomes come from the newest end of each schedule's index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.schedule import Schedule
from holdbeat.store.reads.find_jobs import like
from holdbeat.store.reads.job_filter import label_parts
from holdbeat.store.reads.pagination import Conditions
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.transaction import Transaction

_PAUSED = "(paused_until IS NOT NULL AND paused_until > :now)"
_FAILING = "(failure_count > 0 OR trouble IS NOT NULL)"
STATES = ("active", "failing", "paused", "disabled")
STATE_CONDITIONS = {
    "disabled": "NOT enabled",
    "paused": f"enabled AND {_PAUSED}",
    "failing": f"enabled AND {_FAILING} AND NOT {_PAUSED}",
    "active": f"enabled AND NOT {_FAILING} AND NOT {_PAUSED}",
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


def add_text(conditions: Conditions, text: str, *, endpoint: bool | None) -> str:
    """Only schedules with this text in name, type, labels, id or, of endpoints, URL.

    Returns the hint that names the index to read. `endpoint` is the kind that the conditions ask for.
    """
    # The column `search_text` holds all of them in small letters, one on a line, and labels as name=value.
    conditions.add("search_text LIKE :like ESCAPE '!'", like=like(text.strip()))
    if endpoint is None:
        return ""
    return f"INDEXED BY {'endpoints' if endpoint else 'schedules'}_searched"


def add_label(conditions: Conditions, text: str, *, endpoint: bool | None) -> str:
    """Only schedules with this label, written as name=value. Returns what to read: the index of labels comes first.

    `endpoint` is the kind that the conditions ask for; of one kind, `schedule_id` is in the order of that index.
    """
    name, value = label_parts(text)
    conditions.add("schedules.id = schedule_id AND label_name = :label_name", label_name=name)
    conditions.add("label_value = :label_value", label_value=value)
    if endpoint is not None:
        conditions.add(f"label_of = '{'endpoint' if endpoint else 'schedule'}'")
    return "schedule_labels CROSS JOIN schedules"


def find_schedules(
    tx: Transaction, *, endpoint: bool, text: str | None, state: str | None, order: str, limit: int, offset: int
) -> Found:
    """One page, and how many there are."""
    kind = f"endpoint IS {'NOT ' if endpoint else ''}NULL"
    conditions = Conditions([kind])
    if text:
        ids, by_state = _found_by_text(tx, conditions, text, state, order, endpoint=endpoint)
        ids = ids[offset : offset + limit]
    else:
        by_state = _by_state(tx, kind)
        index = _add_state(tx, conditions, state) if state else ""
        ids = tx.column(
            f"SELECT id FROM schedules {index} WHERE {conditions.where} ORDER BY {ORDERS[order]} "
            "LIMIT :limit OFFSET :offset",
            limit=limit,
            offset=offset,
            **conditions.params,
        )
    # Whole rows are read of one page only: they are long to carry through a sort.
    schedules = {schedule.id: schedule for schedule in SCHEDULES.all(tx, "WHERE id IN :ids", ids=ids)}
    return Found([schedules[id_] for id_ in ids], by_state[state or ""], by_state)


def _found_by_text(
    tx: Transaction, base: Conditions, text: str, state: str | None, order: str, *, endpoint: bool
) -> tuple[list[str], dict[str, int]]:
    """The ids of all in this state that the text finds, and the counts of each state, in one pass."""
    index = add_text(base, text, endpoint=endpoint)
    rows = tx.rows(
        f"SELECT id, {_STATE} FROM schedules {index} WHERE {base.where} ORDER BY {ORDERS[order]}",
        now=tx.now,
        **base.params,
    )
    by_state = dict.fromkeys(STATES, 0)
    for _, its_state in rows:
        by_state[its_state] += 1
    return [id_ for id_, its_state in rows if state in (None, its_state)], {**by_state, "": len(rows)}


def _add_state(tx: Transaction, conditions: Conditions, state: str) -> str:
    """Only schedules in this state, in the words of its index; returns the hint that names that, if it has one."""
    is_enabled, is_disabled = ("enabled = 1", "enabled = 0") if tx.dialect == "sqlite" else ("enabled", "NOT enabled")
    conditions.add(STATE_CONDITIONS[state], **({} if state == "disabled" else {"now": tx.now}))
    if state == "active":
        return ""
    if state == "failing":
        conditions.add(f"{is_enabled} AND {_FAILING}")
        return "INDEXED BY schedules_in_need"
    conditions.add(f"({is_disabled} OR paused_until IS NOT NULL)")
    return "INDEXED BY schedules_held"


def _by_state(tx: Transaction, kind: str) -> dict[str, int]:
    """The counts of each state: of all along one index, of the others than active along theirs."""

    def count(state: str) -> int:
        conditions = Conditions([kind])
        index = _add_state(tx, conditions, state) if state else ""
        return tx.count(f"SELECT count(*) FROM schedules {index} WHERE {conditions.where}", **conditions.params)

    by_state = {state: count(state) for state in ("", *STATES) if state != "active"}
    by_state["active"] = by_state[""] - sum(by_state[state] for state in STATES if state != "active")
    return by_state


def past_runs(tx: Transaction, schedule_ids: Sequence[str], most: int = OUTCOMES) -> dict[str, list[PastRun]]:
    """The last jobs of each schedule, the oldest first."""
    runs: dict[str, list[PastRun]] = {schedule_id: [] for schedule_id in schedule_ids}
    if not runs:
        return runs
    rows = tx.rows(
        "SELECT s.id, j.id, j.status, r.started_at, r.finished_at, r.error FROM (SELECT given.id, coalesce((SELECT "
        "n.id FROM jobs n WHERE n.schedule_id = given.id ORDER BY n.id DESC LIMIT 1 OFFSET :others), '') AS first_id "
        "FROM rows(:schedules; id text) AS given) AS s "
        "JOIN jobs j ON j.schedule_id = s.id AND j.id >= s.first_id LEFT JOIN job_runs r ON r.job_id = j.id "
        "ORDER BY j.id",
        schedules=[(schedule_id,) for schedule_id in schedule_ids],
        others=most - 1,
    )
    for schedule_id, job_id, status, started_at, finished_at, error in rows:
        runs[schedule_id].append(PastRun(job_id, status, tx.time(started_at), tx.time(finished_at), error))
    return {schedule_id: past[-most:] for schedule_id, past in runs.items()}


def runs_of(tx: Transaction, job_ids: Sequence[str]) -> dict[str, PastRun]:
    """The outcome of each of these jobs."""
    rows = tx.rows(
        "SELECT j.id, j.status, r.started_at, r.finished_at, r.error FROM jobs j LEFT JOIN job_runs r "
        "ON r.job_id = j.id WHERE j.id IN :ids",
        ids=job_ids,
    )
    return {row[0]: PastRun(row[0], row[1], tx.time(row[2]), tx.time(row[3]), row[4]) for row in rows}
