"""Stores as each version of the schema left them, with work in flight; `make save-store` adds the newest.

Each schema that has landed is kept in tests/data/stores as a SQLite file and as a dump of PostgreSQL, both compressed.
They are made once, by the program of their time, and never again: what upgrades a store of a user must upgrade these.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from holdbeat.store.migrate import migrations
from tests.conformance.lived_store import make_lived_store
from tests.postgres import PostgresServer, find_binaries

FOLDER = Path(__file__).parent.parent / "data" / "stores"
ENDED_AT = datetime(2025, 1, 1, tzinfo=UTC)
"""When the stores were used last: on every machine longer ago than any lease."""
ARTIFACTS = Path("artifacts")


def saved_versions() -> list[int]:
    return sorted(int(folder.name) for folder in FOLDER.iterdir())


def load_file(version: int, path: Path) -> None:
    """Puts the SQLite store of a version in a place."""
    path.write_bytes(gzip.decompress(_file(version, "sqlite").read_bytes()))


def load_database(version: int, url: str) -> None:
    """Puts the PostgreSQL store of a version in an empty database."""
    with psycopg.connect(url) as connection:
        connection.execute(gzip.decompress(_file(version, "postgres.sql").read_bytes()))


def save() -> int:
    """Keeps a store of the newest schema; one that is kept already is left alone."""
    version = migrations("sqlite")[-1].version
    folder = FOLDER / f"{version:04d}"
    if folder.exists():
        print(f"{folder} is there already. A schema that has landed does not change: add a migration instead.")
        return 1
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), PostgresServer() as server:
        make_lived_store(f"sqlite:///{place}/store", ARTIFACTS, until=ENDED_AT)
        url = server.create_database()
        make_lived_store(url, ARTIFACTS, until=ENDED_AT)
        folder.mkdir(parents=True)
        _file(version, "sqlite").write_bytes(_compressed(Path("store").read_bytes()))
        _file(version, "postgres.sql").write_bytes(_compressed(_dump(url)))
    for path in sorted(folder.iterdir()):
        print(f"{path.relative_to(FOLDER)}: {path.stat().st_size:,} bytes")
    return 0


def _dump(url: str) -> bytes:
    """SQL that any client can send: no COPY, no commands of psql, no owner."""
    command = [str(find_binaries() / "pg_dump"), "--inserts", "--no-owner", "--no-privileges", url]
    text = subprocess.run(command, check=True, capture_output=True, env={"PATH": os.environ["PATH"]}).stdout
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(b"\\")]
    return b"".join(lines) + b"SET search_path = public;\n"


def _compressed(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)


def _file(version: int, name: str) -> Path:
    return FOLDER / f"{version:04d}" / f"{name}.gz"


if __name__ == "__main__":
    sys.exit(save())
