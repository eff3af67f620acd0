"""Databases for tests: used, wiped and used again, because a new one for each test costs more than the test.

A database whose schema a test has touched is dropped instead.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from holdbeat.domain.clock import ManualClock
from tests.conformance.acts import open_at
from tests.postgres import PostgresServer

_FINGERPRINT = """
SELECT (SELECT string_agg(relname || relkind::text, ',' ORDER BY relname)
        FROM pg_class WHERE relnamespace = 'public'::regnamespace),
       (SELECT string_agg(c.relname || attname, ',' ORDER BY c.relname, attnum)
        FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND attnum > 0),
       (SELECT string_agg(tgname || tgenabled::text, ',' ORDER BY tgname) FROM pg_trigger),
       (SELECT string_agg(version || checksum, ',' ORDER BY version) FROM schema_migrations)
"""
_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# A table has no pages before its first row and none after TRUNCATE.
_WRITTEN_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
"""
_USED_SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL"


class Databases:
    """Clean, migrated databases on one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        first = server.create_database()
        open_at(first, clock=ManualClock()).close()
        self.template = urlsplit(first).path.lstrip("/")
        with psycopg.connect(first) as connection:
            self._fingerprint = connection.execute(_FINGERPRINT).fetchone()
            self._kept = {name for (name,) in connection.execute(_WRITTEN_TABLES)}
        self._clean: list[str] = []
        self._connections: dict[str, psycopg.Connection[tuple[str]]] = {}
        """One for each database, which wipes it: a new one reads the catalog anew, and that is most of the work."""

    def take(self) -> str:
        """The URL of a database as new."""
        self._server.start()
        return self._clean.pop() if self._clean else self._server.create_database(template=self.template)

    def give_back(self, url: str) -> None:
        """Makes a database as new, or drops it if that cannot be done."""
        self._server.start()
        try:
            is_clean = self._wipe(url)
        except psycopg.Error:
            is_clean = False
        if is_clean:
            self._clean.append(url)
        else:
            self._disconnect(url)
            self._server.drop_database(url)

    def close(self) -> None:
        for url in list(self._connections):
            self._disconnect(url)

    def _wipe(self, url: str) -> bool:
        connection = self._connection(url)
        connection.execute(_END_OTHERS)
        if connection.execute(_FINGERPRINT).fetchone() != self._fingerprint:
            return False
        written = [name for (name,) in connection.execute(_WRITTEN_TABLES) if name not in self._kept]
        if written:
            tables = sql.SQL(", ").join(map(sql.Identifier, written))
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(tables))
        for (name,) in connection.execute(_USED_SEQUENCES).fetchall():
            connection.execute(sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(name)))
        return True

    def _connection(self, url: str) -> psycopg.Connection[tuple[str]]:
        """The connection to the database; a new one if the test has ended it, with the server or by itself."""
        connection = self._connections.get(url)
        if connection is not None:
            try:
                connection.execute("SELECT 1")
                return connection
            except psycopg.OperationalError:
                self._disconnect(url)
        connection = self._connections[url] = psycopg.connect(url, autocommit=True, connect_timeout=10)
        return connection

    def _disconnect(self, url: str) -> None:
        if connection := self._connections.pop(url, None):
            connection.close()
