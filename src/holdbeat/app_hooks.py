"""Hooks of an App around its jobs: startup and shutdown of a worker, and middleware of each run (FRM-04)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdbeat.engine.service import Service
from holdbeat.engine.worker_hooks import WorkerHooks
from holdbeat.handlers.middleware import Middleware, as_middleware
from holdbeat.store.adapter import PersistenceAdapter

F = TypeVar("F", bound=Callable[..., Any])


class AppHooks:
    """The part of an App that registers hooks."""

    def __init__(self) -> None:
        super().__init__()
        self._on_startup: list[Callable[[], Any]] = []
        self._on_shutdown: list[Callable[[], Any]] = []
        self._middleware: list[Middleware] = []

    def on_startup(self, function: F) -> F:
        """Registers a function, async or plain, that each worker process calls before it claims its first job.

        If it raises, the worker does not start.
        """
        self._on_startup.append(function)
        return function

    def on_shutdown(self, function: F) -> F:
        """Registers a function, async or plain, that each worker process calls after its last job; last comes first."""
        self._on_shutdown.append(function)
        return function

    def middleware(self, function: F) -> F:
        """Registers a function of the Context that yields once: around each run, direct requests included.

        The first that is registered is the outermost. It may be async. It runs where the handler runs: in its event
        loop, its thread or its process.
        """
        self._middleware.append(as_middleware(function))
        return function

    def hook_services(self, store: PersistenceAdapter) -> list[Service]:
        """The services that a worker of this App starts for its hooks."""
        if not self._on_startup and not self._on_shutdown:
            return []
        return [WorkerHooks(store, self._on_startup, self._on_shutdown)]
