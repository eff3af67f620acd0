"""Retention: takes away what ended long ago, a few rows at a time (QUE-07).

Guards that nothing goes in part: jobs that hang together by retries (automatic or manual) or by a group go together,
with all that was written about them, after the last of them ended; and not while one of them is unfinished, undecided,
executed, or has a message on its way.

The walk goes from the oldest end to the newest and remembers its place in the store, so that an old job that cannot go
yet is looked at once in each pass, not once in each batch; and a new pass waits until time has moved on a little.

Files cannot be deleted in a transaction: which ones are to go is noted in it, so that a crash in between loses none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.clock import from_iso, iso
from holdbeat.store import meta
from holdbeat.store.ended_runs import HAD_RUN, RUN_END, ended_types
from holdbeat.store.queue.labels import forget_labels
from holdbeat.store.rare_events import count_pruned
from holdbeat.store.recovery.job_families import Family, families
from holdbeat.store.transaction import Transaction

_OF_JOBS = (
    ("deliveries", "job_id"), ("steps", "root_id"), ("signals", "root_id"), ("questions", "root_id"),
    ("dependencies", "job_id"), ("jobs", "id"),
)  # fmt: skip
"""Tables with rows of jobs, and the column that has the id of the job."""
_NEVER_RAN = (
    "SELECT j.finished_at, j.id FROM jobs j INDEXED BY jobs_never_ran WHERE j.started_at IS NULL "
    "AND j.finished_at IS NOT NULL AND j.finished_at < :before {beyond}ORDER BY j.finished_at, j.id LIMIT :limit"
)
_RAN = (
    f"SELECT {RUN_END}, j.id FROM jobs j INDEXED BY jobs_ran WHERE j.type = :type AND {HAD_RUN} "
    f"AND {RUN_END} < :before {{beyond}}ORDER BY {RUN_END}, j.id LIMIT :limit"
)
ROWS_READ = 4
"""So many times the size of a batch may be read in order to find the oldest jobs of all types."""
_PLACE = "prune.place"
_PASSED = "prune.passed"
_FILES = "prune.files."
WINDOWS = 10
"""How many windows without anything to take a batch walks past before it lets others write."""
PASS_EVERY_S = 600.0
"""How far time moves on before a new pass looks again at what had to stay."""


@dataclass(slots=True)
class Pruned:
    """The rows and files that one batch removed."""

    counts: dict[str, int] = field(default_factory=dict)
    """Rows by table; of what belongs to a job only the jobs are counted."""
    paths: list[str] = field(default_factory=list)
    """Files that nobody knows any more, to be deleted by the caller once this is on disk."""
    note: str | None = None
    """Under which these files are noted, until the caller says that they are deleted (`forget_files`)."""

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    def add(self, table: str, count: int) -> None:
        if count:
            self.counts[table] = self.counts.get(table, 0) + count

    def delete(self, tx: Transaction, table: str, sql: str, **params: Any) -> None:
        """Deletes rows of a table, and counts those that the statement returns."""
        self.add(table, len(tx.rows(f"DELETE FROM {table} WHERE {sql}", **params)))


def prune(tx: Transaction, before: datetime, limit: int = 200) -> Pruned:
    """One batch of everything that ended before `before`. Without rows, nothing is left to take for now."""
    pruned = Pruned()
    prune_chains(tx, before, limit, pruned)
    prune_reservations(tx, before, limit, pruned)
    prune_occurrences(tx, before, limit, pruned)
    prune_events(tx, before, limit, pruned)
    prune_workers(tx, before, limit, pruned)
    prune_rates(tx, before, limit, pruned)
    if pruned.paths:
        pruned.note = f"{_FILES}{tx.terms.ids.new(tx.now)}"
        meta.put(tx, pruned.note, json.dumps(pruned.paths))
    if pruned.counts:
        tx.record(events.STORE_PRUNED, counts=pruned.counts)
    return pruned


def noted_files(tx: Transaction) -> list[tuple[str, list[str]]]:
    """Files that were to be deleted when a process died; each list with its note."""
    return [(note, json.loads(paths)) for note, paths in meta.get_prefix(tx, _FILES).items()]


@dataclass(frozen=True, slots=True)
class FilesOnRecord:
    """The files of these runs and direct requests; those that the store does not know are left out."""

    running: frozenset[str]
    ended: dict[str, set[str]]
    """The names of the files that the artifacts of each run have."""


def files_on_record(tx: Transaction, run_ids: Sequence[str]) -> FilesOnRecord:
    """Finds the runs that are executed now, of these, and the files of the others that belong to artifacts.

    Files go by their names: machines may see their folder in different places.
    """
    known, leased, artifacts = (
        tx.rows(sql, ids=list(run_ids))
        for sql in (
            "SELECT id FROM job_runs WHERE id IN :ids UNION SELECT id FROM direct_reservations WHERE id IN :ids",
            "SELECT id FROM leases WHERE id IN :ids",
            "SELECT run_id, path FROM artifacts WHERE run_id IN :ids",
        )
    )
    running = frozenset(row[0] for row in leased)
    ended: dict[str, set[str]] = {row[0]: set() for row in (*known, *artifacts) if row[0] not in running}
    for run_id, path in artifacts:
        if path is not None and run_id in ended:
            ended[run_id].add(PurePath(path).name)
    return FilesOnRecord(running, ended)


def forget_files(tx: Transaction, note: str) -> None:
    """The files under this note are deleted."""
    meta.delete(tx, [note])


def prune_chains(tx: Transaction, before: datetime, limit: int, pruned: Pruned) -> None:
    """Takes away chains and groups that ended before `before`, beginning at about `limit` jobs from the last place."""
    place = began = _place(tx)
    if place is None and _has_just_passed(tx, before):
        return
    for _ in range(WINDOWS):
        window, has_more = _window(tx, before, limit, place)
        old = [family for family in families(tx, [job_id for _, job_id in window]) if family.may_go(before)]
        removed = _take_away(tx, old, pruned)
        place = window[-1] if has_more else None
        if removed or place is None:
            break
    if place != began:
        meta.put(tx, _PLACE, "" if place is None else f"{iso(place[0])} {place[1]}")
    if place is None:
        meta.put(tx, _PASSED, iso(before))


def prune_reservations(tx: Transaction, before: datetime, limit: int, pruned: Pruned) -> None:
    """Takes away direct requests that ended before `before` and are not executed any more."""
    ids = tx.column(
        "SELECT r.id FROM direct_reservations r LEFT JOIN leases l ON l.reservation_id = r.id "
        "WHERE r.finished_at IS NOT NULL AND r.finished_at < :before AND r.status <> 'ACTIVE' AND l.id IS NULL "
        "ORDER BY r.finished_at LIMIT :limit",
        before=before,
        limit=limit,
    )
    if ids:
        _take_output(tx, ids, pruned)
        tx.execute("DELETE FROM direct_reservations WHERE id IN :ids", ids=ids)
        pruned.add("direct_reservations", len(ids))


def prune_occurrences(tx: Transaction, before: datetime, limit: int, pruned: Pruned) -> None:
    """Takes away Occurrences that were recorded, and were due, before `before`."""
    chosen = "SELECT id FROM occurrences WHERE recorded_at < :before AND due_at < :before ORDER BY recorded_at"
    pruned.delete(tx, "occurrences", f"id IN ({chosen} LIMIT :limit) RETURNING id", before=before, limit=limit)


def prune_events(tx: Transaction, before: datetime, limit: int, pruned: Pruned) -> None:
    """Takes away old Events from the beginning of the log.

    Only its first rows are looked at: the log is in order of time but for jumps of a clock, and what such a jump
    hides is found once the rows around it are old. The newest row stays while any other does: on SQLite new ids are
    counted from it, and whoever has read up to it goes on behind it.
    """
    # Named with their table: a bare xid would be the text that is chosen, which sorts otherwise.
    chosen, order = ("''", "id") if tx.dialect == "sqlite" else ("events.xid::text", "events.xid, events.id")
    first = tx.rows(f"SELECT id, at, {chosen}, count, name FROM events ORDER BY {order} LIMIT :limit", limit=limit)
    old = [row for row in first if tx.instant(row[1]) < before]
    if old and len(old) < len(first) and old[-1] is first[-1]:
        old.pop()
    if not old:
        return
    if tx.dialect == "sqlite":
        tx.execute("DELETE FROM events WHERE id IN :ids", ids=[row[0] for row in old])
    else:
        tx.execute(
            "DELETE FROM events USING rows(:old; xid text, id int) AS o "
            "WHERE events.xid = o.xid::xid8 AND events.id = o.id",
            old=[(row[2], row[0]) for row in old],
        )
    count_pruned(tx, [row[4] for row in old])
    pruned.add("events", sum(row[3] for row in old))


def prune_workers(tx: Transaction, before: datetime, limit: int, pruned: Pruned) -> None:
    """Takes away rows of workers that ended, or were last heard of, before `before`."""
    idle = "NOT EXISTS (SELECT 1 FROM leases l WHERE l.worker_id = w.id)"
    chosen = f"SELECT w.id FROM workers w WHERE w.expires_at < :before AND {idle} LIMIT :limit"
    pruned.delete(tx, "workers", f"id IN ({chosen}) RETURNING id", before=before, limit=limit)


def _window(
    tx: Transaction, before: datetime, limit: int, place: tuple[datetime, str] | None
) -> tuple[list[tuple[datetime, str]], bool]:
    """The next jobs by their end, after the place of the walk, and whether there are more behind them."""
    types = ended_types(tx)
    share = min(limit, 1 + ROWS_READ * limit // (1 + len(types)))
    beyond = "" if place is None else f"AND {RUN_END} >= :at AND ({RUN_END} > :at OR j.id > :id) "
    params: dict[str, Any] = {} if place is None else {"at": place[0], "id": place[1]}
    params |= {"before": before, "limit": share}
    parts = [tx.rows(_NEVER_RAN.format(beyond=beyond.replace(RUN_END, "j.finished_at")), **params)]
    parts += [tx.rows(_RAN.format(beyond=beyond), type=type_, **params) for type_ in types]
    jobs = sorted((tx.instant(ended_at), job_id) for part in parts for ended_at, job_id in part)
    # Behind the last job of a share there may be others that come before those of other types.
    last = min([(tx.instant(part[-1][0]), part[-1][1]) for part in parts if len(part) == share], default=None)
    window = [job for job in jobs if last is None or job <= last][:limit]
    return window, last is not None or len(window) < len(jobs)


def _place(tx: Transaction) -> tuple[datetime, str] | None:
    at, _, job_id = (meta.get(tx, _PLACE) or "").partition(" ")
    return (from_iso(at), job_id) if at else None


def _has_just_passed(tx: Transaction, before: datetime) -> bool:
    """Whether the last pass came to its end so recently that a new one would only see the same again."""
    passed = meta.get(tx, _PASSED)
    return passed is not None and abs((before - from_iso(passed)).total_seconds()) < PASS_EVERY_S


def _take_away(tx: Transaction, old: Sequence[Family], pruned: Pruned) -> int:
    jobs = sorted(job_id for family in old for job_id in family.jobs)
    groups = sorted(group_id for family in old for group_id in family.groups)
    if not jobs:
        return 0
    runs = tx.column("SELECT id FROM job_runs WHERE job_id IN :ids", ids=jobs)
    if runs:
        _take_output(tx, runs, pruned)
        tx.execute("DELETE FROM job_runs WHERE id IN :ids", ids=runs)
    forget_labels(tx, jobs)
    for table, column in _OF_JOBS:
        tx.execute(f"DELETE FROM {table} WHERE {column} IN :ids", ids=jobs)
    pruned.add("jobs", len(jobs))
    if groups:
        tx.execute("DELETE FROM deliveries WHERE group_id IN :ids", ids=groups)
        tx.execute("DELETE FROM job_groups WHERE id IN :ids", ids=groups)
        pruned.add("job_groups", len(groups))
    return len(jobs)


def _take_output(tx: Transaction, run_ids: Iterable[str], pruned: Pruned) -> None:
    ids = list(run_ids)
    tx.execute("DELETE FROM run_logs WHERE run_id IN :ids", ids=ids)
    tx.execute("DELETE FROM progress WHERE run_id IN :ids", ids=ids)
    paths = tx.rows("DELETE FROM artifacts WHERE run_id IN :ids RETURNING path", ids=ids)
    pruned.paths += [row[0] for row in paths if row[0]]


def prune_rates(tx: Transaction, before: datetime, limit: int, pruned: Pruned) -> None:
    """Takes away the instants of rates and throttles that lie behind: without one, as much may start."""
    for table, columns, ends in (("rates", "key, partition", "due"), ("throttles", "key, type, partition", "until")):
        chosen = f"SELECT {columns} FROM {table} WHERE {ends} < :before LIMIT :limit"
        past = {"before": before.timestamp(), "limit": limit}
        pruned.delete(tx, table, f"({columns}) IN ({chosen}) RETURNING key", **past)
