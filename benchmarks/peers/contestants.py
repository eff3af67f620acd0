"""Who is measured, by which command, and what each store calls unfinished.

Settings are the defaults of each, except how many jobs a worker runs at once: 1,024 for Holdbeat, Oban and DBOS, 16 for
Procrastinate, whose default is 1, and batches of 10 (its default) and 200 for PgQueuer. Huey keeps its one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.peers.environments import Environment


class Store(StrEnum):
    SQLITE = "SQLite"
    POSTGRES = "PostgreSQL"
    REDIS = "Redis"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A queue with its program and its worker's command."""

    name: str
    store: Store
    program: str
    """The module in `programs`."""
    worker: tuple[str, ...]
    """The command; {bin} is the folder of the environment's programs, {store} the address, {program} the module."""
    unfinished: tuple[str, ...] = ()
    """Counts what is not finished: SQL, or commands of Redis. Nothing for Holdbeat, whose own interface is asked."""
    environment: Environment | None = None
    """None: the environment of this checkout."""
    workers: int = 1
    is_drain_only: bool = False
    divisor: int = 1
    """A slow one gets this part of the jobs, so that a round ends."""


@dataclass(frozen=True, slots=True)
class RawContestant:
    """The fastest honest SQL without any queue around it."""

    name: str
    store: Store


SLOTS = 1024
_HOLDBEAT_WORKER = (
    *("{bin}/holdbeat", "worker", "{program}:app", "--store", "{store}"),
    *("--slots", str(SLOTS), "--concurrency", "unlimited"),
)
_QUIET = (*_HOLDBEAT_WORKER, "--log-level", "warning")
_HUEY = Environment("huey", ("huey",))
# With typer 0.27 and later, `pgq run` of PgQueuer 1.6 fails before it does anything.
_PGQUEUER = Environment("pgqueuer", ("pgqueuer[asyncpg]", "typer<0.27"))
_PROCRASTINATE = Environment("procrastinate", ("procrastinate", "psycopg[binary]"))
_OBAN = Environment("oban", ("oban",), python=(3, 12))
_DBOS = Environment("dbos", ("dbos",))
_CELERY = Environment("celery", ("celery[redis]",))
_DRAMATIQ = Environment("dramatiq", ("dramatiq[redis]",))

RAW_SQLITE = RawContestant("raw SQL, SQLite", Store.SQLITE)
RAW_POSTGRES = RawContestant("raw SQL, PostgreSQL", Store.POSTGRES)
HOLDBEAT_SQLITE = Contestant("Holdbeat, SQLite", Store.SQLITE, "holdbeat_app", _HOLDBEAT_WORKER)
HOLDBEAT_POSTGRES = Contestant("Holdbeat, PostgreSQL", Store.POSTGRES, "holdbeat_app", _HOLDBEAT_WORKER)
QUIET_SQLITE = Contestant(
    "Holdbeat, SQLite, --log-level warning", Store.SQLITE, "holdbeat_app", _QUIET, is_drain_only=True
)
QUIET_POSTGRES = Contestant(
    "Holdbeat, PostgreSQL, --log-level warning", Store.POSTGRES, "holdbeat_app", _QUIET, is_drain_only=True
)
TWO_WORKERS = Contestant(
    "Holdbeat, PostgreSQL, two workers",
    Store.POSTGRES,
    "holdbeat_app",
    _HOLDBEAT_WORKER,
    workers=2,
    is_drain_only=True,
)
HUEY = Contestant(
    "Huey, SQLite, fsync",
    Store.SQLITE,
    "huey_app",
    ("{bin}/huey_consumer", "{program}.huey", "--workers", "1"),
    ("SELECT count(*) FROM task",),
    _HUEY,
)
_PGQUEUER_WORKER = ("{bin}/pgq", "run", "{program}:worker")
_PGQUEUER_UNFINISHED = ("SELECT count(*) FROM pgqueuer",)
PGQUEUER_10 = Contestant(
    "PgQueuer, batch 10",
    Store.POSTGRES,
    "pgqueuer_app",
    _PGQUEUER_WORKER,
    _PGQUEUER_UNFINISHED,
    _PGQUEUER,
)
PGQUEUER_200 = Contestant(
    "PgQueuer, batch 200",
    Store.POSTGRES,
    "pgqueuer_app",
    (*_PGQUEUER_WORKER, "--batch-size", "200"),
    _PGQUEUER_UNFINISHED,
    _PGQUEUER,
)
PROCRASTINATE = Contestant(
    "Procrastinate",
    Store.POSTGRES,
    "procrastinate_app",
    ("{bin}/procrastinate", "--app", "{program}.app", "worker", "--concurrency", "16"),
    ("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",),
    _PROCRASTINATE,
    divisor=10,
)
OBAN = Contestant(
    "Oban for Python",
    Store.POSTGRES,
    "oban_app",
    ("{bin}/oban", "start", "--dsn", "{store}", "--queues", f"default:{SLOTS}", "--cron-modules", "{program}"),
    ("SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'scheduled', 'executing', 'retryable')",),
    _OBAN,
)
DBOS = Contestant(
    "DBOS",
    Store.POSTGRES,
    "dbos_app",
    ("{bin}/python", "-m", "{program}", "worker"),
    ("SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')",),
    _DBOS,
    divisor=10,
)
CELERY = Contestant(
    "Celery, Redis",
    Store.REDIS,
    "celery_app",
    ("{bin}/celery", "--app", "{program}", "worker"),
    ("llen celery", "hlen unacked"),
    _CELERY,
    divisor=5,
)
DRAMATIQ = Contestant(
    "Dramatiq, Redis",
    Store.REDIS,
    "dramatiq_app",
    ("{bin}/dramatiq", "{program}"),
    ("hlen dramatiq:default.msgs",),
    _DRAMATIQ,
)

HOLDBEAT_AND_RAW: tuple[Contestant | RawContestant, ...] = (
    RAW_SQLITE,
    HOLDBEAT_SQLITE,
    QUIET_SQLITE,
    RAW_POSTGRES,
    HOLDBEAT_POSTGRES,
    QUIET_POSTGRES,
    TWO_WORKERS,
)
PEERS: tuple[Contestant, ...] = (
    HUEY,
    PGQUEUER_10,
    PGQUEUER_200,
    PROCRASTINATE,
    OBAN,
    DBOS,
    CELERY,
    DRAMATIQ,
)
