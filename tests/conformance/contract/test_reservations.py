"""Direct requests: in line, served, cancelled, given up; each ends once and gives its slot back."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, Invalid, NotFound
from holdbeat.domain.reservation import ReservationOutcome, ReservationStatus
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.running.reservations import (
    cancel_reservation,
    extend,
    give_up_waiting,
    list_reservations,
    place_in_line,
    waiting_line,
)
from holdbeat.store.running.settle import Settled
from tests.conformance.acts import (
    OpenStore,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_one,
    events_of,
    settle_as,
)
from tests.conformance.repair import ask_directly


@pytest.mark.rule("DEC-004", "DIR-02")
def test_a_request_is_a_row_with_all_that_its_handler_needs(store: PersistenceAdapter, clock: ManualClock) -> None:
    asked = ask_directly(store, params={"n": 1}, timeout_s=5.0, cancel_grace_s=2.0, resource="gpu")
    result = store.read_sync(RESERVATIONS.get, asked.id)
    assert result == asked
    assert result.expires_at == clock.now() + timedelta(seconds=600)
    taken = claim_one(store)
    assert taken.reservation is not None
    assert (taken.reservation.params, taken.reservation.timeout_s) == ({"n": 1}, 5.0)
    assert len(events_of(store, "reservation.requested")) == 1


@pytest.mark.rule("DIR-01")
def test_requests_are_served_first_come_first_served(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:default=1,gpu=1")
    first, second = ask_directly(store), ask_directly(store)
    clock.advance(1)
    third, other = ask_directly(store), ask_directly(store, resource="gpu")
    assert [r.id for r in store.read_sync(waiting_line)] == [first.id, second.id, third.id, other.id]
    assert [store.read_sync(place_in_line, r.id) for r in (first, second, third, other)] == [0, 1, 2, 0]
    served = []
    for _ in range(3):
        taken = claim_one(store, types=("noop",), resources=("default",))
        assert taken.reservation is not None
        served.append(taken.reservation.id)
        complete(store, taken, "done")
    assert served == [first.id, second.id, third.id]
    assert store.read_sync(place_in_line, first.id) is None
    assert store.read_sync(RESERVATIONS.get, first.id).result == "done"


@pytest.mark.rule("DIR-01", "DEC-004")
def test_the_next_slot_of_a_pool_is_the_first_request_s_whoever_can_serve_it(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store("resources:default=2")
    first = ask_directly(store, type="a")
    clock.advance(1)
    second, third = ask_directly(store, type="b"), ask_directly(store, type="b")

    def serve(*types: str, worker: str) -> list[str]:
        return [taken.lease.id for taken in claim_some(store, 2, worker=worker, types=types)]

    assert serve("b", worker="one") == [second.id]
    assert serve("b", worker="two") == []
    assert serve("a", worker="three") == [first.id]
    store.write_sync(cancel_reservation, third.id)


@pytest.mark.rule("DIR-01", "CAP-02")
@pytest.mark.parametrize("policy", ["resources:default=1000", "unlimited"])
def test_claims_at_the_same_time_grant_a_request_once(open_store: OpenStore, policy: str) -> None:
    stores = [open_store(policy) for _ in range(3)]
    asked = {ask_directly(stores[0]).id for _ in range(30)}
    granted: list[str] = []
    failures: list[Exception] = []
    ready = threading.Barrier(6)

    def work(number: int) -> None:
        ready.wait()
        for slot in range(30):
            try:
                taken = claim_some(stores[number % 3], 1, worker=f"w{number}", first_slot=slot)
            except Exception as error:
                failures.append(error)
            else:
                granted.extend(item.lease.id for item in taken)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    granted += [taken.lease.id for taken in claim_all(stores[0], worker="last")]
    assert sorted(granted) == sorted(asked)


@pytest.mark.rule("DIR-03", "CAP-02")
def test_a_request_that_is_cancelled_while_it_is_granted_is_one_or_the_other(open_store: OpenStore) -> None:
    stores = [open_store(), open_store()]
    asked = [ask_directly(stores[0]).id for _ in range(20)]
    ready = threading.Barrier(2)

    def cancel_all() -> None:
        ready.wait()
        for reservation_id in asked:
            stores[1].write_sync(cancel_reservation, reservation_id)

    thread = threading.Thread(target=cancel_all)
    thread.start()
    ready.wait()
    served = [taken.lease.id for slot in range(20) for taken in claim_some(stores[0], 1, first_slot=slot)]
    thread.join()
    for reservation_id in asked:
        result = stores[0].read_sync(RESERVATIONS.get, reservation_id)
        assert result.outcome is ReservationOutcome.CANCELLED
        assert (result.granted_at is not None) == (reservation_id in served)
    assert count(stores[0], "leases") == len(served)


@pytest.mark.rule("DIR-02")
def test_reservations_are_extended_by_name_and_only_while_they_are_in_force(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    mine = [ask_directly(store, owner="me").id for _ in range(2)]
    ended = ask_directly(store, owner="me")
    foreign = ask_directly(store, owner="you")
    store.write_sync(cancel_reservation, ended.id)
    clock.advance(100)
    assert sorted(store.write_sync(extend, [*mine, ended.id], 600)) == mine
    until = clock.now() + timedelta(seconds=600)
    assert all(store.read_sync(RESERVATIONS.get, item).expires_at == until for item in mine)
    assert store.read_sync(RESERVATIONS.get, foreign.id).expires_at == foreign.expires_at


@pytest.mark.rule("DIR-03")
def test_a_waiting_request_that_is_cancelled_leaves_the_line(open_store: OpenStore) -> None:
    store = open_store("resources:default=1")
    asked = ask_directly(store)
    enqueue_one(store)
    after = store.write_sync(cancel_reservation, asked.id, "never mind")
    assert (after.status, after.outcome, after.error) == ("RELEASED", "CANCELLED", "never mind")
    assert store.read_sync(RESERVATIONS.get, asked.id) == after
    (taken,) = claim_all(store)
    assert taken.job is not None


@pytest.mark.rule("DIR-03", "CON-002")
def test_a_served_request_that_is_cancelled_holds_its_slot_until_its_handler_ends(open_store: OpenStore) -> None:
    store = open_store("resources:default=1")
    asked = ask_directly(store)
    taken = claim_one(store)
    enqueue_one(store)
    after = store.write_sync(cancel_reservation, asked.id)
    assert (after.status, after.outcome) == (ReservationStatus.RELEASED, ReservationOutcome.CANCELLED)
    assert claim_all(store) == []
    assert settle_as(store, taken, Outcome.completed("late")) is Settled.ACCEPTED
    assert count(store, "leases") == 0
    final = store.read_sync(RESERVATIONS.get, asked.id)
    assert (final.outcome, final.result, final.finished_at) == (ReservationOutcome.CANCELLED, None, after.finished_at)
    assert len(claim_all(store)) == 1
    assert [json.loads(row[3])["outcome"] for row in events_of(store, "reservation.released")] == ["CANCELLED"]


@pytest.mark.rule("DIR-04")
@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (Outcome.completed(1), "COMPLETED"),
        (Outcome.failed(ErrorKind.ERROR, "x"), "FAILED"),
        (Outcome.failed(ErrorKind.CANCELLED, "x"), "CANCELLED"),
    ],
)
def test_the_event_of_a_release_names_the_outcome_of_the_reservation(
    store: PersistenceAdapter, outcome: Outcome, named: str
) -> None:
    asked = ask_directly(store)
    settle_as(store, claim_one(store), outcome)
    assert store.read_sync(RESERVATIONS.get, asked.id).outcome == named
    assert [json.loads(row[3])["outcome"] for row in events_of(store, "reservation.released")] == [named]


@pytest.mark.rule("DIR-03")
def test_a_request_ends_once(store: PersistenceAdapter) -> None:
    asked = ask_directly(store)
    store.write_sync(cancel_reservation, asked.id)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(cancel_reservation, asked.id)
    assert refusal.value.code == "already_ended"
    served = ask_directly(store)
    complete(store, claim_one(store))
    with pytest.raises(Conflict):
        store.write_sync(cancel_reservation, served.id)
    with pytest.raises(NotFound):
        store.write_sync(cancel_reservation, "nobody")
    with pytest.raises(NotFound):
        store.read_sync(RESERVATIONS.get, "nobody")


@pytest.mark.rule("DIR-03")
def test_a_request_that_waited_too_long_is_released_but_one_that_is_served_is_not(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    asked = ask_directly(store)
    clock.advance(300)
    after = store.write_sync(give_up_waiting, asked.id, 300)
    assert (after.status, after.outcome) == ("RELEASED", "CANCELLED")
    assert after.error == "waited longer than 300 s for a free slot"
    served = ask_directly(store)
    claim_one(store)
    assert store.write_sync(give_up_waiting, served.id, 300).status is ReservationStatus.ACTIVE
    assert store.write_sync(give_up_waiting, asked.id, 300) == after


@pytest.mark.rule("DIR-04")
def test_a_failed_request_keeps_its_error_and_makes_no_job(store: PersistenceAdapter) -> None:
    asked = ask_directly(store)
    settle_as(store, claim_one(store), Outcome.failed(ErrorKind.TIMEOUT, "too slow"))
    after = store.read_sync(RESERVATIONS.get, asked.id)
    assert (after.outcome, after.error, after.error_kind) == ("FAILED", "too slow", "timeout")
    assert count(store, "jobs") == 0


@pytest.mark.rule("API-03")
def test_reservations_are_listed_page_by_page(store: PersistenceAdapter) -> None:
    ids = [ask_directly(store).id for _ in range(5)]
    claim_some(store, 1)
    store.write_sync(cancel_reservation, ids[1])
    seen: list[str] = []
    cursor = None
    while True:
        page = store.read_sync(list_reservations, limit=2, cursor=cursor)
        seen += [reservation.id for reservation in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ids[::-1]
    active = store.read_sync(list_reservations, status=ReservationStatus.ACTIVE)
    assert [reservation.id for reservation in active.items] == [ids[4], ids[3], ids[2], ids[0]]
    with pytest.raises(Invalid):
        store.read_sync(list_reservations, cursor="nonsense")
