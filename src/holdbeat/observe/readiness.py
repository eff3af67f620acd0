"""Readiness: whether work gets done here, found out by doing some (API-05).

Guards against a server that answers but cannot work: the probe writes to the store and goes the way of a claim, within
a time limit. It leaves nothing behind: one row is written over and over, and the trial claim takes no job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdbeat.domain.errors import HoldbeatError
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.gauges import trigger_lag_s
from holdbeat.store.running.trial_claim import write_and_claim

WITHIN_S = 10.0
TRIGGER_LAG_MAX_S = 60.0
"""Later than this a due time no longer simply fires."""
Check = dict[str, Any]
DispatcherBeat = Callable[[], float | None]
"""Seconds for which a cycle of the dispatcher has been due; None where this process has no dispatcher."""


class Readiness:
    def __init__(
        self,
        store: PersistenceAdapter,
        *,
        dispatcher_beat: DispatcherBeat = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
        within_s: float = WITHIN_S,
    ) -> None:
        self._store = store
        self._dispatcher_beat = dispatcher_beat
        self._is_stopping = is_stopping
        self._within_s = within_s
        self._under_way: asyncio.Task[dict[str, Any]] | None = None

    async def probe(self) -> dict[str, Any]:
        """{ready, checks: {server, store, trigger, dispatcher}}; a check is {ok, detail, …}.

        Requests during a probe share its answer, so that many requests are not a load.
        """
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._probe())
            self._under_way.add_done_callback(self._done)
        return await asyncio.shield(self._under_way)

    def _done(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._under_way = None

    async def _probe(self) -> dict[str, Any]:
        store = self._store
        checks = {"server": _check(not self._is_stopping(), "It serves.", "It is shutting down.")}
        checks["store"], _ = await self._timed("A write and a trial claim", lambda: store.write(write_and_claim))
        checks["trigger"], lag_s = await self._timed("A look at the schedules", lambda: store.read(trigger_lag_s))
        if lag_s is not None:
            late = f"A schedule has been due for {lag_s:.1f} s."
            checks["trigger"] = _check(lag_s <= TRIGGER_LAG_MAX_S, "Schedules fire on time.", late, lag_s=lag_s)
        checks["dispatcher"] = self._dispatcher()
        return {"ready": all(check["ok"] for check in checks.values()), "checks": checks}

    def _dispatcher(self) -> Check:
        behind_s = self._dispatcher_beat()
        if behind_s is None:
            return _check(True, "It has nothing to claim or settle.", "", behind_s=None)
        late = f"The dispatcher's next cycle is {behind_s:.1f} s late."
        return _check(behind_s <= self._within_s, "It claims and settles in time.", late, behind_s=round(behind_s, 3))

    async def _timed(self, what: str, act: Callable[[], Awaitable[Any]]) -> tuple[Check, Any]:
        clock = self._store.clock
        began = clock.monotonic()
        error: str | None = None
        result = None
        try:
            async with asyncio.timeout(self._within_s):
                result = await act()
        except TimeoutError:
            error = f"{what} was not done within {self._within_s:g} s."
        except HoldbeatError as refused:
            # The message may name hosts and files, and every key may ask for a probe, so only the code is shown.
            error = f"{what} failed: {refused.code}."
        took_s = round(clock.monotonic() - began, 4)
        return _check(error is None, f"{what} took {took_s:g} s.", error or "", took_s=took_s), result


def _check(ok: bool, good: str, bad: str, **figures: Any) -> Check:
    return {"ok": ok, "detail": good if ok else bad, **figures}
