"""A cycle of the dispatcher: what has ended is settled and what is free is filled, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.lease import Claim, Settlement
from holdbeat.store.running.claim import Vacancy, fill
from holdbeat.store.running.settle import Settled, settle
from holdbeat.store.transaction import Transaction


@dataclass(slots=True)
class SettledAndClaimed:
    settled: list[Settled]
    claims: list[Claim]
    next_ready_at: datetime | None = None
    """When the first delayed job will be ready, or a rate permits the next start; None if the vacancy was filled."""


def settle_and_claim(tx: Transaction, settlements: Sequence[Settlement], vacancy: Vacancy | None) -> SettledAndClaimed:
    """Settles, then claims: the freed slots are filled again without a second commit.

    Guarantees what `settle` and `claim` guarantee; all of it is stored, or none.
    """
    settled = settle(tx, settlements) if settlements else []
    if vacancy is None:
        return SettledAndClaimed(settled, [])
    filled = fill(tx, vacancy)
    claims = filled.claims
    if len(claims) >= len(vacancy.slots):
        return SettledAndClaimed(settled, claims)
    return SettledAndClaimed(settled, claims, filled.next_ready_at)
