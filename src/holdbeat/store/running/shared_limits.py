"""The terms that the workers of a store go by, kept in the store for whoever only looks at it.

Guards the truth of explanations: a command line on another machine, with other settings or none, counts slots as those
do who hand them out.
"""

from __future__ import annotations

import json
from typing import Any

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import SettingsError
from holdbeat.store.meta import recall, remember
from holdbeat.store.running.workers import live_workers
from holdbeat.store.transaction import StoreTerms, Transaction

_KEY = "terms"


def note_terms(tx: Transaction, worker_id: str, *, works: bool) -> None:
    """Keeps this process's own terms. One that runs no jobs does so only where nobody else does run any."""
    tx.lock_pools(["terms"])
    others = {each: policy for each, policy in policies_of_workers(tx).items() if each != worker_id}
    if not works and others:
        return
    mine = str(tx.terms.concurrency)
    kept = {
        "concurrency": mine,
        "aging_s": tx.terms.aging_s,
        "workers": {**others, worker_id: mine} if works else {},
    }
    remember(tx, _KEY, json.dumps(kept))


def terms_in_force(tx: Transaction) -> StoreTerms:
    """The terms that were kept last; this process's own where there are none that it understands."""
    kept = _kept(tx)
    try:
        return StoreTerms(tx.terms.ids, ConcurrencyPolicy.parse(kept["concurrency"]), float(kept["aging_s"]))
    except (ValueError, KeyError, TypeError, SettingsError):
        # Nobody wrote any yet; or a later version did, or somebody by hand.
        return tx.terms


def policies_of_workers(tx: Transaction) -> dict[str, str]:
    """By which limits each live worker counts. They should all be the same: each counts everybody, but by its own."""
    kept = _kept(tx).get("workers")
    if not isinstance(kept, dict):
        return {}
    return {worker.id: str(kept[worker.id]) for worker in live_workers(tx) if worker.id in kept}


def disagreement(tx: Transaction) -> str | None:
    """A sentence if live workers go by different limits."""
    policies = policies_of_workers(tx)
    if len(set(policies.values())) < 2:
        return None
    said = "; ".join(f"{policy} ({worker_id})" for worker_id, policy in sorted(policies.items())[:4])
    return f"Workers go by different limits, so none of them holds: {said}. Give all of them the same concurrency."


def _kept(tx: Transaction) -> dict[str, Any]:
    text = recall(tx, _KEY)
    try:
        kept = json.loads(text) if text is not None else {}
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}
