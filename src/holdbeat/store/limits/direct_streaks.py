"""Direct requests in a row: after `direct_burst` of them a waiting job has the next slot of the limit (LIM-08).

Nothing of this is read or written while `direct_burst` is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from holdbeat.domain.limit import Limits
from holdbeat.store.transaction import Transaction

Kind = tuple[str, str]
"""Resource and type."""


def queue_turns(tx: Transaction, limits: Limits, lanes: Iterable[Kind], waiting: Collection[Kind]) -> set[str]:
    """The keys of the limits for which direct requests wait, and of which a job has the next slot."""
    keys = {pool.key for kind in waiting for pool in limits.covering(*kind) if pool.limit.slots is not None}
    keys &= {pool.key for lane in lanes for pool in limits.covering(*lane)}
    if not keys:
        return set()
    rows = tx.rows(
        "SELECT key FROM direct_streaks WHERE key IN :keys AND length >= :burst",
        keys=sorted(keys),
        burst=tx.terms.direct_burst,
    )
    return {row[0] for row in rows}


def keep_streaks(tx: Transaction, limits: Limits, served: Collection[Kind], started: Iterable[Kind]) -> None:
    """Counts the direct requests that got a slot, and begins anew where a job did. The limits are locked."""
    jobs = {pool.key for kind in started for pool in limits.covering(*kind)}
    if jobs:
        tx.execute("UPDATE direct_streaks SET length = 0 WHERE key IN :keys AND length > 0", keys=sorted(jobs))
    granted = Counter(pool.key for kind in served for pool in limits.covering(*kind) if pool.key not in jobs)
    if granted:
        tx.execute(
            "INSERT INTO direct_streaks (key, length) SELECT r.key, r.length "
            "FROM rows(:rows; key text, length int) AS r WHERE true "
            "ON CONFLICT (key) DO UPDATE SET length = direct_streaks.length + excluded.length",
            rows=sorted(granted.items()),
        )
