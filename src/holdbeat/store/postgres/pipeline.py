"""StatementPipeline: statements in libpq's pipeline mode, without a cursor of the driver for each of them.

A cursor and the generators behind it took 60 µs of the interpreter's time for every statement, and a cycle of the
dispatcher has fourteen. Values are converted by the driver's own compiled adapters, so what is stored stays the same.
"""

from __future__ import annotations

import re
import select
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGresult

from holdbeat.store.transaction import Row

if TYPE_CHECKING:
    from holdbeat.store.postgres.database import StoreConnection

Params = Mapping[str, Any] | Sequence[Any] | None

PREPARE_AFTER = 5
"""A statement that was sent so often is prepared by the server, which then need not parse it again."""
STATEMENTS_MAX = 400
"""Of so many a connection keeps count. A batch is written with a text for each pattern of columns that hold one value,
so there are many of them."""

FLUSH_BYTES = 8192
"""A statement with more values is sent at once: the server works on it while the next ones are made."""

_PLACEHOLDER = re.compile(r"%(?:\((\w+)\)s|s|%)")
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


@lru_cache(maxsize=4096)
def _compiled(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """A text with `%(name)s` or `%s` in the form of the server, and the names in the order of its parameters."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match[1] is None:
            names.append("")
            return f"${len(names)}"
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return _PLACEHOLDER.sub(numbered, sql).encode(), tuple(names)


class Answer:
    """The rows of a statement, there after the next `sync`."""

    __slots__ = ("error", "is_there", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.error: psycopg.Error | None = None
        self.is_there = False

    def fetchall(self) -> list[Row]:
        return self.rows

    def fetchone(self) -> Row | None:
        return self.rows[0] if self.rows else None


class Statements:
    """The statements of one connection: how values are converted, and which the server has prepared."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.adapters = Transformer(connection)
        self.uses: OrderedDict[tuple[bytes, tuple[int, ...]], int] = OrderedDict()
        """How often each was sent, the latest last."""
        self.prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        """Names of those that the server has confirmed."""
        self.count = 0


class StatementPipeline:
    """Sends statements one behind the other and waits for their answers at `sync`.

    After an error the server skips what follows until the next `sync`, which raises the error.
    """

    def __init__(self, connection: StoreConnection) -> None:
        self._pgconn = connection.pgconn
        self._statements = connection.statements
        self._prepares = not connection.is_pooled
        self._expected: deque[Answer | tuple[bytes, tuple[int, ...], bytes]] = deque()
        """What each result to come belongs to: an Answer, or a statement that is being prepared."""
        self._failed: psycopg.Error | None = None
        """The first error since the last sync."""

    def __enter__(self) -> Self:
        self._pgconn.enter_pipeline_mode()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pgconn.status == pq.ConnStatus.BAD:
            return
        try:
            if self._expected:
                self.sync()
            self._pgconn.exit_pipeline_mode()
        except psycopg.Error:
            if self._pgconn.status != pq.ConnStatus.BAD and not self._expected:
                self._pgconn.exit_pipeline_mode()
            if error is None:
                raise

    def send(self, sql: str, params: Params = None) -> Answer:
        """Puts a statement on its way; `params` are for `%(name)s` or `%s` in its text."""
        answer = Answer()
        if params is None:
            self._send(sql.encode(), None, (), None)
        else:
            query, names = _compiled(sql)
            values = [params[name] for name in names] if isinstance(params, Mapping) else params
            adapters = self._statements.adapters
            dumped = adapters.dump_sequence(values, [PyFormat.AUTO] * len(values))
            self._send(query, dumped, adapters.types or (), adapters.formats)
            if sum([len(value) for value in dumped if value is not None]) > FLUSH_BYTES:
                self._pgconn.flush()
        self._expected.append(answer)
        return answer

    def _send(
        self, query: bytes, values: Sequence[Any] | None, types: tuple[int, ...], formats: Sequence[Any] | None
    ) -> None:
        pgconn = self._pgconn
        name = self._prepared(query, types) if self._prepares else None
        if name is not None:
            pgconn.send_query_prepared(name, values, param_formats=formats)
        else:
            pgconn.send_query_params(query, values, param_types=types or None, param_formats=formats)

    def _prepared(self, query: bytes, types: tuple[int, ...]) -> bytes | None:
        """The name under which the server knows the statement; None for one that is sent too seldom."""
        statements, key = self._statements, (query, types)
        uses = statements.uses.get(key, 0) + 1
        if uses == 1 and len(statements.uses) >= STATEMENTS_MAX:
            self._forget_oldest()
        statements.uses[key] = uses
        statements.uses.move_to_end(key)
        name = statements.prepared.get(key)
        if name is not None or uses < PREPARE_AFTER:
            return name
        statements.count += 1
        name = b"holdbeat_%d" % statements.count
        self._pgconn.send_prepare(name, query, types or None)
        self._expected.append((query, types, name))
        return name

    def _forget_oldest(self) -> None:
        key, _ = self._statements.uses.popitem(last=False)
        name = self._statements.prepared.pop(key, None)
        if name is not None:
            self._pgconn.send_query_params(b"DEALLOCATE " + name, None)
            self._expected.append(Answer())

    def sync(self) -> None:
        """Waits for the answers to all that was sent; raises the first error among them."""
        end = self.send_sync()
        poller = select.poll()
        poller.register(self._pgconn.socket, _READABLE)
        while self.flush():
            poller.modify(self._pgconn.socket, _READABLE | select.POLLOUT)
            poller.poll()
            self._pgconn.consume_input()
        poller.modify(self._pgconn.socket, _READABLE)
        while not self.receive(end):
            poller.poll()
            self._pgconn.consume_input()
        if end.error is not None:
            raise end.error

    def send_sync(self) -> Answer:
        """Marks the end of what belongs together; its answer has the first error among it."""
        self._pgconn.pipeline_sync()
        end = Answer()
        self._expected.append(end)
        return end

    def flush(self) -> bool:
        """Hands to the kernel what it takes; whether something is left."""
        return bool(self._pgconn.flush())

    def receive(self, end: Answer) -> bool:
        """Takes what has arrived; whether `end`, the answer to a sync, was among it."""
        pgconn = self._pgconn
        gaps = 0
        while not end.is_there:
            if pgconn.is_busy():
                return False
            result = pgconn.get_result()
            if result is None:
                # One follows the results of each statement; several in a row come from a connection that is lost.
                gaps += 1
                if gaps > 2:
                    raise psycopg.OperationalError("the connection was lost while answers were waited for")
                continue
            gaps = 0
            self._take(result)
        return True

    def _take(self, result: PGresult) -> None:
        expected = self._expected.popleft()
        match result.status:
            case pq.ExecStatus.TUPLES_OK:
                assert isinstance(expected, Answer)
                adapters = self._statements.adapters
                adapters.set_pgresult(result)
                expected.rows = adapters.load_rows(0, result.ntuples, tuple)
                adapters.set_pgresult(None)
            case pq.ExecStatus.COMMAND_OK:
                if isinstance(expected, tuple):
                    query, types, name = expected
                    self._statements.prepared[query, types] = name
            case pq.ExecStatus.PIPELINE_SYNC:
                assert isinstance(expected, Answer)
                expected.error, self._failed = self._failed, None
                expected.is_there = True
            case pq.ExecStatus.PIPELINE_ABORTED | pq.ExecStatus.EMPTY_QUERY:
                pass
            case _:
                self._failed = self._failed or error_from_result(result)
