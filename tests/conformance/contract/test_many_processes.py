"""Eight processes on one store: each job once, each limit always."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

import pytest

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.domain.rate import Rate
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.migrate import migrations
from holdbeat.store.reads.event_log import newest_events
from tests.conformance.acts import OpenStore, count, enqueue_all, rows
from tests.conformance.crowd import (
    Crew,
    draw_fences,
    enqueue_many,
    flatten,
    open_and_close,
    start_until_empty,
    work_and_watch,
    work_until_empty,
    work_while_limits_change,
)

JOBS = 10_000


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    made = Crew()
    yield made
    made.close()


@pytest.mark.rule("CAP-02", "DEC-001", "OPS-06")
def test_ten_thousand_jobs_are_claimed_once_each_by_eight_processes(open_store: OpenStore, crew: Crew) -> None:
    store = open_store()
    queued = [job.id for n in range(10) for job in enqueue_all(store, [NewJob("a") for _ in range(JOBS // 10)])]
    shifts = crew.all_at_once(work_until_empty, open_store.url, "unlimited", 50)
    claimed = flatten([shift.claimed for shift in shifts])
    assert len(claimed) == JOBS
    assert set(claimed) == set(queued)
    assert {verdict for shift in shifts for verdict in shift.verdicts} == {"accepted"}
    assert count(store, "jobs", "status = 'COMPLETED'") == JOBS
    assert rows(store, "SELECT count(*), count(DISTINCT job_id), count(DISTINCT fence) FROM job_runs") == [
        (JOBS, JOBS, JOBS)
    ]
    assert count(store, "leases") == 0


@pytest.mark.rule("CON-002", "CAP-02", "CAP-01")
@pytest.mark.parametrize(
    ("concurrency", "limit"), [("resources:default=3", 3), ("global:3", 3), ("per_type:a=2,b=1", 3)]
)
def test_a_limit_is_never_exceeded_at_any_instant_by_eight_processes(
    open_store: OpenStore, crew: Crew, concurrency: str, limit: int
) -> None:
    amount = 120
    store = open_store()
    enqueue_all(store, [NewJob("ab"[n % 2]) for n in range(amount)])
    shifts = crew.all_at_once(work_until_empty, open_store.url, concurrency, 2, True)
    assert len(set(flatten([shift.claimed for shift in shifts]))) == amount
    # A claim's event is written under the lock of its pool, and after the end of every run that made room for
    # it: so the log, in its order, shows how many ran at each instant.
    running = most = 0
    names = [event.name for event in reversed(store.read_sync(newest_events, None, 1_000_000))]
    for name in names:
        if name not in ("job.claimed", "run.ended"):
            continue
        running += 1 if name == "job.claimed" else -1
        most = max(most, running)
        assert running <= limit
    assert most == limit
    assert max(shift.most_leases for shift in shifts) <= limit
    assert running == 0


@pytest.mark.rule("LIM-01", "LIM-02", "CAP-02", "CON-002")
def test_eight_processes_with_eight_settings_never_exceed_the_rows_while_an_operator_changes_them(
    open_store: OpenStore, crew: Crew
) -> None:
    amount = 150
    store = open_store()
    store.write_sync(declare_limits, ConcurrencyPolicy.parse("resources:default=1").limits(), (), by="first")
    enqueue_all(store, [NewJob("a") for _ in range(amount)])
    shifts = crew.all_at_once(work_while_limits_change, open_store.url, 4)
    assert len(set(flatten([shift.claimed for shift in shifts]))) == amount
    # Changes and claims exclude each other, and both write their events before they end: the log shows for each
    # claim the limit that was in force then.
    running, limit, raised = 0, 1, set()
    for event in reversed(store.read_sync(newest_events, None, 1_000_000)):
        if event.name == "limit.changed":
            limit = event.data["after"]["slots"]
        elif event.name == "run.ended":
            running -= 1
        elif event.name == "job.claimed":
            running += 1
            assert running <= limit
            raised.add(running)
    assert running == 0
    assert raised == {1, 2, 3}


def most_within(instants: list[float], seconds: float) -> int:
    """The largest number of instants in a window of that length; `instants` are sorted."""
    return max(bisect_left(instants, first + seconds) - index for index, first in enumerate(instants))


@pytest.mark.rule("LIM-05", "LIM-04")
def test_no_period_has_more_starts_than_a_rate_permits_with_eight_processes(open_store: OpenStore, crew: Crew) -> None:
    rate = Rate(10, 1.0, 3)
    store = open_store()
    limits = [Limit("each", type="a", rate=rate, per_partition=True), Limit("b", type="b", rate=rate)]
    store.write_sync(declare_limits, (), limits, by="first")
    enqueue_all(store, [NewJob("a", partition=partition) for partition in "xy" * 30] + [NewJob("b")] * 30)
    starts = flatten(crew.all_at_once(start_until_empty, open_store.url, ["a", "b"]))
    # Between the claim and its answer lies a delay, so starts move apart and together by no more than its maximum.
    delay_s = max(started.began_at - started.leased_at for started in starts)
    for kind in (("a", "x"), ("a", "y"), ("b", "")):
        of_kind = [started for started in starts if (started.type, started.partition) == kind]
        instants = sorted(started.leased_at for started in of_kind)
        assert most_within(instants, rate.per_s) <= rate.count + rate.burst
        outside = sorted(started.began_at for started in of_kind)
        assert most_within(outside, rate.per_s - delay_s) <= rate.count + rate.burst
        assert len(instants) == 30, "the rate is a limit, not a stop"


@pytest.mark.rule("LIM-05", "LIM-01")
def test_limits_that_overlap_in_every_way_make_no_deadlock_between_rate_and_slot(
    open_store: OpenStore, crew: Crew
) -> None:
    store = open_store()
    limits = [
        Limit("default", resource="default", slots=3),
        Limit("a", type="a", slots=2, rate=Rate(1000, 1.0, 50)),
        Limit("b", type="b", rate=Rate(1000, 1.0, 50), per_partition=True),
        Limit("all", slots=4, rate=Rate(2000, 1.0, 50)),
    ]
    store.write_sync(declare_limits, (), limits, by="first")
    amount = 200
    enqueue_all(store, [NewJob("ab"[n % 2], partition=str(n % 5)) for n in range(amount)])
    shifts = crew.all_at_once(work_until_empty, open_store.url, "unlimited", 2)
    assert len(set(flatten([shift.claimed for shift in shifts]))) == amount
    assert count(store, "leases") == 0


@pytest.mark.rule("LIM-09", "LIM-10", "LIM-04", "CAP-02")
def test_eight_processes_never_exceed_weights_and_partitions_nor_double_a_slot_number(
    open_store: OpenStore, crew: Crew
) -> None:
    store = open_store()
    limits = [
        Limit("gpu", resource="gpu", slots=5),
        Limit("customer", resource="gpu", type="a", slots=2, per_partition=True, fair=True),
    ]
    store.write_sync(declare_limits, (), limits, by="first")
    light = [NewJob("a", resource="gpu", partition="xyz"[n % 3]) for n in range(120)]
    heavy = [NewJob("b", resource="gpu", weight=2 + n % 3, partition=f"heavy {n}") for n in range(40)]
    enqueue_all(store, [job for pair in zip(light, heavy * 3, strict=True) for job in pair][:160])
    amount = count(store, "jobs")
    seen = crew.all_at_once(work_and_watch, open_store.url)
    assert len(set(flatten([item.claimed for item in seen]))) == amount
    assert [item.doubled for item in seen if item.doubled] == []
    assert max(item.most_weight for item in seen) <= 5
    assert max(item.most_of_a_partition for item in seen) <= 2
    assert max(item.together for item in seen) >= 2, "they really worked at the same time"
    assert count(store, "leases") == 0


@pytest.mark.rule("LEASE-03")
def test_no_fence_is_ever_given_twice(open_store: OpenStore, crew: Crew) -> None:
    open_store()
    amount = 1200
    drawn = flatten(crew.all_at_once(draw_fences, open_store.url, 15, amount, processes=4))
    drawn.sort()
    assert all(after - before >= amount for before, after in pairwise(drawn))


@pytest.mark.rule("OPS-06", "DEC-002")
def test_processes_that_write_at_the_same_time_never_see_the_store_locked(open_store: OpenStore, crew: Crew) -> None:
    store = open_store()
    ids = flatten(crew.all_at_once(enqueue_many, open_store.url, 60))
    assert len(set(ids)) == 8 * 60
    assert rows(store, "SELECT count(*), count(DISTINCT position) FROM jobs") == [(480, 480)]


@pytest.mark.rule("OPS-02")
def test_processes_that_open_a_new_store_at_once_migrate_it_once(
    store_url: str, crew: Crew, engine: str, request: pytest.FixtureRequest
) -> None:
    url = store_url if engine == "sqlite" else str(request.getfixturevalue("postgres_url"))
    assert set(crew.all_at_once(open_and_close, url, processes=4)) == {len(migrations(engine))}
