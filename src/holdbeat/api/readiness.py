"""Readiness as a probe: what a server says it can do, it has just done (API-05)."""

from __future__ import annotations

import asyncio
from typing import Any

from holdbeat.api.service import Service
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import HoldbeatError
from holdbeat.store.transaction import Transaction
from holdbeat.store.verbs.claim import Vacancy, claim

PATIENCE_S = 10.0
MOST_LAG_S = 60.0


async def readiness(service: Service) -> dict[str, dict[str, Any]]:
    """Each check with its verdict and a sentence."""
    checks = {
        "server": _check(not service.is_stopping and not service.supervisor.is_stopping, "serving", "shutting down"),
        "store": await _write_and_claim(service),
    }
    if checks["store"]["ok"]:
        checks["trigger"] = await _trigger(service)
    checks["dispatcher"] = _dispatcher(service)
    return checks


def _check(ok: bool, good: str, bad: str, **more: Any) -> dict[str, Any]:
    return {"ok": ok, "detail": good if ok else bad, **more}


async def _write_and_claim(service: Service) -> dict[str, Any]:
    started = service.store.clock.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await service.store.write(_probe, service.supervisor.worker.id)
    except TimeoutError:
        return _check(False, "", f"a write did not end within {PATIENCE_S:g} s")
    except HoldbeatError as error:
        return _check(False, "", error.detail)
    took = round(service.store.clock.monotonic() - started, 4)
    return _check(True, "a write and a claim went through", "", took_s=took)


def _probe(tx: Transaction, worker_id: str) -> None:
    """A write, and a claim for a worker without slots: it looks at everything and takes nothing."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES ('ready_probe', :at) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        at=iso(tx.now),
    )
    claim(tx, Vacancy(worker_id=worker_id, slots=[]))


async def _trigger(service: Service) -> dict[str, Any]:
    lag_s = await service.store.read(_lag_s)
    return _check(
        lag_s <= MOST_LAG_S,
        "schedules fire on time",
        f"a schedule has been due for {lag_s:g} s",
        lag_s=lag_s,
    )


def _lag_s(tx: Transaction) -> float:
    """How long the schedule that should have been looked at first has been waiting for it."""
    row = tx.one("SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL AND wake_at <= :now", now=tx.now)
    due = tx.time(row[0]) if row and row[0] is not None else None
    return 0.0 if due is None else round((tx.now - due).total_seconds(), 3)


def _dispatcher(service: Service) -> dict[str, Any]:
    """Whether the worker beside this server still gives signs of life."""
    supervisor = service.supervisor
    if not supervisor.worker.slots and not supervisor.worker.http_slots:
        return _check(True, "this server has no worker of its own", "")
    if supervisor.heartbeat.last_beat_at is None:
        return _check(True, "its first beat is still to come", "")
    age_s = service.store.clock.monotonic() - supervisor.heartbeat.last_beat_at
    most_s = service.settings.heartbeat_s * 2 + 5
    return _check(age_s <= most_s, "beating", f"the last beat was {age_s:.1f} s ago", age_s=round(age_s, 3))
