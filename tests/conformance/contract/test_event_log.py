"""The log of Events: in the order of commits, nothing lost, nothing twice."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import NewJob
from holdbeat.domain.run import Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.event_batches import BATCH_MAX
from holdbeat.store.reads.event_log import LoggedEvent, events_of_job, latest_cursor, newest_events, read_events
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import settle_and_claim
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import (
    OpenStore,
    change,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    open_at,
    rows,
    settlement,
)  # fmt: skip
from tests.conformance.repair import write_rows


def note(store: PersistenceAdapter, *numbers: int) -> None:
    def act(tx: Transaction) -> None:
        for number in numbers:
            tx.record("shutdown.begun", number=number)

    store.write_sync(act)


def numbers(found: list[LoggedEvent]) -> list[int]:
    return [entry.event.data["number"] for entry in found]


@pytest.mark.rule("API-04")
def test_a_reader_who_goes_on_from_any_id_gets_the_rest_once(store: PersistenceAdapter) -> None:
    for number in range(0, 10, 2):
        note(store, number, number + 1)
    everything = store.read_sync(read_events)
    assert numbers(everything) == list(range(10))
    for index, entry in enumerate(everything):
        assert numbers(store.read_sync(read_events, entry.cursor)) == list(range(index + 1, 10))
    assert len({entry.cursor for entry in everything}) == 10
    seen: list[int] = []
    cursor = None
    while events := store.read_sync(read_events, cursor, limit=3):
        seen += numbers(events)
        cursor = events[-1].cursor
    assert seen == list(range(10))


@pytest.mark.rule("API-04", "OPS-04")
def test_events_that_share_a_row_keep_ids_of_their_own_and_can_be_read_from_any_of_them(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    jobs = enqueue_all(store, [NewJob("a", {"n": number}) for number in range(7)])
    note(store, 1)
    taken = claim_some(store, 5)
    clock.advance(1)
    store.write_sync(
        settle_and_claim, [settlement(one, Outcome.completed()) for one in taken], Vacancy("w", [0, 1, 2], (), ["a"])
    )
    assert count(store, "events") == 5, "queued, shutdown.begun, claimed, ended, claimed again"
    everything = store.read_sync(read_events)
    names = [entry.event.name for entry in everything]
    assert (
        names == ["job.queued"] * 7 + ["shutdown.begun"] + ["job.claimed"] * 5 + ["run.ended"] * 5 + ["job.claimed"] * 2
    )
    ids = [entry.event.id for entry in everything]
    assert len(set(ids)) == len(ids) and ids == sorted(ids, key=lambda number: number or 0)
    assert [entry.event.job_id for entry in everything[:7]] == [job.id for job in jobs]
    fences = [entry.event.data["fence"] for entry in everything if entry.event.name == "job.claimed"]
    assert len(set(fences)) == 7
    for index, entry in enumerate(everything):
        for limit in (1, 3, 100):
            for cursor in (entry.cursor, str(entry.event.id)):
                assert store.read_sync(read_events, cursor, limit=limit) == everything[index + 1 :][:limit]
        older = [event.id for event in store.read_sync(newest_events, entry.event.id, 4)]
        assert older == ids[:index][::-1][:4]
    claimed = [entry for entry in everything if entry.event.name == "job.claimed"]
    assert store.read_sync(read_events, claimed[1].cursor, names=["job.claimed"], limit=4) == claimed[2:6]
    for job in jobs:
        story = [entry for entry in everything if entry.event.job_id == job.id]
        assert store.read_sync(events_of_job, job.id) == story
        assert store.read_sync(read_events, job_id=job.id) == story
        assert store.read_sync(read_events, story[0].cursor, job_id=job.id) == story[1:]
        assert store.read_sync(events_of_job, job.id, 1, after=story[0].event.id or 0) == story[1:2]


@pytest.mark.rule("API-04", "DEC-005")
def test_ids_and_positions_go_on_after_all_events_are_gone(open_store: OpenStore) -> None:
    """A stream goes on after the last id that it has sent, so no id may come twice."""
    positions: list[int] = []
    ids: list[int] = []
    for number in range(3):
        store = open_store()
        jobs = [enqueue_one(store), *enqueue_all(store, [NewJob("noop") for _ in range(number * BATCH_MAX)])]
        note(store, number)
        positions += [job.position for job in jobs]
        ids += [entry.event.id or 0 for entry in store.read_sync(read_events, limit=10_000)]
        change(store, "DELETE FROM events")
        positions.append(enqueue_one(store).position)
        ids += [entry.event.id or 0 for entry in store.read_sync(read_events)]
        change(store, "DELETE FROM events")
        store.close()
    assert len(ids) == len(positions) + 3
    assert ids == sorted(set(ids))
    assert positions == sorted(set(positions))


@pytest.mark.rule("API-04")
def test_more_events_than_fit_into_one_row_go_into_several(store: PersistenceAdapter) -> None:
    jobs = enqueue_all(store, [NewJob("a") for _ in range(2 * BATCH_MAX + 1)])
    assert [row[0] for row in rows(store, "SELECT count FROM events ORDER BY id")] == [BATCH_MAX, BATCH_MAX, 1]
    events = store.read_sync(read_events, limit=10_000)
    assert [entry.event.job_id for entry in events] == [job.id for job in jobs]
    assert len({entry.event.id for entry in events}) == len(jobs)
    assert min(entry.event.id or 0 for entry in events) > 0


@pytest.mark.rule("API-04")
def test_a_late_commit_is_neither_lost_nor_shown_out_of_turn(open_store: OpenStore, store: PersistenceAdapter) -> None:
    """The slow transaction takes its place in the log first and commits last; a SQLite file has one writer."""
    other = open_store()
    note(store, 0)
    has_written, may_commit = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.record("shutdown.begun", number=1)
        tx.write_events()
        has_written.set()
        assert may_commit.wait(20)

    thread = threading.Thread(target=store.write_sync, args=(slow,))
    thread.start()
    assert has_written.wait(20)
    quick = threading.Thread(target=note, args=(other, 2))
    quick.start()
    seen: list[int] = []
    cursor = None
    if "postgres" in store.url:
        quick.join()
        # Number 2 is committed, number 1 is not: a reader must not pass over it.
        events = other.read_sync(read_events)
        seen += numbers(events)
        cursor = events[-1].cursor
        assert seen == [0]
    may_commit.set()
    thread.join()
    quick.join()
    seen += numbers(other.read_sync(read_events, cursor))
    assert seen == [0, 1, 2]


@pytest.mark.rule("API-04")
def test_readers_beside_many_writers_miss_nothing(open_store: OpenStore, store: PersistenceAdapter) -> None:
    stores = [store, open_store()]
    total = 400
    done, written = threading.Event(), threading.Event()

    def write(number: int) -> None:
        for step in range(total // 4):
            note(stores[number % 2], number * 1000 + step)
            written.set()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    seen: list[int] = []

    def read() -> None:
        cursor = None
        give_up = time.monotonic() + 60
        while True:
            ending = done.is_set()
            written.clear()
            events = stores[1].read_sync(read_events, cursor, limit=7)
            seen.extend(numbers(events))
            if events:
                cursor = events[-1].cursor
            elif (ending and len(seen) >= total) or time.monotonic() > give_up:
                return
            else:
                written.wait(1)

    reader = threading.Thread(target=read)
    reader.start()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    written.set()
    reader.join()
    assert len(seen) == total
    assert len(set(seen)) == total
    for number in range(4):
        own = [n for n in seen if n // 1000 == number]
        assert own == sorted(own)


@pytest.mark.rule("API-04")
def test_the_order_is_that_of_numbers_not_of_their_text(store: PersistenceAdapter, clock: ManualClock) -> None:
    for number in (9, 10, 100):
        place = {"id": number} if store.url.startswith("sqlite") else {"xid": str(number), "id": 1}
        write_rows(store, "events", name="shutdown.begun", at=clock.now(), data=f'{{"number":{number}}}', **place)
    events = store.read_sync(read_events)
    assert numbers(events) == [9, 10, 100]
    assert numbers(store.read_sync(read_events, events[0].cursor)) == [10, 100]


@pytest.mark.rule("API-04")
def test_a_reader_who_starts_now_gets_only_what_comes(store: PersistenceAdapter) -> None:
    assert store.read_sync(read_events, store.read_sync(latest_cursor)) == []
    note(store, 1)
    cursor = store.read_sync(latest_cursor)
    assert store.read_sync(read_events, cursor) == []
    note(store, 2)
    assert numbers(store.read_sync(read_events, cursor)) == [2]


@pytest.mark.rule("OPS-04")
def test_events_of_a_job_are_read_in_order(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    enqueue_one(store)
    clock.advance(1)
    complete(store, claim_one(store))
    story = store.read_sync(events_of_job, job.id)
    assert [entry.event.name for entry in story] == ["job.queued", "job.claimed", "run.ended"]
    assert story[-1].event.at == clock.now()
    assert store.read_sync(read_events, job_id=job.id) == story
    assert store.read_sync(read_events, story[0].cursor, job_id=job.id) == story[1:]
    queued = store.read_sync(read_events, names=["job.queued"])
    assert len(queued) == 2 and {entry.event.name for entry in queued} == {"job.queued"}


@pytest.mark.rule("API-03", "API-04")
def test_a_reader_goes_on_from_the_plain_id_of_an_event_too(store: PersistenceAdapter) -> None:
    note(store, 0, 1)
    note(store, 2)
    everything = store.read_sync(read_events)
    for index, entry in enumerate(everything):
        assert numbers(store.read_sync(read_events, str(entry.event.id))) == list(range(index + 1, 3))
    job = enqueue_one(store)
    complete(store, claim_one(store))
    story = store.read_sync(events_of_job, job.id)
    assert story[0].event.id is not None
    assert store.read_sync(events_of_job, job.id, 1, after=story[0].event.id) == story[1:2]


@pytest.mark.rule("API-04")
@pytest.mark.parametrize("cursor", ["", "x", "-1", "1-", "-", "1.5", "9" * 30, "1-2-3", "²", "1 OR 1=1", "\x00"])
def test_an_id_that_is_none_is_refused(store: PersistenceAdapter, cursor: str) -> None:
    with pytest.raises(Invalid) as refusal:
        store.read_sync(read_events, cursor)
    assert refusal.value.code == "invalid_cursor"


@pytest.mark.rule("API-04")
def test_a_transaction_that_is_open_in_another_database_holds_up_no_reader(postgres_url: str) -> None:
    clock = ManualClock()
    store = open_at(postgres_url, clock=clock)
    with psycopg.connect(postgres_url, dbname="postgres") as foreign:
        foreign.execute("SELECT pg_current_xact_id()")
        note(store, 1)
        assert numbers(store.read_sync(read_events)) == []
        clock.advance(3)
        events = store.read_sync(read_events)
        assert numbers(events) == [1]
        assert store.read_sync(read_events, events[-1].cursor) == []
        now = store.read_sync(latest_cursor)
        assert store.read_sync(read_events, now) == []
        with psycopg.connect(postgres_url) as own:
            own.execute("SELECT pg_current_xact_id()")
            note(store, 2)
            clock.advance(3)
            assert numbers(store.read_sync(read_events)) == [1], "one that is open here may still write before it"
        assert numbers(store.read_sync(read_events, now)) == [2]
    assert numbers(store.read_sync(read_events)) == [1, 2]
    store.close()
