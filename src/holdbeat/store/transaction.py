"""The Transaction that verbs are written against: the same on both engines.

A verb is a plain function `verb(tx, …)`. It reads and writes through the transaction, never commits, and may
be run again from its start if the engine had to roll back: so it must not act outside of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from holdbeat.domain.attention import OpenReader
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.ids import IdSource
from holdbeat.domain.limit import Limits
from holdbeat.domain.params import dumps
from holdbeat.domain.policy import Policy
from holdbeat.store.delivery_rows import tell_subscribers
from holdbeat.store.event_batches import BATCH_COLUMNS, EVENT_COLUMNS, packed
from holdbeat.store.topics import Topic

T = TypeVar("T")

MANY = 5_000
"""Counts up to here are exact at every look."""
KEPT_S_PER_ROW = 3e-5
LONGEST_KEPT_S = 10.0

monotonic = SystemClock().monotonic


class LongCounts:
    """Counts of many rows, kept for a short while: to count a million jobs takes a second, and dashboards ask again."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, float]] = {}

    def get(self, key: str, count: Callable[[], tuple[T, int]]) -> T:
        """The answer of `count`, which also returns how many rows it counted; or its answer of shortly before."""
        kept = self._kept.get(key)
        if kept is not None and monotonic() < kept[1]:
            answer: T = kept[0]
            return answer
        answer, rows = count()
        if rows > MANY:
            self._kept[key] = (answer, monotonic() + min(LONGEST_KEPT_S, rows * KEPT_S_PER_ROW))
        else:
            self._kept.pop(key, None)
        return answer


Row = tuple[Any, ...]
Dialect = Literal["sqlite", "postgres"]


class StoreTerms:
    """The terms of a deployment, for every verb."""

    __slots__ = (
        "aging_s", "counts", "direct_burst", "floors", "ids", "known_lanes", "known_limits", "known_types",
        "lease_floors", "limits", "policy", "walks",
    )  # fmt: skip

    def __init__(self, ids: IdSource, limits: Limits, aging_s: float = 0, direct_burst: int = 0) -> None:
        self.ids = ids
        self.limits = limits
        """What the own settings declare; they hold only in a store for which nobody has declared any."""
        self.known_limits: Limits | None = None
        """The limits of the store as they were last read."""
        self.known_types: dict[str, Any] = {}
        """Job types as they were last read (`queue/job_types.py`), by name."""
        self.counts = LongCounts()
        self.aging_s = aging_s
        self.direct_burst = direct_burst
        """After so many direct requests in a row a waiting job has the next slot; 0: never."""
        self.policy: Policy | None = None
        """The program's own say in what may start."""
        self.walks: dict[tuple[str, str, str], Any] = {}
        """How far claims of this process have looked through lanes (`running/lane_walk.py`)."""
        self.floors: dict[tuple[str, str], Any] = {}
        """Where claims of this process begin in lanes (`running/lane_floor.py`)."""
        self.lease_floors: Any = None
        """From which leases on claims of this process count (`limits/usage.py`)."""
        self.known_lanes: Any = None
        """The lanes that claims of this process have found (`running/lane_floor.py`)."""


