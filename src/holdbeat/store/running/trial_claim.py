"""A write and a claim that take nothing: they show whether the store can do its work (API-05)."""

from __future__ import annotations

from holdbeat.domain.clock import iso
from holdbeat.store import meta
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.transaction import Transaction


def write_and_claim(tx: Transaction) -> int:
    """Writes the instant of the probe over that of the one before, then goes the way of a claim without a free slot.

    It sees what is ready, locks the pools and counts the leases, and returns their number.
    """
    meta.put(tx, "readiness", iso(tx.now))
    claim(tx, Vacancy("readiness-probe", ()))
    tx.lock_pools({f"limit:{limit.name}" for limit in limits_in_force(tx)})
    row = tx.one("SELECT count(*) FROM leases")
    return int(row[0]) if row else 0
