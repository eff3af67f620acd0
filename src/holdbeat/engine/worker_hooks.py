"""WorkerHooks: functions of an App that run once when a worker starts and once when it stops (FRM-04)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from holdbeat.domain.errors import HoldbeatError
from holdbeat.engine.service import Service
from holdbeat.handlers.current_run import in_hook
from holdbeat.handlers.threads import in_own_thread
from holdbeat.store.adapter import PersistenceAdapter

log = logging.getLogger("holdbeat.engine")

Hook = Callable[[], Any]


class StartupFailed(HoldbeatError):
    """A startup function raised, so the worker does not start."""

    default_code = "startup_failed"


class WorkerHooks(Service):
    """Started after the heartbeat, so that loading may take its time, and before the first job is claimed."""

    name: ClassVar[str] = "worker-hooks"

    def __init__(self, store: PersistenceAdapter, on_startup: Sequence[Hook], on_shutdown: Sequence[Hook]) -> None:
        super().__init__(store, 0)
        self._on_startup = on_startup
        self._on_shutdown = on_shutdown
        self._is_started = False

    async def step(self) -> None:
        """There is nothing to do between start and stop."""

    async def start(self) -> None:
        for hook in self._on_startup:
            try:
                await _call(hook)
            except Exception as error:
                log.debug("the startup function %s failed", _name(hook), exc_info=True)
                raise StartupFailed(
                    f"The startup function {_name(hook)} failed, so this worker does not start: "
                    f"{type(error).__name__}: {error}"
                ) from error
        self._is_started = True

    async def stop(self) -> None:
        if not self._is_started:
            return
        self._is_started = False
        for hook in reversed(self._on_shutdown):
            try:
                await _call(hook)
            except Exception:
                log.exception("the shutdown function %s failed; the shutdown goes on", _name(hook))


async def _call(hook: Hook) -> None:
    """Awaits an async function in the event loop; calls a plain one in a thread, for it may load for long."""
    token = in_hook.set(True)
    try:
        if inspect.iscoroutinefunction(hook):
            await hook()
        else:
            await in_own_thread(hook, name="holdbeat-hook")
    finally:
        in_hook.reset(token)


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))
