"""RET-01, TIM-01: what is recorded of a delayed job is in order, also where a claim began before the job was due."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from tests.conformance.acts import change, claim_some, enqueue_one, open_at, rows


@pytest.mark.rule("INV-004", "RET-01")
@pytest.mark.parametrize("types", [["noop"], ["noop", "other"]], ids=["one lane", "several lanes"])
def test_a_run_never_starts_before_its_not_before_however_long_its_claim_waited(
    postgres_url: str, types: list[str]
) -> None:
    began, later = ManualClock(), ManualClock()
    later.advance(0.15)
    # The claim took its time when it began; while it waited for a lock, another one found the job due.
    waiting, other = open_at(postgres_url, clock=began), open_at(postgres_url, clock=later)
    due = began.now() + timedelta(seconds=0.1)
    job = enqueue_one(waiting, not_before=due)
    if len(types) > 1:
        enqueue_one(waiting, "other")
    assert claim_some(waiting, 0, types=["noop"]) == []
    claim_some(other, 1, worker="o", types=["nobody-has-this"])
    change(other, "UPDATE jobs SET hold = 0 WHERE id = :id", id=job.id)
    claimed = {taken.lease.job_id: taken for taken in claim_some(waiting, len(types), types=types)}
    assert claimed[job.id].lease.acquired_at == due
    recorded = rows(
        waiting,
        "SELECT j.started_at, r.started_at FROM jobs j JOIN job_runs r ON r.job_id = j.id WHERE j.id = :id",
        id=job.id,
    )
    assert recorded == [(due, due)]
    claims = rows(waiting, "SELECT at FROM events WHERE name = 'job.claimed'")
    assert {row[0] for row in claims} == {due}
    waiting.close()
    other.close()


@pytest.mark.rule("LEASE-06")
def test_a_clock_that_went_back_does_not_put_starts_into_the_future(postgres_url: str) -> None:
    clock = ManualClock()
    store = open_at(postgres_url, clock=clock)
    enqueue_one(store, not_before=clock.now() + timedelta(seconds=5))
    clock.advance(6)
    claim_some(store, 1, types=["nobody-has-this"])
    change(store, "UPDATE jobs SET hold = 0")
    clock.jump(-3600)
    (taken,) = claim_some(store, 1)
    assert taken.lease.acquired_at == clock.now()
    store.close()
