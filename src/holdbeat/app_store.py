"""The store of an App: opened when it is needed, told the App's job types, left to the parent after a fork."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Self

from holdbeat.app_hooks import AppHooks
from holdbeat.domain.clock import Clock
from holdbeat.domain.errors import SettingsError
from holdbeat.domain.ids import IdSource
from holdbeat.domain.policy import Policy
from holdbeat.engine.supervisor import Supervisor, announcement
from holdbeat.engine.watched_outbound import WatchedOutbound
from holdbeat.handlers.http import http_job_type
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.middleware import attach
from holdbeat.handlers.shell import shell_job_type
from holdbeat.job_type_registry import JobTypeRegistry
from holdbeat.pending_job import CallOptions
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.opening import open_store
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.transaction import StoreTerms

CLOSE_WITHIN_S = 10.0
"""How long `close` waits for a thread that is opening the store or announcing job types there."""


class AppStore(AppHooks, JobTypeRegistry):
    """The part of an App that owns its settings and its open store."""

    def __init__(
        self,
        store: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        policy: Policy | None = None,
        **changes: Any,
    ) -> None:
        super().__init__()
        if settings is None:
            settings = Settings.load()
        if store is not None:
            changes["store"] = store
        self.settings = settings.with_changes(**changes) if changes else settings
        if policy is not None:
            self.settings = self.settings.with_changes(limits={**policy.limits(), **self.settings.limits})
        self.policy = policy
        self._clock = clock
        self._store: PersistenceAdapter | None = None
        self._is_announced = False
        self._pid = os.getpid()
        self._supervisor: Supervisor | None = None
        self._options = CallOptions()

    def take_flags(self, flags: Mapping[str, Any]) -> None:
        """Replaces settings by those of a command line, which the module of the App may have used already."""
        settings = self.settings.with_flags(flags)
        if self._store is not None:
            if settings.store != self.settings.store:
                raise SettingsError(
                    "The module of this App opens the store that it names in code while it is imported, for example "
                    "to declare a schedule, so --store comes too late. Name the store in one place.",
                    field="store",
                )
            self._store.terms.limits = settings.declared_limits
        self.settings = settings

    @property
    def job_types(self) -> list[JobType]:
        """All job types that this App can run, with the built-in ones."""
        outbound = WatchedOutbound(self.settings, lambda: self._origin.store)
        distinct = list({id(job_type): job_type for job_type in self._types.values()}.values())
        built_in = [http_job_type(outbound)]
        if self.settings.allow_shell:
            built_in.append(shell_job_type())
        return distinct + built_in

    def _types_changed(self, added: JobType) -> None:
        self._is_announced = False
        if added.function is not None:
            attach(added.function, self._middleware)

    @property
    def store(self) -> PersistenceAdapter:
        """The open store, in which the job types of this App are announced."""
        app = self._in_this_process()
        with app._lock:
            store = app._opened()
            if not app._is_announced:
                store.write_sync(announce, app._announcements())
                app._is_announced = app._store is store
            return store

    async def _store_for_loop(self) -> PersistenceAdapter:
        """`store`, got ready in a thread: opening it and announcing job types wait for the database."""
        app = self._in_this_process()
        if app._store is not None and app._is_announced:
            return app._store
        return await asyncio.to_thread(lambda: app.store)

    def _in_this_process(self) -> Self:
        """The App itself, in its own process: a forked child leaves the store to its parent and opens one anew."""
        app = self._origin
        if app._pid != os.getpid():
            app._pid = os.getpid()
            app._lock = threading.RLock()
            app._store = None
            app._is_announced = False
            app._supervisor = None
        return app

    @property
    def _origin(self) -> Self:
        original: Self = self.__dict__.get("_original", self)
        return original

    def _opened(self) -> PersistenceAdapter:
        if self._store is None:
            settings = self.settings
            terms = StoreTerms(IdSource(), settings.declared_limits, settings.aging_s, settings.direct_burst)
            terms.policy = self.policy
            self._store = open_store(self.settings.store, terms, clock=self._clock)
        return self._store

    def _announcements(self) -> list[AnnouncedType]:
        return [announcement(job_type) for job_type in self.job_types]

    def _joining(self, connection: Any) -> PersistenceAdapter:
        """The store, its job types made known inside the caller's transaction: one beside it would wait for its end."""
        app = self._in_this_process()
        with app._lock:
            store = app._opened()
            if not app._is_announced:
                announce(store.joined(connection), app._announcements())
            return store

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """A transaction on the store's own database, for tables of yours: an apsw or a psycopg connection.

        Committed when the block ends, rolled back if it ends with an exception. Hand it to
        `with_options(connection=…)`, and the jobs are stored in the same transaction.
        """
        with self.store.connection() as connection:
            yield connection

    def close(self) -> None:
        """Closes the store; it is opened again when it is needed."""
        app = self._in_this_process()
        if app is not self:
            return app.close()
        # Not for ever: the thread that holds it may wait for a store that does not answer.
        is_locked = self._lock.acquire(timeout=CLOSE_WITHIN_S)
        try:
            store, self._store = self._store, None
            self._is_announced = False
            if store is not None:
                store.close()
        finally:
            if is_locked:
                self._lock.release()
