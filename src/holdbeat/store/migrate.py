"""Migrations: numbered, forward only, each in one transaction with its own record.

Guards OPS-02: a store is at one version or the next, never between; a changed or newer history is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from holdbeat.domain.errors import StoreRefused
from holdbeat.store.transaction import StoreTerms, Transaction

TABLE = """CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL
)"""

NEWER_SCHEMA = "newer_schema"
"""The code of the refusal of a store that a newer Holdbeat has brought up to date."""
REFUSING_TRIGGERS = frozenset(
    {"jobs_params_are_frozen", "jobs_status_is_final", "job_runs_start_is_frozen", "job_runs_end_is_written_once"}
)
"""The triggers of the schema that refuse a change. PostgreSQL gives their name as that of a violated constraint, SQLite
as the beginning of the message."""


AGEING_INDEX = (
    "CREATE INDEX jobs_ageing ON jobs (ages_at) "
    "WHERE status = 'QUEUED' AND hold < 1 AND effective_priority < 100 AND attempt >= 0"
)


def indexes_of(terms: StoreTerms) -> dict[str, str]:
    """Indexes that a store has only once a process with these settings has opened it, and how they are made.

    Every ready job would have an entry in the index of the ageing, and few stores age their jobs.

    Before the first ANALYZE PostgreSQL takes that index for as good as jobs_ready, and would read the whole of one of
    them and sort it. So claims say `hold = 0`, the ageing says `hold < 1 AND attempt >= 0`, and neither can use the
    other's.
    """
    return {"jobs_ageing": AGEING_INDEX} if terms.aging_s > 0 else {}


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@lru_cache
def migrations(engine: str) -> tuple[Migration, ...]:
    """All migrations of an engine, in order."""
    folder = Path(__file__).with_name("sql") / engine
    shipped = []
    for entry in folder.iterdir():
        if entry.name.endswith(".sql"):
            version, _, name = entry.name[:-4].partition("_")
            shipped.append(Migration(int(version), name, entry.read_text(encoding="utf-8")))
    return tuple(sorted(shipped, key=lambda migration: migration.version))


def schema_refusal(tx: Transaction) -> StoreRefused | None:
    """Why this program must not use a store whose schema has changed since it was opened; None if it may.

    Returned, not raised: a store that raises a refusal takes nothing more, and running handlers still have to settle.
    """
    rows = tx.rows("SELECT version, checksum FROM schema_migrations")
    try:
        pending(tx.dialect, [(int(version), str(checksum)) for version, checksum in rows])
    except StoreRefused as refusal:
        return refusal
    return None


def pending(engine: str, applied: Iterable[tuple[int, str]]) -> list[Migration]:
    """The migrations to apply after `applied` (version, checksum); refuses a history that is not ours."""
    known = {migration.version: migration for migration in migrations(engine)}
    done = dict(applied)
    newest = max(known)
    if max(done, default=0) > newest:
        raise StoreRefused(
            f"The store has schema version {max(done)}, and this Holdbeat knows only up to {newest}. "
            "Upgrade Holdbeat on this machine; it does not write to a store of a newer version.",
            code=NEWER_SCHEMA,
        )
    for version, checksum in done.items():
        if known[version].checksum != checksum:
            raise StoreRefused(
                f"Migration {version} of the store differs from the one that this Holdbeat ships. "
                "The store was made by a modified program; restore a backup or use that program.",
                code="changed_schema",
            )
    return [migration for version, migration in sorted(known.items()) if version not in done]
