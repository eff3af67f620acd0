"""Slots that programs borrow: in one line with direct requests, counted like runs, lost after their time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.limit import Limit
from holdbeat.domain.rate import Rate
from holdbeat.domain.reservation import Reservation, ReservationKind, ReservationOutcome, ReservationStatus
from holdbeat.observe.explain import explain_job
from holdbeat.observe.explain_reservation import explain_reservation
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.reads.stats import resource_stats
from holdbeat.store.reads.timeline import spans_since
from holdbeat.store.running.held_slots import SlotLost, extend_slot, hold_slot, release_slot, withdraw
from holdbeat.store.running.reservations import cancel_reservation
from tests.conformance.acts import (
    OpenStore,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_one,
    events_of,
    rows,
)
from tests.conformance.contract.test_limit_rows import declare
from tests.conformance.repair import ask_directly, recover

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture
def store(open_store: OpenStore) -> PersistenceAdapter:
    return open_store("resources:default=1,gpu=1")


def borrow(
    store: PersistenceAdapter, resource: str = "default", *, ttl_s: float = 60, wait_s: float = 20
) -> Reservation:
    return store.write_sync(hold_slot, ReservationKind.SLOT, resource, wait_s=wait_s, ttl_s=ttl_s, client="a program")


def look(store: PersistenceAdapter, reservation: Reservation) -> Reservation:
    return store.read_sync(RESERVATIONS.get, reservation.id)


@pytest.mark.rule("LIM-12", "CON-002")
def test_a_borrowed_slot_is_granted_at_once_and_keeps_jobs_from_it(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    slot = borrow(store, ttl_s=30)
    assert (slot.granted_at, slot.number, slot.worker_id) == (clock.now(), 0, None)
    assert slot.fence is not None and slot.expires_at == clock.now() + timedelta(seconds=30)
    job = enqueue_one(store)
    assert claim_all(store) == []
    assert store.read_sync(resource_stats)["default"]["used"] == 1
    assert "slot/default by a program" in store.read_sync(explain_job, job.id)["summary"]
    store.write_sync(release_slot, slot.id)
    run = claim_one(store)
    assert run.lease.fence > slot.fence
    assert (look(store, slot).status, look(store, slot).outcome) == ("RELEASED", "COMPLETED")


@pytest.mark.rule("LIM-12", "DIR-01", "DEC-004")
def test_borrowed_slots_direct_requests_and_jobs_share_one_line(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    running = claim_one(store)
    first, direct, second = borrow(store), ask_directly(store), borrow(store)
    enqueue_one(store)
    assert [one.granted_at for one in (first, second)] == [None, None]
    complete(store, running)
    assert claim_all(store) == []
    assert look(store, first).granted_at is not None, "a worker that looks for work hands a free slot on"
    assert look(store, second).granted_at is None
    store.write_sync(release_slot, first.id)
    (served,) = claim_all(store)
    assert served.reservation is not None and served.reservation.id == direct.id
    complete(store, served)
    assert claim_all(store) == [] and look(store, second).granted_at is not None
    store.write_sync(release_slot, second.id)
    assert claim_one(store).job is not None


@pytest.mark.rule("LIM-12")
def test_who_gives_a_slot_back_hands_it_on_in_the_same_transaction(store: PersistenceAdapter) -> None:
    first, second = borrow(store), borrow(store)
    assert second.granted_at is None
    store.write_sync(release_slot, first.id)
    following = look(store, second)
    assert following.granted_at is not None and (following.fence or 0) > (first.fence or 0)
    assert count(store, "leases") == 1


@pytest.mark.rule("LIM-12")
def test_a_slot_that_is_not_extended_is_lost_after_its_ttl(store: PersistenceAdapter, clock: ManualClock) -> None:
    slot = borrow(store, ttl_s=10)
    clock.advance(8)
    assert recover(store) == 0
    store.write_sync(extend_slot, slot.id)
    clock.advance(8)
    assert recover(store) == 0 and look(store, slot).status is ReservationStatus.ACTIVE
    store.write_sync(extend_slot, slot.id, 3.0)
    clock.advance(3)
    waiting = borrow(store)
    assert recover(store) == 1
    lost = look(store, slot)
    assert (lost.status, lost.outcome, lost.error_kind) == ("EXPIRED", ReservationOutcome.FAILED, "lost")
    assert look(store, waiting).granted_at is not None
    for verb in (extend_slot, release_slot):
        with pytest.raises(SlotLost, match="not held any more"):
            store.write_sync(verb, slot.id)
    assert len(events_of(store, "reservation.expired")) == 1
    assert count(store, "leases") == 1


@pytest.mark.rule("LIM-12")
def test_to_release_twice_changes_nothing_and_to_extend_afterwards_is_refused(store: PersistenceAdapter) -> None:
    slot = borrow(store)
    once = store.write_sync(release_slot, slot.id)
    assert store.write_sync(release_slot, slot.id) == once
    assert len(events_of(store, "reservation.released")) == 1
    with pytest.raises(SlotLost):
        store.write_sync(extend_slot, slot.id)
    with pytest.raises(NotFound):
        store.write_sync(release_slot, UNKNOWN)


@pytest.mark.rule("LIM-12")
def test_only_a_granted_slot_can_be_extended_and_a_direct_request_never(store: PersistenceAdapter) -> None:
    direct = ask_directly(store)
    waiting = borrow(store)
    for verb in (extend_slot, release_slot):
        with pytest.raises(Conflict, match="direct request"):
            store.write_sync(verb, direct.id)
        with pytest.raises(SlotLost, match="still waits"):
            store.write_sync(verb, waiting.id)


@pytest.mark.rule("LIM-12", "CON-002")
def test_a_cancelled_slot_is_free_when_its_holder_gives_it_back_or_its_time_is_over(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    value, kept = borrow(store, "gpu"), borrow(store, ttl_s=10)
    for slot in (value, kept):
        store.write_sync(cancel_reservation, slot.id, "needed elsewhere")
        with pytest.raises(SlotLost, match="needed elsewhere"):
            store.write_sync(extend_slot, slot.id)
    assert count(store, "leases") == 2
    store.write_sync(release_slot, value.id)
    assert look(store, value).outcome is ReservationOutcome.CANCELLED and count(store, "leases") == 1
    clock.advance(10)
    assert recover(store) == 1 and count(store, "leases") == 0
    assert look(store, kept).outcome is ReservationOutcome.CANCELLED


@pytest.mark.rule("LIM-12", "DIR-03")
def test_a_client_that_is_gone_frees_its_slot_at_once(store: PersistenceAdapter) -> None:
    held, waiting = borrow(store), borrow(store)
    store.write_sync(withdraw, waiting.id, "the client went away")
    store.write_sync(withdraw, held.id, "the client went away")
    assert count(store, "leases") == 0
    assert {look(store, one).outcome for one in (held, waiting)} == {ReservationOutcome.CANCELLED}


@pytest.mark.rule("LIM-12", "DIR-02")
def test_who_waits_without_being_known_to_the_store_expires_by_the_clock(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    slot, waiting = borrow(store, ttl_s=600), borrow(store, wait_s=20)
    assert recover(store) == 0
    clock.advance(20)
    assert recover(store) == 1
    assert look(store, waiting).status is ReservationStatus.EXPIRED
    assert look(store, slot).status is ReservationStatus.ACTIVE
    store.write_sync(release_slot, slot.id)
    assert count(store, "leases") == 0


@pytest.mark.rule("LIM-12", "LIM-01", "LIM-05")
def test_every_limit_that_covers_a_borrowed_slot_counts_it(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("unlimited")
    declare(store, "unlimited", Limit("gpu", resource="gpu", slots=2), Limit("all", slots=3),
            Limit("api", resource="api", slots=9, rate=Rate(1, 10.0, 0)))  # fmt: skip
    slots = [borrow(store, "gpu") for _ in range(3)]
    assert [slot.number for slot in slots] == [0, 1, None]
    assert slots[2].granted_at is None
    store.write_sync(cancel_reservation, slots[2].id)
    first, second = borrow(store, "api"), borrow(store, "api")
    assert first.granted_at is not None and second.granted_at is None
    store.write_sync(release_slot, first.id)
    assert look(store, second).granted_at is None, "the rate permits one in ten seconds"
    clock.advance(10)
    claim_some(store, 1, worker="other")
    assert look(store, second).granted_at is not None


@pytest.mark.rule("LIM-12")
def test_explain_and_timeline_show_borrowed_slots(store: PersistenceAdapter, clock: ManualClock) -> None:
    since = clock.now()
    held, waiting = borrow(store), borrow(store)
    clock.advance(4)
    why = store.read_sync(explain_reservation, held.id)
    assert "a program holds it since 4 s" in why["summary"] and why["reasons"][0]["code"] == "held"
    why = store.read_sync(explain_reservation, waiting.id)
    assert [reason["code"] for reason in why["reasons"]] == ["resource_full"]
    assert why["reasons"][0]["holders"][0]["client"] == "a program"
    store.write_sync(release_slot, held.id)
    clock.advance(1)
    spans, _ = store.read_sync(spans_since, since)
    assert [(span.type, span.worker_id, span.finished_at is None) for span in spans] == [
        ("slot/default", None, False), ("slot/default", None, True),
    ]  # fmt: skip
    assert "completed at" in store.read_sync(explain_reservation, held.id)["summary"]
    another = borrow(store)
    estimate = store.read_sync(explain_reservation, another.id)["estimated_start"]
    assert estimate is not None, "how long slots of this resource were held says when the next is free"
    assert rows(store, "SELECT DISTINCT resource FROM leases") == [("default",)]
