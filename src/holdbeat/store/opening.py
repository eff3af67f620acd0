"""Opening a Store from its address: SQLite from a file, PostgreSQL from a URL."""

from __future__ import annotations

from holdbeat.domain.clock import Clock
from holdbeat.domain.store_url import driver_missing, not_understood
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import StoreTerms


def sqlite_path(url: str) -> str | None:
    """The file that the address names; None if it names no SQLite file."""
    if url.startswith("sqlite:///"):
        return url[len("sqlite:///") :] or None
    if url == ":memory:" or "://" not in url:
        return url
    return None


def open_store(url: str, terms: StoreTerms, *, clock: Clock | None = None, create: bool = True) -> PersistenceAdapter:
    """Opens the store of a path, `sqlite:///file.db` or `postgresql://…`, and brings its schema up to date."""
    path = sqlite_path(url)
    if path is not None:
        from holdbeat.store.sqlite.store import SqliteStore

        try:
            return SqliteStore(path, terms, clock=clock, create=create)
        except OSError as error:
            from holdbeat.store.sqlite.errors import translated_os

            raise translated_os(error, path) from error
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from holdbeat.store.postgres.store import PostgresStore
        except ImportError as error:
            raise driver_missing() from error
        return PostgresStore(url, terms, clock=clock, create=create)
    raise not_understood(url)
