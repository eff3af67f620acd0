"""Trigger processes that die or have rivals: nothing is lost, nothing happens twice."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.lease import LeaseTerms
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from tests.conformance.acts import OpenStore, claim_all, complete, count, rows
from tests.conformance.schedule_acts import assert_each_due_time_once, fire, make, make_adaptive, seen
from tests.engine.fatal_statement import act_until_killed
from tests.engine.rival_triggers import fire_through
from tests.process_context import CONTEXT
from tests.waiting import eventually

MOST_STATEMENTS = 40


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(store_url: str, clock: ManualClock) -> Iterator[OpenStore]:
    opener = OpenStore(store_url, clock)
    yield opener
    opener.close()


def killed_at_every_statement(
    url: str, clock: ManualClock, act: str, prepare: Callable[[], None], check: Callable[[], None]
) -> int:
    """Runs the act again and again, killed one statement later each time, until it lives; returns how often it died."""
    for number in range(1, MOST_STATEMENTS):
        prepare()
        process = CONTEXT.Process(target=act_until_killed, args=(url, iso(clock.now()), act, number))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        check()
        if process.exitcode == 0:
            return number - 1
    raise AssertionError("the act has more statements than anybody expected")


def work_off(store: PersistenceAdapter) -> None:
    for taken in claim_all(store):
        complete(store, taken)


@pytest.mark.rule("TIME-02", "DEC-008")
def test_firing_killed_before_any_statement_fires_each_due_time_once_afterwards(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store()
    make(store, "plain")
    make(store, "cron", cron="* * * * *", interval_s=None)
    make(store, "queue_one", overlap="queue_one")
    make(store, "cancel_previous", overlap="cancel_previous")
    make_adaptive(store, "adaptive", interval_s=60)
    minutes = 0

    def prepare() -> None:
        nonlocal minutes
        minutes += 1
        clock.advance(60)

    def check() -> None:
        assert_each_due_time_once(store)

        def all_fired() -> bool:
            fire(store)
            return count(store, "occurrences") == 5 * minutes

        eventually(all_fired)  # the server notices soon, but not at once, that a killed client's locks are free
        assert_each_due_time_once(store)
        work_off(store)
        due = clock.now() + timedelta(seconds=60)
        names = ("plain", "cron", "queue_one", "cancel_previous", "adaptive")
        assert [seen(store, name).next_run_at for name in names] == [due] * 5

    deaths = killed_at_every_statement(open_store.url, clock, "fire", prepare, check)
    assert deaths >= 6


@pytest.mark.rule("GOV-09", "RET-03")
def test_the_end_of_a_chain_killed_before_any_statement_is_planned_once_afterwards(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store()
    make_adaptive(store, "adaptive", interval_s=60, max_interval_s=60)
    failures = 0

    def prepare() -> None:
        nonlocal failures
        due = seen(store, "adaptive").next_run_at
        assert due is not None
        clock.advance((due - clock.now()).total_seconds())
        assert fire(store).fired == 1
        failures += 1

    def check() -> None:
        clock.advance(10_000)

        def planned() -> bool:
            dead = store.known_dead()
            for verb, arguments in recovery_units(store.read_sync(find_trouble, LeaseTerms(), dead)):
                store.write_sync(verb, *arguments)
            return seen(store, "adaptive").next_run_at is not None

        eventually(planned)
        assert seen(store, "adaptive").failure_count == failures
        assert count(store, "leases") == 0
        assert_each_due_time_once(store)

    deaths = killed_at_every_statement(open_store.url, clock, "settle", prepare, check)
    assert deaths >= 6


@pytest.mark.rule("TIME-02", "TIME-05", "OPS-06")
@pytest.mark.parametrize("processes", [2, 4])
def test_trigger_processes_side_by_side_fire_each_due_time_once(
    open_store: OpenStore, clock: ManualClock, processes: int
) -> None:
    store = open_store()
    for number in range(80):
        make(store, f"s{number}", interval_s=60, overlap="allow" if number % 2 else "queue_one")
    instants = [iso(clock.advance(60)) for _ in range(5)]
    rivals = [CONTEXT.Process(target=fire_through, args=(open_store.url, instants)) for _ in range(processes)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join(90)
        assert rival.exitcode == 0
    assert_each_due_time_once(store)
    assert sum(row[0] for row in rows(store, "SELECT count FROM occurrences")) == 400
