"""A write and a claim that take nothing: they show whether the store can do its work (API-05)."""

from __future__ import annotations

from holdbeat.domain.clock import iso
from holdbeat.domain.concurrency import PolicyKind
from holdbeat.store.meta import remember
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.transaction import Transaction


def write_and_claim(tx: Transaction) -> int:
    """Writes the instant of the probe over that of the one before, then goes the way of a claim without a free slot.

    It sees what is ready, locks the pools and counts the leases, and returns their number.
    """
    remember(tx, "readiness", iso(tx.now))
    claim(tx, Vacancy("readiness-probe", ()))
    policy = tx.terms.concurrency
    if policy.kind is not PolicyKind.UNLIMITED:
        names = ("*",) if policy.kind is PolicyKind.GLOBAL else tuple(policy.slots)
        tx.lock_pools({f"pool:{name}" for name in names})
    row = tx.one("SELECT count(*) FROM leases")
    return int(row[0]) if row else 0
