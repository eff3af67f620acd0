"""Output of runs while they run: progress, log lines, artifacts.

Guards LEASE-03: each entry names the lease under which it was made, and is written only if that lease is still held
by the same worker with the same fence; from anyone else nothing is kept. A direct request has no run: what it says is
kept under the id of its reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import NotFound, TooLarge
from holdbeat.domain.params import dumps
from holdbeat.domain.steps import OpenStep
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction

ARTIFACT_DATA_MAX = 10 * 1024 * 1024
"""The most bytes of one artifact that are kept inside the store."""


@dataclass(frozen=True, slots=True)
class FencedEntry:
    """What a run reports, and the lease under which it does."""

    lease_id: str
    worker_id: str
    fence: int


E = TypeVar("E", bound=FencedEntry)


@dataclass(frozen=True, slots=True)
class ProgressEntry(FencedEntry):
    fraction: float | None
    message: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class OpenStepsEntry(FencedEntry):
    """The steps in which the handler of a run is now."""

    steps: Sequence[OpenStep]
    at: datetime


@dataclass(frozen=True, slots=True)
class LogEntry(FencedEntry):
    sequence: int
    """Counted by the worker, from 1 within the run; a line that is sent twice is kept once."""
    stream: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactEntry(FencedEntry):
    """An artifact, whose content is in a file at `path`, or in `data`."""

    name: str
    size: int
    sha256: str
    path: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    sequence: int
    at: datetime
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Artifact:
    run_id: str
    name: str
    size: int
    sha256: str
    created_at: datetime
    path: str | None = None
    data: bytes | None = None


def progress(tx: Transaction, entries: Sequence[ProgressEntry]) -> set[str]:
    """Notes how far runs are; the last word of each counts. Returns the ids of leases that are gone."""
    accepted, stale = _sort_out(tx, entries)
    newest = {entry.lease_id: entry for entry in accepted}
    if newest:
        tx.execute(
            "INSERT INTO progress (run_id, fraction, message, updated_at) "
            "SELECT e.run_id, e.fraction, e.message, e.updated_at "
            "FROM rows(:entries; run_id text, fraction real, message text, updated_at time) AS e WHERE 1 = 1 "
            "ON CONFLICT (run_id) DO UPDATE SET fraction = excluded.fraction, message = excluded.message, "
            "updated_at = excluded.updated_at",
            entries=[(e.lease_id, e.fraction, e.message, e.at) for _, e in sorted(newest.items())],
        )
        tx.wake(Topic.PROGRESS)
    return stale


def note_open_steps(tx: Transaction, entries: Sequence[OpenStepsEntry]) -> set[str]:
    """Notes in which steps runs are. Returns the ids of leases that are gone."""
    accepted, stale = _sort_out(tx, entries)
    if accepted:
        rows = [
            (e.lease_id, dumps([{"name": step.name, "started_at": iso(step.started_at)} for step in e.steps]), e.at)
            for _, e in sorted({entry.lease_id: entry for entry in accepted}.items())
        ]
        tx.execute(
            "INSERT INTO progress (run_id, steps, updated_at) SELECT e.run_id, e.steps, e.updated_at "
            "FROM rows(:entries; run_id text, steps json, updated_at time) AS e WHERE 1 = 1 "
            "ON CONFLICT (run_id) DO UPDATE SET steps = excluded.steps, updated_at = excluded.updated_at",
            entries=rows,
        )
        tx.wake(Topic.PROGRESS)
    return stale


def append_logs(tx: Transaction, entries: Sequence[LogEntry]) -> set[str]:
    """Appends lines to the logs of runs. Returns the ids of leases that are gone."""
    accepted, stale = _sort_out(tx, entries)
    if accepted:
        tx.execute(
            "INSERT INTO run_logs (run_id, sequence, at, stream, text) "
            "SELECT e.run_id, e.sequence, e.at, e.stream, e.text "
            "FROM rows(:entries; run_id text, sequence int, at time, stream text, text text) AS e WHERE 1 = 1 "
            "ON CONFLICT (run_id, sequence) DO NOTHING",
            entries=[(e.lease_id, e.sequence, e.at, e.stream, e.text) for e in accepted],
        )
        tx.wake(Topic.LOGS)
    return stale


def replace_artifact(tx: Transaction, entry: ArtifactEntry) -> list[str] | None:
    """Keeps one artifact; a second one of the same name replaces the first.

    Returns the files that no record points to any more once this is on disk; None if the lease is gone.
    """
    if entry.data is not None and len(entry.data) > ARTIFACT_DATA_MAX:
        raise TooLarge(
            f"The artifact {entry.name} has {len(entry.data)} bytes; the store keeps up to {ARTIFACT_DATA_MAX}. Set "
            "artifact_dir to a folder that all workers share.",
            code="artifact_too_large",
            field=entry.name,
        )
    accepted, _ = _sort_out(tx, [entry])
    if not accepted:
        return None
    replaced: list[Row] = []
    is_stored = False
    while not is_stored:  # a second time if another thread of the handler stored one of this name in between
        replaced += tx.rows(
            "DELETE FROM artifacts WHERE run_id = :id AND name = :name RETURNING path",
            id=entry.lease_id,
            name=entry.name,
        )
        is_stored = bool(
            tx.rows(
                "INSERT INTO artifacts (run_id, name, size, sha256, path, data, created_at) "
                "VALUES (:id, :name, :size, :sha256, :path, :data, :now) "
                "ON CONFLICT (run_id, name) DO NOTHING RETURNING name",
                id=entry.lease_id,
                name=entry.name,
                size=entry.size,
                sha256=entry.sha256,
                path=entry.path,
                data=entry.data,
                now=tx.now,
            )
        )
    return [row[0] for row in replaced if row[0] and row[0] != entry.path]


CHUNKS = ("chunk", "chunk.json")
"""The streams of what handlers emit, as text and as JSON; kept in one table with the lines of logs."""


def read_logs(
    tx: Transaction, run_id: str, after: int = 0, limit: int = 1000, *, emitted: bool = False
) -> list[LogLine]:
    """Lines of the log of a run or a direct request after a sequence number, in order; or what it emitted."""
    rows = tx.rows(
        "SELECT sequence, at, stream, text FROM run_logs WHERE run_id = :id AND sequence > :after "
        f"AND {'' if emitted else 'NOT '}(stream IN :chunks) ORDER BY sequence LIMIT :limit",
        chunks=list(CHUNKS),
        id=run_id,
        after=after,
        limit=limit,
    )
    return [LogLine(row[0], tx.instant(row[1]), row[2], row[3]) for row in rows]


def list_artifacts(tx: Transaction, run_id: str) -> list[Artifact]:
    """The artifacts of a run by name, without their content."""
    rows = tx.rows(
        "SELECT run_id, name, size, sha256, created_at, path FROM artifacts WHERE run_id = :id ORDER BY name",
        id=run_id,
    )
    return [_artifact_of(tx, row) for row in rows]


def read_artifact(tx: Transaction, run_id: str, name: str) -> Artifact:
    """One artifact with its content, or with the path of the file that has it."""
    row = tx.one(
        "SELECT run_id, name, size, sha256, created_at, path, data FROM artifacts WHERE run_id = :id AND name = :name",
        id=run_id,
        name=name,
    )
    if row is None:
        raise NotFound(f"The run {run_id} has no artifact {name!r}.", run_id=run_id)
    return _artifact_of(tx, row)


def _artifact_of(tx: Transaction, row: Sequence[Any]) -> Artifact:
    data = row[6] if len(row) > 6 else None
    return Artifact(
        run_id=row[0],
        name=row[1],
        size=row[2],
        sha256=row[3],
        created_at=tx.instant(row[4]),
        path=row[5],
        data=None if data is None else bytes(data),
    )


def _sort_out(tx: Transaction, entries: Sequence[E]) -> tuple[list[E], set[str]]:
    """Entries of runs whose leases are held by who sent them, and the leases of those that are not.

    The rows are locked, so that no recovery can take a lease away between this look and the write; but by a lock that
    lets heartbeats renew them, however long the write takes (LEASE-02).
    """
    if not entries:
        return [], set()
    rows = tx.rows(
        "SELECT id, worker_id, fence FROM leases WHERE id IN :ids ORDER BY id FOR KEY SHARE",
        ids=sorted({entry.lease_id for entry in entries}),
    )
    held = {(row[0], row[1], row[2]) for row in rows}
    stale = {entry.lease_id for entry in entries if (entry.lease_id, entry.worker_id, entry.fence) not in held}
    return [entry for entry in entries if entry.lease_id not in stale], stale


def read_progress(tx: Transaction, run_id: str) -> tuple[float | None, str | None] | None:
    """How far a run or a direct request said that it is."""
    row = tx.one("SELECT fraction, message FROM progress WHERE run_id = :id", id=run_id)
    return None if row is None else (row[0], row[1])