class Transaction(ABC):
    """One unit of work: all of it is stored, or none."""

    dialect: Dialect

    def __init__(self, now: datetime | None, terms: StoreTerms) -> None:
        self._now = now
        self.terms = terms
        self.events: list[Row] = []
        """Noted Events as rows of EVENT_COLUMNS; verbs that note one for each of many jobs append them here."""
        self.written: list[Row] = []
        """Events that will be in the log once this transaction has committed."""
        self.wakes: set[str] = set()
        """Topics that somebody may be waiting for; sent after the commit."""
        self.actor: str | None = None
        """Who asked for what is done here: the name of a key, a person at a command line, a program (AUD-01)."""
        self.known_dead: Callable[[], frozenset[str]] = frozenset
        """Workers whose processes are certainly gone, where the engine can tell; recovery has not ended them yet."""

    @property
    def now(self) -> datetime:
        """The instant at which this transaction takes place."""
        if self._now is None:
            self._now = self._begun_at()
        return self._now

    def _begun_at(self) -> datetime:
        """Asks the engine for `now`, where it was not handed in."""
        raise NotImplementedError

    # --- statements -------------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, sql: str, /, **params: Any) -> list[Row]:
        """Runs a statement and returns its rows."""

    @abstractmethod
    def execute(self, sql: str, /, **params: Any) -> None:
        """Runs a statement whose result nobody needs; it may be sent together with the next ones."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts many rows in one go. Columns that are None in every row are left to their defaults."""
        if len(rows) <= 1:
            for row in rows:
                self._insert_one(table, columns, row)
            return
        shared: dict[str, Any] = {}
        varied: dict[str, Sequence[Any]] = {}
        for name, values in zip(columns, zip(*rows, strict=True), strict=True):
            first = values[0]
            # The last value is compared first: most columns differ there. One column must say how many rows there are.
            if first == values[-1] and values.count(first) == len(values) and (varied or first is None):
                shared[name] = first
            else:
                varied[name] = values
        self.insert_columns(table, shared, varied)

    def update(self, table: str, columns: Sequence[str], row: Sequence[Any]) -> None:
        """Writes a row whole; its first column says which."""
        changes = ", ".join(f"{name} = :{name}" for name in columns[1:])
        values = dict(zip(columns, row, strict=True))
        self.execute(f"UPDATE {table} SET {changes} WHERE {columns[0]} = :{columns[0]}", **values)

    @abstractmethod
    def _insert_one(self, table: str, columns: Sequence[str], row: Sequence[Any]) -> None: ...

    @abstractmethod
    def insert_columns(self, table: str, shared: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> None:
        """`insert` for rows that share one value in each of these columns and differ only in the others."""

    @abstractmethod
    def insert_from(self, sql: str, entries: Sequence[Row], /, **params: Any) -> int:
        """Runs `INSERT … SELECT` from the table `rows(:entries; …)`, and returns how many rows it has inserted."""

    @abstractmethod
    def time(self, value: Any) -> datetime | None:
        """An instant as the engine returned it, as a datetime."""

    def instant(self, value: Any) -> datetime:
        """An instant of a column that is never null."""
        at = self.time(value)
        assert at is not None
        return at

    def all_rows(self, *queries: tuple[str, dict[str, Any]]) -> list[list[Row]]:
        """The rows of several statements that need nothing of each other: one journey to the database."""
        return [self.rows(sql, **params) for sql, params in queries]

    def one(self, sql: str, /, **params: Any) -> Row | None:
        rows = self.rows(sql, **params)
        return rows[0] if rows else None

    def count(self, sql: str, /, **params: Any) -> int:
        """The number that a statement counts."""
        return int(self.rows(sql, **params)[0][0])

    def column(self, sql: str, /, **params: Any) -> list[Any]:
        """The first column of all rows."""
        return [row[0] for row in self.rows(sql, **params)]

    def dicts(self, columns: Sequence[str], sql: str, /, **params: Any) -> list[dict[str, Any]]:
        """Rows of a statement that selects exactly `columns`, by name."""
        return [dict(zip(columns, row, strict=True)) for row in self.rows(sql, **params)]

    # --- what differs by design --------------------------------------------------------------------------

    @abstractmethod
    def next_fences(self, count: int) -> int:
        """Reserves `count` fences and returns the first; they grow over the whole store."""

    @abstractmethod
    def next_positions(self, counts: Mapping[int, int]) -> dict[int, list[int]]:
        """For each priority, that many fresh positions at its end."""

    def expect_positions(self, counts: Mapping[int, int]) -> None:  # noqa: B027
        """Says how many positions of each priority will probably be needed; a wrong guess only leaves some unused."""

    @abstractmethod
    def lock_pools(self, names: Iterable[str]) -> None:
        """Lets nobody else count or take slots of these pools before this transaction has ended."""

    @abstractmethod
    def open_reader(self) -> OpenReader | None:
        """The reader whose transaction has been open for so long that it does harm, if there is one."""

    def insert_events(self, rows: Sequence[Row]) -> None:
        """Inserts rows of EVENT_COLUMNS into the log."""
        self.insert("events", EVENT_COLUMNS, rows)

    @abstractmethod
    def insert_event_batch(self, columns: Sequence[str], row: Row) -> None:
        """Inserts a row of the log that holds as many Events as its `count`, under the last of as many fresh ids."""

    # --- what follows ------------------------------------------------------------------------------------

    def new_id(self) -> str:
        return self.terms.ids.new(self.now)

    def new_ids(self, count: int) -> list[str]:
        return self.terms.ids.many(self.now, count)

    def record(
        self,
        name: str,
        /,
        *,
        job_id: str | None = None,
        run_id: str | None = None,
        worker_id: str | None = None,
        group_id: str | None = None,
        schedule_id: str | None = None,
        **data: Any,
    ) -> None:
        """Notes an Event. Fields that are not columns of the log go into its data."""
        known = {key: value for key, value in data.items() if value is not None}
        if self.actor is not None:
            known["actor"] = self.actor
        self.events.append(
            (name, self.now, job_id, run_id, worker_id, group_id, schedule_id, dumps(known) if known else None)
        )

    def wake(self, *topics: Topic) -> None:
        self.wakes.update(topics)

    def write_events(self) -> None:
        """Appends the noted Events to the log; the engine calls it before it commits."""
        if not self.events:
            return
        tell_subscribers(self, self.events)
        event_rows, self.events = self.events, []
        self.append_events(event_rows)
        self.written += event_rows
        self.wakes.add(Topic.EVENTS)

    def append_events(self, event_rows: Sequence[Row]) -> None:
        """Writes rows of EVENT_COLUMNS into the log, packed."""
        for is_batch, rows in packed(event_rows):
            if is_batch:
                self.insert_event_batch(BATCH_COLUMNS, rows[0])
            else:
                self.insert_events(rows)
