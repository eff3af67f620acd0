"""Direct requests that leave the queue no slot: seen, told once, and bounded by `direct_burst`."""

from __future__ import annotations

import json

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.starvation import has_starvation_changed, known_starvation, note_starvation
from holdbeat.store.queue.pauses import pause
from holdbeat.store.running.reservations import reserve
from tests.conformance.acts import OpenStore, claim_some, complete, enqueue_all, enqueue_one, events_of, rows

pytestmark = pytest.mark.rule("LIM-08")

ONE = "resources:gpu=1,default=9"


def ask(store: PersistenceAdapter, count: int = 1, type_: str = "a") -> None:
    for _ in range(count):
        store.write_sync(reserve, NewJob(type_, resource="gpu"), "owner", 6000)


def kinds(claims: list[Claim]) -> list[str]:
    return ["job" if claim.job is not None else "direct" for claim in claims]


def serve_in_turn(store: PersistenceAdapter, count: int) -> list[str]:
    """Who gets the slot, one after the other, while a direct request always waits."""
    served = []
    for _ in range(count):
        (claim,) = claim_some(store, 1)
        served += kinds([claim])
        ask(store)
        complete(store, claim)
    return served


def test_direct_requests_that_overlap_keep_the_queue_out_and_that_is_told_once(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store(ONE)
    enqueue_one(store, "a", resource="gpu", priority=100)
    ask(store, 2)
    for _ in range(30):
        assert serve_in_turn(store, 1) == ["direct"]
        clock.advance(9.9)
        assert not store.read_sync(has_starvation_changed, 300)
    clock.advance(5)
    assert store.read_sync(has_starvation_changed, 300)
    assert store.write_sync(note_starvation, 300) == 1
    assert store.write_sync(note_starvation, 300) == 0 and not store.read_sync(has_starvation_changed, 300)
    ((_, _, _, data),) = events_of(store, "queue.starved")
    event_data = json.loads(data)
    assert (event_data["limit"], event_data["resource"], event_data["waited_s"]) == ("gpu", "gpu", 302)
    (known,) = store.read_sync(known_starvation)
    assert (known.limit, (clock.now() - known.since).total_seconds()) == ("gpu", 302)


def test_it_is_over_when_a_job_has_started_and_is_told_again_the_next_time(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store(ONE)
    enqueue_all(store, [NewJob("a", resource="gpu")] * 3)
    ask(store)
    (direct,) = claim_some(store, 1)
    clock.advance(400)
    store.write_sync(note_starvation, 300)
    complete(store, direct)
    (job,) = claim_some(store, 1)
    assert store.read_sync(has_starvation_changed, 300)
    store.write_sync(note_starvation, 300)
    assert store.read_sync(known_starvation) == []
    ask(store)
    complete(store, job)
    claim_some(store, 1)
    clock.advance(299)
    assert not store.read_sync(has_starvation_changed, 300)
    clock.advance(1)
    assert store.write_sync(note_starvation, 300) == 1
    assert len(events_of(store, "queue.starved")) == 2


def test_a_job_that_runs_a_pause_or_an_empty_queue_is_no_starvation(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:gpu=2,default=9")
    ask(store)
    claim_some(store, 1)
    clock.advance(1000)
    assert not store.read_sync(has_starvation_changed, 300), "nobody waits"
    enqueue_all(store, [NewJob("b", resource="gpu")] * 2)
    claim_some(store, 1, worker="two")
    clock.advance(1000)
    assert not store.read_sync(has_starvation_changed, 300), "one job has a slot"
    store = open_store(ONE)
    store.write_sync(pause, "gpu")
    assert not store.read_sync(has_starvation_changed, 300)


@pytest.mark.parametrize("burst", [1, 3])
def test_after_so_many_direct_requests_in_a_row_one_job_has_its_turn(open_store: OpenStore, burst: int) -> None:
    store = open_store(ONE, direct_burst=burst)
    enqueue_all(store, [NewJob("a", resource="gpu")] * 9)
    ask(store, 2)
    turns = serve_in_turn(store, 2 * (burst + 1))
    assert turns == (["direct"] * burst + ["job"]) * 2


def test_without_the_setting_nothing_is_counted_and_direct_requests_always_go_first(open_store: OpenStore) -> None:
    store = open_store(ONE)
    enqueue_all(store, [NewJob("a", resource="gpu")] * 9)
    ask(store, 2)
    assert serve_in_turn(store, 8) == ["direct"] * 8
    assert rows(store, "SELECT key FROM direct_streaks") == []


def test_a_turn_that_no_job_can_take_is_not_lost_to_direct_requests(open_store: OpenStore) -> None:
    store = open_store(ONE, direct_burst=1)
    ask(store, 2)
    assert serve_in_turn(store, 3) == ["direct"] * 3, "no job waits"
    enqueue_one(store, "b", resource="gpu")
    (claim,) = claim_some(store, 1, types=("a",))
    assert kinds([claim]) == ["direct"], "this worker does not know the type of the job that waits"


def test_a_turn_is_one_job_however_many_slots_are_free(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=3,default=9", direct_burst=1)
    ask(store, 1)
    complete(store, claim_some(store, 1)[0])
    enqueue_all(store, [NewJob("a", resource="gpu")] * 9)
    ask(store, 5)
    assert sorted(kinds(claim_some(store, 9))) == ["direct", "direct", "job"]
