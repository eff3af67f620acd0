"""The terms that the workers of a store go by, kept in the store for whoever only looks at it.

Guards the truth of explanations: a command line on another machine, with other settings or none, counts slots as those
do who hand them out.
"""

from __future__ import annotations

import json

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import SettingsError
from holdbeat.store.transaction import StoreTerms, Transaction

_KEY = "terms"


def note_terms(tx: Transaction, *, works: bool) -> None:
    """Keeps this process's own terms. One that runs no jobs does so only where nobody else does run any."""
    if not works and _has_working_worker(tx):
        return
    value = json.dumps({"concurrency": str(tx.terms.concurrency), "aging_s": tx.terms.aging_s})
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=_KEY,
        value=value,
    )


def terms_in_force(tx: Transaction) -> StoreTerms:
    """The terms that were kept last; this process's own where there are none that it understands."""
    row = tx.one("SELECT value FROM meta WHERE key = :key", key=_KEY)
    if row is None:
        return tx.terms
    try:
        kept = json.loads(row[0])
        return StoreTerms(tx.terms.ids, ConcurrencyPolicy.parse(kept["concurrency"]), float(kept["aging_s"]))
    except (ValueError, KeyError, TypeError, SettingsError):
        # Written by a later version, or by hand.
        return tx.terms


def _has_working_worker(tx: Transaction) -> bool:
    return (
        tx.one(
            "SELECT 1 FROM workers WHERE stopped_at IS NULL AND expires_at > :now AND (slots > 0 OR http_slots > 0) "
            "LIMIT 1",
            now=tx.now,
        )
        is not None
    )
