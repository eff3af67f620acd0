"""Wake-ups through LISTEN and NOTIFY, off the hot path.

NOTIFY inside every transaction serialises commits, so it is sent by a thread of its own after them, many commits
in one. It is a hint: a lost connection here costs latency, never work.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import threading
from collections.abc import Callable, Iterable

import psycopg
from psycopg.pq.abc import PGconn

from holdbeat.domain.clock import SystemClock
from holdbeat.store.postgres.database import StoreConnection, connect
from holdbeat.store.postgres.pipeline import StatementPipeline
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.store")

CHANNEL = "holdbeat"
EVERY_S = 0.01
"""So long after a notification the next one waits, with all that was to be told meanwhile. Its commit is a flush of the
log, for which the commits of the work then wait: one for each job cost single enqueues half of their rate."""

NOTIFY_BEHIND = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
"""A notification behind a commit of the same session. It has a transaction id and so a commit record; nothing is lost
if that one is."""
POLL_MS = 1000
"""How often a listener looks whether its store was closed."""


class PostgresWakeups:
    def __init__(self, url: str, on_wake: Callable[[frozenset[str]], None]) -> None:
        self._url = url
        self._on_wake = on_wake
        self._me = secrets.token_hex(4)
        self._topics: set[str] = set()
        self._sent_at = 0.0
        self._monotonic = SystemClock().monotonic
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._is_listening = False
        self._is_sending = False

    def send(self, topics: frozenset[str]) -> None:
        """Wakes other processes soon."""
        with self._changed:
            self._topics |= topics
            if not self._is_sending:
                self._is_sending = True
                threading.Thread(target=self._send, name="holdbeat-wakeups", daemon=True).start()
            self._changed.notify()

    def send_yourself(self, topics: frozenset[str]) -> str | None:
        """The payload that a caller may notify on its own connection, behind its commit; None if it is too soon."""
        with self._changed:
            now = self._monotonic()
            if self._topics or now < self._sent_at + EVERY_S:
                return None
            self._sent_at = now
        return self._payload(topics)

    def _payload(self, topics: Iterable[str]) -> str:
        return f"{self._me}:{','.join(sorted(topics))}"

    def listen(self) -> None:
        """Begins to listen to other processes."""
        with self._changed:
            if self._is_listening:
                return
            self._is_listening = True
        threading.Thread(target=self._receive, name="holdbeat-listener", daemon=True).start()

    def _send(self) -> None:
        connection: StoreConnection | None = None
        while not self._closed.is_set():
            with self._changed:
                while not self._topics and not self._closed.is_set():
                    self._changed.wait()
                topics, self._topics = self._topics, set()
                self._sent_at = self._monotonic()
            if not topics:
                continue
            try:
                if connection is None or connection.closed:
                    connection = connect(self._url)
                    if not connection.is_pooled:
                        # A notification has a transaction id and so a commit record; nothing is lost if that one is.
                        connection.execute("SET synchronous_commit = off", prepare=False)
                with StatementPipeline(connection) as pipeline:
                    pipeline.send("SELECT pg_notify(%s, %s)", [CHANNEL, self._payload(topics)])
                self._closed.wait(EVERY_S)
            except psycopg.Error as error:
                if not self._closed.is_set():
                    log.warning("wake-up not sent: %s", error)
                with contextlib.suppress(psycopg.Error):
                    if connection is not None:
                        connection.close()
                connection = None
                self._closed.wait(0.5)
        if connection is not None:
            connection.close()

    def _receive(self) -> None:
        pause_s = 0.1
        while not self._closed.is_set():
            try:
                with StoreConnection.connect(
                    self._url, autocommit=True, connect_timeout=5, keepalives_idle=10
                ) as connection:
                    connection.use_transactions_only()
                    if connection.is_pooled:
                        # Another client would get the session that listens, and its notifications.
                        log.info("a connection pooler is in between: other processes are noticed by polling")
                        return
                    connection.execute(f"LISTEN {CHANNEL}")
                    pause_s = 0.1
                    self._on_wake(frozenset({Topic.RECONNECTED}))
                    poller = select.poll()
                    poller.register(connection.fileno(), select.POLLIN)
                    while not self._closed.is_set():
                        if poller.poll(POLL_MS):
                            self._pass_on(connection.pgconn)
            except psycopg.Error as error:
                if not self._closed.is_set():
                    log.warning("wake-ups are off until the database answers again: %s", error)
                    self._closed.wait(pause_s)
                    pause_s = min(pause_s * 2, 10.0)

    def _pass_on(self, pgconn: PGconn) -> None:
        """Tells the listeners of this process what others have notified."""
        pgconn.consume_input()
        while (notice := pgconn.notifies()) is not None:
            sender, _, topics = notice.extra.decode().partition(":")
            if sender != self._me:
                self._on_wake(frozenset(topics.split(",")))

    def close(self) -> None:
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
