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
       (SELECT string_agg(attrelid::regclass::text || attname, ',' ORDER BY attrelid::regclass::text, attnum)
        FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND attnum > 0),
       (SELECT string_agg(tgname || tgenabled::text, ',' ORDER BY tgname) FROM pg_trigger),
       (SELECT string_agg(version || checksum, ',' ORDER BY version) FROM schema_migrations)
"""


class Databases:
    """Clean, migrated databases on one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        first = server.create_database()
        open_at(first, clock=ManualClock()).close()
        self.template = urlsplit(first).path.lstrip("/")
        with psycopg.connect(first) as connection:
            self._fingerprint = connection.execute(_FINGERPRINT).fetchone()
            self._kept = set(self._tables_with_rows(connection))
        self._clean: list[str] = []

    def take(self) -> str:
        """The URL of a database as new."""
        self._server.start()
        return self._clean.pop() if self._clean else self._server.create_database(template=self.template)

    def give_back(self, url: str) -> None:
        """Makes a database as new, or drops it if that cannot be done."""
        self._server.start()
        try:
            whole = self._wipe(url)
        except psycopg.Error:
            whole = False
        if whole:
            self._clean.append(url)
        else:
            self._server.drop_database(url)

    def _wipe(self, url: str) -> bool:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if connection.execute(_FINGERPRINT).fetchone() != self._fingerprint:
                return False
            used = [name for name in self._tables_with_rows(connection) if name not in self._kept]
            if used:
                tables = sql.SQL(", ").join(map(sql.Identifier, used))
                connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(tables))
            drawn = connection.execute("SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL")
            for (name,) in drawn.fetchall():
                connection.execute(sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(name)))
        return True

    @staticmethod
    def _tables_with_rows(connection: psycopg.Connection[tuple[str]]) -> list[str]:
        names = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        asked = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {} WHERE EXISTS (SELECT 1 FROM {})").format(sql.Literal(name), sql.Identifier(name))
            for name in names
        )
        return [row[0] for row in connection.execute(asked)]
