"""WAIT-03: a chain whose runs end again and again while somebody waits for their locks is still found unfinished."""

from __future__ import annotations

import pytest

from holdbeat.domain.job import Hold
from holdbeat.domain.run import Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.running.settle import settle
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import change, claim_one, enqueue_one, look, open_at, rows, settle_as, settlement
from tests.conformance.races import HeldOpen, in_background
from tests.waiting import eventually

WAITING = Outcome.continued((Wait(WaitKind.SIGNAL, "$signal:go", name="go", number=1),))
IS_BLOCKED = (
    "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND datname = current_database()"
)


def lock(tx: Transaction, job_id: str) -> None:
    tx.rows("SELECT id FROM jobs WHERE id = :id FOR UPDATE", id=job_id)


@pytest.mark.rule("WAIT-03", "WAIT-04")
def test_a_signal_finds_a_chain_whose_runs_end_at_each_look(postgres_url: str) -> None:
    stores = [open_at(postgres_url) for _ in range(4)]
    store, *others = stores
    first = enqueue_one(store)
    settle_as(store, claim_one(store), WAITING)

    def claim_tip() -> tuple[str, HeldOpen]:
        """The run of the newest job, about to end with another wait."""
        tip = store.read_sync(tip_of, first.id)
        change(store, "UPDATE jobs SET hold = 0 WHERE id = :id", id=tip)
        taken = claim_one(store)
        assert taken.lease.job_id == tip
        return tip, HeldOpen(others[len(ends)], settle, [settlement(taken, WAITING)])

    ends: list[HeldOpen] = []
    # A second unfinished job of the chain, after the first one in the order of the locks.
    _, ending = claim_tip()
    ends.append(ending)
    second = enqueue_one(store)
    change(store, "UPDATE jobs SET root_id = :root WHERE id = :id", root=first.id, id=second.id)
    with ending, HeldOpen(others[2], lock, second.id) as held:
        sending = in_background(lambda: open_at(postgres_url).write_sync(send_signal, first.id, "go"))
        eventually(lambda: rows(store, IS_BLOCKED))
        ending.commit()
        tip, ending_again = claim_tip()
        with ending_again:
            held.commit()
            eventually(lambda: rows(store, IS_BLOCKED))
            ending_again.commit()
    assert sending.result(30).number == 1
    assert look(store, tip).continued_by == store.read_sync(tip_of, first.id)
    assert look(store, store.read_sync(tip_of, first.id)).hold is Hold.READY, "its wait is over"
    for opened in stores:
        opened.close()
