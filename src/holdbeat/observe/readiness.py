"""Readiness: whether work gets done here, found out by doing some (API-05).

Guards against a server that answers but cannot work: the probe writes to the store and goes the way of a claim, within
a time limit. It leaves nothing behind: one row is written over and over, and the trial claim takes no job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.concurrency import PolicyKind
from holdbeat.domain.errors import HoldbeatError
from holdbeat.observe.store_gauges import trigger_lag_s
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from holdbeat.store.verbs.claim import Vacancy, claim

WITHIN_S = 10.0
TRIGGER_LAG_MAX_S = 60.0
"""Later than this a due time no longer simply fires."""
FRESH_S = 1.0
"""An answer is good for so long, so that many who ask do not become a load."""

DispatcherBeat = Callable[[], float | None]
"""Seconds for which the dispatcher has owed a turn; None where this process has no dispatcher."""


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
        self._turn = asyncio.Lock()
        self._kept: dict[str, Any] | None = None
        self._kept_at = 0.0

    async def probe(self) -> dict[str, Any]:
        """{ready, checks: {store_write, claim, trigger, dispatcher, shutdown}}; each check has `ok` and its figures."""
        async with self._turn:
            now = self._store.clock.monotonic()
            if self._kept is None or now - self._kept_at >= FRESH_S:
                self._kept = await self._probe()
                self._kept_at = self._store.clock.monotonic()
            return self._kept

    async def _probe(self) -> dict[str, Any]:
        store = self._store
        checks: dict[str, dict[str, Any]] = {}
        checks["store_write"], _ = await self._timed(lambda: store.write(write_mark))
        checks["claim"], _ = await self._timed(lambda: store.write(trial_claim))
        trigger, lag_s = await self._timed(lambda: store.read(trigger_lag_s))
        if lag_s is not None:
            trigger |= {"ok": lag_s <= TRIGGER_LAG_MAX_S, "lag_s": round(lag_s, 3)}
        checks["trigger"] = trigger
        owed_s = self._dispatcher_beat()
        checks["dispatcher"] = {
            "ok": owed_s is None or owed_s <= self._within_s,
            "behind_s": None if owed_s is None else round(owed_s, 3),
        }
        checks["shutdown"] = {"ok": not self._is_stopping()}
        return {"ready": all(check["ok"] for check in checks.values()), "checks": checks}

    async def _timed(self, act: Callable[[], Awaitable[Any]]) -> tuple[dict[str, Any], Any]:
        clock = self._store.clock
        began = clock.monotonic()
        error: str | None = None
        result = None
        try:
            async with asyncio.timeout(self._within_s):
                result = await act()
        except TimeoutError:
            error = f"It was not done within {self._within_s:g} s."
        except HoldbeatError as refused:
            # The sentence may name hosts and files; a probe is open to everyone, so it says the code alone.
            error = refused.code
        took_s = round(clock.monotonic() - began, 4)
        check: dict[str, Any] = {"ok": error is None, "took_s": took_s}
        if error is not None:
            check["error"] = error
        return check, result


def write_mark(tx: Transaction) -> None:
    """Writes the instant of the probe over that of the one before."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES ('readiness', :at) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        at=iso(tx.now),
    )


def trial_claim(tx: Transaction) -> int:
    """Goes the way of a claim without a free slot: sees what is ready, locks the pools, counts the leases."""
    claim(tx, Vacancy("readiness-probe", ()))
    policy = tx.terms.concurrency
    if policy.kind is not PolicyKind.UNLIMITED:
        names = ("*",) if policy.kind is PolicyKind.GLOBAL else tuple(policy.slots)
        tx.lock_pools({f"pool:{name}" for name in names})
    row = tx.one("SELECT count(*) FROM leases")
    return int(row[0]) if row else 0
