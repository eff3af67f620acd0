"""The ageing of waiting jobs, as the workers of a store have it: kept in the store for processes that only read.

Guards the truth of explanations: a command line on another machine, with other settings or none, goes by what those go
by who hand out the slots. Limits have rows of their own.
"""

from __future__ import annotations

import json

from holdbeat.store import meta
from holdbeat.store.transaction import StoreTerms, Transaction

_KEY = "terms"


def note_terms(tx: Transaction, *, works: bool) -> None:
    """Keeps this process's own terms. One that runs no jobs does so only where nobody has."""
    if works or meta.get(tx, _KEY) is None:
        meta.put(tx, _KEY, json.dumps({"aging_s": tx.terms.aging_s}))


def terms_in_force(tx: Transaction) -> StoreTerms:
    """The terms that were kept last; this process's own where there are none that it understands."""
    try:
        aging_s = float(json.loads(meta.get(tx, _KEY) or "{}")["aging_s"])
    except (ValueError, KeyError, TypeError):
        # Nobody wrote any yet; or a later version did, or somebody by hand.
        return tx.terms
    return StoreTerms(tx.terms.ids, tx.terms.limits, aging_s, tx.terms.direct_burst)
