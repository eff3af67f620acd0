"""Durable work against others at the same instant: a cancel, a lost lease, a second attempt of the same chain."""

from __future__ import annotations

from functools import partial

import pytest

from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.run import Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.steps import LeaseGone, StepEntry, keep_step
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.running.settle import Settled, settle
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_one,
    claim_some,
    count,
    enqueue_all,
    enqueue_one,
    job_of_claim,
    look,
    rows,
    settle_as,
    settlement,
)
from tests.conformance.races import HeldOpen, in_background, in_step
from tests.conformance.repair import TERMS

ROUNDS = 100
SLEEPING = Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 600.0),))
AT_ONCE = RetryPolicy(max_attempts=3, base_delay_s=0)


def running(store: PersistenceAdapter, worker: str = "w") -> list[Claim]:
    """So many jobs that run, each retried at once if its run is lost."""
    enqueue_all(store, [NewJob("noop", retry_policy=AT_ONCE) for _ in range(ROUNDS)])
    return [
        taken for first in range(0, ROUNDS, 100) for taken in claim_some(store, 100, worker=worker, first_slot=first)
    ]


def keep(store: PersistenceAdapter, taken: Claim, value: str) -> str | LeaseGone:
    lease, chain_id = taken.lease, job_of_claim(taken).chain_id
    entry = StepEntry(lease.id, lease.worker_id, lease.fence, chain_id, "crawl", value, lease.acquired_at, 0.25)
    try:
        return store.write_sync(keep_step, entry)
    except LeaseGone as error:
        return error


@pytest.mark.rule("WAIT-01", "CAN-01")
def test_a_cancel_that_meets_the_end_of_a_run_that_waits_ends_the_whole_chain(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    first = enqueue_one(store)
    taken = claim_one(store)
    with HeldOpen(store, settle, [settlement(taken, SLEEPING)]) as held:
        cancelling = in_background(lambda: cancel(other, first.id))
        held.commit()
    assert cancelling.result(30).id == look(store, first.id).continued_by
    second = enqueue_one(store)
    taken = claim_one(store)
    with HeldOpen(store, cancel_job, second.id) as held:
        ending = in_background(lambda: settle_as(other, taken, SLEEPING))
        held.commit()
    assert ending.result(30) is Settled.ACCEPTED
    assert look(store, second.id).retried_by is None
    claims = running(store)
    ids = [job_of_claim(taken).id for taken in claims]
    settled, cancelled = in_step(
        [partial(settle_as, store, taken, SLEEPING) for taken in claims], [partial(cancel, other, id_) for id_ in ids]
    )
    assert not [result for result in (*settled, *cancelled) if isinstance(result, Exception)]
    # Whoever came first: every chain has ended cancelled, and nothing is left that somebody could start.
    ends: dict[str, int] = dict(rows(store, "SELECT status, count(*) FROM jobs GROUP BY status"))
    assert ends.pop("CANCELLED") == ROUNDS + 2
    assert ends.keys() == {"CONTINUED"}
    assert count(store, "leases") == 0
    with pytest.raises(Conflict):
        cancel(store, first.id)


@pytest.mark.rule("STEP-03", "LEASE-03", "REC-01")
def test_a_lease_that_is_lost_in_the_middle_of_a_step_leaves_one_value_of_it(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    late = running(store, worker="slow")
    units = recovery_units(other.read_sync(find_trouble, TERMS, {"slow"}))
    assert len(units) == len(late)
    first, _ = in_step(
        [partial(keep, store, taken, '"late"') for taken in late],
        [partial(other.write_sync, unit[0], *unit[1]) for unit in units],
    )
    retries = {
        job_of_claim(taken).chain_id: taken
        for begin in range(0, ROUNDS, 100)
        for taken in claim_some(store, 100, worker="w", first_slot=begin)
    }
    assert len(retries) == ROUNDS
    # Two attempts are in the same step now: the one that has lost its lease, and its retry.
    current = [retries[job_of_claim(taken).chain_id] for taken in late]
    again, kept = in_step(
        [partial(keep, store, taken, '"later"') for taken in late],
        [partial(keep, other, taken, '"new"') for taken in current],
    )
    assert all(isinstance(result, LeaseGone) for result in again)
    values: dict[str, str] = dict(rows(store, "SELECT root_id, value FROM steps"))
    for taken, before, after in zip(late, first, kept, strict=True):
        # A value that was kept before the lease was lost is the one that the retry gets.
        value = '"new"' if isinstance(before, LeaseGone) else '"late"'
        assert after == values[job_of_claim(taken).chain_id] == value
