"""Lists page by page, and the queue as people read it."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.queue.move import move_job
from holdbeat.store.queue.pauses import pause
from holdbeat.store.queue.templates import archive_template, create_template
from holdbeat.store.reads.list_jobs import list_groups, list_jobs, list_runs, list_templates
from holdbeat.store.reads.queue_view import queue
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.workers import register_worker
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_all,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    fail,
    make_group,
    rows,
    skip,
)

ONCE = RetryPolicy(max_attempts=0)


def ids(page: Any) -> list[str]:
    return [job.id for job in page.items]


def waiting(page: Any) -> list[str]:
    return [entry.job.id for entry in page.items]


def all_pages(store: PersistenceAdapter, verb: Any, *args: Any, limit: int = 2) -> list[Any]:
    collected: list[Any] = []
    cursor = None
    while True:
        page = store.read_sync(verb, *args, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        collected += page.items
        cursor = page.next_cursor
        if cursor is None:
            return collected


@pytest.mark.rule("API-03")
def test_jobs_come_newest_first_and_whole(store: PersistenceAdapter) -> None:
    first, second = enqueue_one(store), enqueue_one(store)
    taken = claim_one(store)
    page = store.read_sync(list_jobs)
    assert (ids(page), page.next_cursor) == ([second.id, first.id], None)
    assert page.items[1].run is not None
    assert (page.items[1].run.id, page.items[1].worker_id) == (taken.lease.id, "w")


@pytest.mark.rule("FND-01", "API-03")
@pytest.mark.parametrize("filters", [{}, {"status": "QUEUED"}, {"status": "FAILED"}, {"label": "team=x"}])
def test_jobs_come_oldest_first_if_asked_page_by_page_and_a_cursor_is_of_one_order(
    store: PersistenceAdapter, filters: dict[str, str]
) -> None:
    made = enqueue_all(store, [NewJob("noop", labels={"team": "x"}, retry_policy=ONCE) for _ in range(7)])
    if filters.get("status") == "FAILED":
        for _ in made:
            fail(store, claim_one(store))
    seen: list[str] = []
    cursor = None
    while True:
        page = store.read_sync(list_jobs, filters, limit=3, cursor=cursor, order="oldest")
        seen += ids(page)
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
        with pytest.raises(Invalid):
            store.read_sync(list_jobs, filters, limit=3, cursor=cursor)
    assert seen == [job.id for job in made]


@pytest.mark.rule("API-03")
def test_pages_neither_repeat_nor_drop_what_was_there_all_the_time(store: PersistenceAdapter) -> None:
    there = [job.id for job in enqueue_all(store, [NewJob("noop") for _ in range(9)])]
    seen: list[str] = []
    cursor = None
    while True:
        page = store.read_sync(list_jobs, limit=2, cursor=cursor)
        seen += ids(page)
        cursor = page.next_cursor
        if cursor is None:
            break
        enqueue_one(store)
        complete(store, claim_one(store))
        change(store, "DELETE FROM jobs WHERE id = :id", id=page.items[-1].id)
    assert seen == there[::-1]


@pytest.mark.rule("API-02", "API-03")
def test_each_filter_finds_what_it_names(store: PersistenceAdapter) -> None:
    a = enqueue_one(store, "a", resource="gpu", labels={"team": "x", "odd key": "1=2"}, retry_policy=ONCE)
    b = enqueue_one(store, "b", schedule_id="s", template_id="t", labels={"team": "y", "$.team": "x"}, priority=50)
    _, (member,) = make_group(store, GroupMode.PARALLEL, OnFailure.STOP, [NewJob("c")])
    for filters, expected in (
        ({"type": "a"}, [a]),
        ({"resource": "gpu"}, [a]),
        ({"schedule_id": "s"}, [b]),
        ({"template_id": "t"}, [b]),
        ({"group_id": member.group_id}, [member]),
        ({"label": "team=x"}, [a]),
        ({"label": "team:y"}, [b]),
        ({"label": "$.team=x"}, [b]),
        ({"label": "odd key=1=2"}, [a]),
        ({"label": '"=x'}, []),
        ({"label": "[0]=x"}, []),
        ({"label": ["team=y", "$.team=x"]}, [b]),
        ({"label": "team=x", "type": "b"}, []),
        ({"label": "odd key=1=2", "priority": 0}, [a]),
        ({"priority": 50}, [b]),
        ({"priority": "50"}, [b]),
        ({"priority": "1..100"}, [b]),
        ({"priority": "..49"}, [member, a]),
        ({"type": None}, [member, b, a]),
    ):
        assert ids(store.read_sync(list_jobs, filters)) == [job.id for job in expected], filters
    fail(store, claim_one(store, types=["a"]))
    skip(store, claim_one(store, types=["b"]))
    cancel(store, member.id)
    running = enqueue_one(store)
    claim_one(store)
    done = enqueue_one(store, "c")
    complete(store, claim_one(store, first_slot=1))
    waits = enqueue_one(store)
    for status, expected_ids in (
        ("FAILED", [a.id]),
        ("SKIPPED", [b.id]),
        ("CANCELLED", [member.id]),
        ("RUNNING", [running.id]),
        ("COMPLETED", [done.id]),
        ("QUEUED", [waits.id]),
        (["FAILED", "SKIPPED"], [b.id, a.id]),
        (["RUNNING", "COMPLETED", "CANCELLED"], [done.id, running.id, member.id]),
    ):
        assert ids(store.read_sync(list_jobs, {"status": status})) == expected_ids, status


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    ("filters", "limit", "field"),
    [
        ({"colour": "red"}, None, "colour"),
        ({"status": "DONE"}, None, "status"),
        ({"status": []}, None, "status"),
        ({"status": 5}, None, "status"),
        ({"label": "team"}, None, "label"),
        ({"label": "=x"}, None, "label"),
        ({"type": "a\x00"}, None, "type"),
        ({"ids": ["x"]}, None, "ids"),
        ({}, 0, "limit"),
        ({}, 501, "limit"),
        ({}, 10**9, "limit"),
        ({}, -1, "limit"),
        ({}, True, "limit"),
    ],
)
def test_what_a_list_does_not_know_is_refused(
    store: PersistenceAdapter, filters: dict[str, Any], limit: int | None, field: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        store.read_sync(list_jobs, filters, limit=limit)
    assert refusal.value.field == field


@pytest.mark.rule("API-03")
def test_a_cursor_is_good_for_its_own_list_and_filters_only(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("a") for _ in range(3)])
    cursor = store.read_sync(list_jobs, {"type": "a"}, limit=1).next_cursor
    assert cursor is not None
    assert len(store.read_sync(list_jobs, {"type": "a"}, limit=500, cursor=cursor).items) == 2
    for verb, filters in ((list_jobs, {"type": "b"}), (list_jobs, {}), (list_runs, {"type": "a"})):
        with pytest.raises(Invalid) as refusal:
            store.read_sync(verb, filters, cursor=cursor)
        assert refusal.value.code == "bad_cursor"


@pytest.mark.rule("API-03")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cursor_that_somebody_touched_is_refused(store: PersistenceAdapter, data: st.DataObject) -> None:
    if not store.read_sync(list_jobs).items:
        enqueue_all(store, [NewJob("a") for _ in range(2)])
    cursor = store.read_sync(list_jobs, limit=1).next_cursor
    assert cursor is not None
    at = data.draw(st.integers(0, len(cursor) - 1))
    forged = data.draw(
        st.one_of(
            st.text(max_size=40),
            st.characters().filter(lambda sign: sign != cursor[at]).map(lambda s: cursor[:at] + s + cursor[at + 1 :]),
            st.just(cursor[:at]),
            st.just(cursor + cursor),
            st.just(base64.urlsafe_b64encode(json.dumps(["jobs", "zz"]).encode()).decode()),
            st.just("A" * 5000),
        )
    )
    with pytest.raises(Invalid) as refusal:
        store.read_sync(list_jobs, cursor=forged)
    assert refusal.value.code == "bad_cursor"


@pytest.mark.rule("API-03")
def test_runs_are_listed_by_outcome_job_type_and_kind_of_error(store: PersistenceAdapter) -> None:
    failed = enqueue_one(store, "a", retry_policy=ONCE)
    fail(store, claim_one(store), ErrorKind.TIMEOUT)
    enqueue_one(store, "b")
    skip(store, claim_one(store))
    done = enqueue_one(store, "b")
    complete(store, claim_one(store), {"x": 1})
    running = enqueue_one(store, "c")
    claim_one(store)

    def found(**filters: Any) -> list[str]:
        return [item.run.job_id for item in store.read_sync(list_runs, filters).items]

    everything = store.read_sync(list_runs).items
    assert [item.type for item in everything] == ["c", "b", "b", "a"]
    assert everything[1].run.result == {"x": 1}
    assert found(status="FAILED") == found(error_kind="timeout") == found(job_id=failed.id) == [failed.id]
    assert found(error_kind=["crash", "lost"]) == []
    assert found(status="RUNNING") == [running.id]
    assert found(status=["RUNNING", "COMPLETED"]) == [running.id, done.id]
    assert len(found(status=["FAILED", "SKIPPED"])) == len(found(type="b")) == 2
    assert len(all_pages(store, list_runs, limit=1)) == 4
    for filters in ({"status": "CANCELLED"}, {"error_kind": "bad"}, {"resource": "gpu"}):
        with pytest.raises(Invalid):
            store.read_sync(list_runs, filters)


@pytest.mark.rule("API-03")
def test_groups_and_templates_are_listed_newest_first(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("a"), AnnouncedType("b")])
    groups = [make_group(store, GroupMode.PARALLEL, OnFailure.STOP, 1)[0] for _ in range(3)]
    assert [group.id for group in all_pages(store, list_groups)] == [group.id for group in groups[::-1]]
    claim_some(store, 1)
    assert [g.id for g in store.read_sync(list_groups, {"status": "RUNNING"}).items] == [groups[0].id]
    names = ["t1", "t2", "t3"]
    for name in names:
        store.write_sync(create_template, {"name": name, "type": "b" if name == "t2" else "a"})
    store.write_sync(archive_template, "t3")

    def found(**filters: Any) -> list[str]:
        return [template.name for template in store.read_sync(list_templates, filters).items]

    assert found() == ["t2", "t1"]
    assert (found(archived=True), found(archived="all")) == (["t3"], ["t3", "t2", "t1"])
    assert found(type="b") == ["t2"]
    assert len(all_pages(store, list_templates, {"archived": "all"}, limit=1)) == 3
    with pytest.raises(Invalid):
        store.read_sync(list_templates, {"archived": "maybe"})


# --- the queue --------------------------------------------------------------------------------------------


@pytest.mark.rule("INV-004")
def test_the_queue_is_in_plain_order_with_delayed_and_gated_jobs_in_their_place(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    low = enqueue_one(store)
    delayed = enqueue_one(store, priority=9, not_before=clock.now() + timedelta(hours=1))
    high = enqueue_one(store, priority=9)
    _, (first, second) = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    expected = [delayed.id, high.id, low.id, first.id, second.id]
    assert waiting(store.read_sync(queue)) == expected
    for limit in (1, 2, 3, 4, 5):
        assert [entry.job.id for entry in all_pages(store, queue, limit=limit)] == expected
    gpu = enqueue_one(store, resource="gpu")
    assert waiting(store.read_sync(queue, "gpu")) == [gpu.id]


@pytest.mark.rule("API-03", "DEC-005")
def test_a_renumbering_between_two_pages_of_the_queue_hides_nobody(store: PersistenceAdapter) -> None:
    jobs = [job.id for job in enqueue_all(store, [NewJob("noop", priority=3) for _ in range(6)])]
    change(store, "UPDATE jobs SET position = position + :by", by=50_000)
    change(store, "UPDATE jobs SET position = :p WHERE id = :id", id=jobs[5], p=50_501)
    page = store.read_sync(queue, limit=3)
    store.write_sync(move_job, jobs[4], after=jobs[5])
    store.write_sync(move_job, jobs[4], before=jobs[5])
    store.write_sync(move_job, jobs[0], to="top")
    rest = store.read_sync(queue, limit=10, cursor=page.next_cursor)
    assert waiting(page) + waiting(rest) == jobs


@pytest.mark.rule("API-03")
def test_a_claimed_job_at_the_end_of_a_page_hides_nobody(store: PersistenceAdapter) -> None:
    jobs = [job.id for job in enqueue_all(store, [NewJob("noop") for _ in range(5)])]
    page = store.read_sync(queue, limit=2)
    claim_some(store, 2)
    store.write_sync(move_job, jobs[4], to="top")
    store.write_sync(move_job, jobs[4], to="bottom")
    assert waiting(store.read_sync(queue, cursor=page.next_cursor)) == jobs[2:]


def hire(store: PersistenceAdapter, **fields: Any) -> None:
    worker = Worker("live", WorkerKind.WORKER, "host", 1, **{"slots": 1, "types": ("noop", "a"), **fields})
    store.write_sync(register_worker, worker, LeaseTerms())


@pytest.mark.rule("INV-004", "QUE-04")
def test_each_job_of_the_queue_says_what_keeps_it_waiting(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:default=1,gpu=1,direct=1,free=5,off=5")
    hire(store)
    enqueue_one(store, resource="gpu")
    claim_one(store)
    free = enqueue_one(store, resource="free")
    full = enqueue_one(store, resource="gpu")
    paused = enqueue_one(store, resource="off")
    store.write_sync(pause, "off")
    foreign = enqueue_one(store, "b", resource="free")
    delayed = enqueue_one(store, resource="free", not_before=clock.now() + timedelta(hours=1))
    gated = enqueue_one(store, resource="free")
    overlapped = enqueue_one(store, resource="free")
    change(store, "UPDATE jobs SET hold = 2 WHERE id = :id", id=gated.id)
    change(store, "UPDATE jobs SET hold = 3 WHERE id = :id", id=overlapped.id)
    behind = enqueue_one(store, resource="direct")

    def reserve(tx: Transaction) -> None:
        tx.insert(
            "direct_reservations",
            ("id", "type", "resource", "requested_at", "expires_at"),
            [("r", "a", "direct", tx.now, tx.now + timedelta(seconds=60))],
        )

    store.write_sync(reserve)
    by_name = {entry.job.id: entry.blocked_by for entry in store.read_sync(queue).items}
    assert by_name == {
        free.id: (),
        full.id: ("resource_full",),
        paused.id: ("paused",),
        foreign.id: ("no_worker",),
        delayed.id: ("delayed",),
        gated.id: ("group_predecessor",),
        overlapped.id: ("overlap",),
        behind.id: ("reservation_waiting",),
    }
    store.write_sync(pause)
    clock.advance(3600)
    by_name = {entry.job.id: entry.blocked_by for entry in store.read_sync(queue).items}
    assert by_name[free.id] == ("paused", "no_worker")
    assert by_name[delayed.id] == ("paused", "no_worker")
    assert claim_all(store) == []


@pytest.mark.rule("INV-004")
def test_a_worker_that_serves_other_resources_or_stops_is_none_for_the_job(store: PersistenceAdapter) -> None:
    enqueue_one(store, resource="gpu")
    enqueue_one(store, "http", resource="http")
    for fields, blocked in (
        ({"resources": ("cpu",)}, ["no_worker"] * 2),
        ({"resources": ("gpu",)}, [None, "no_worker"]),
        ({"types": ("http",), "http_slots": 4}, ["no_worker", None]),
        ({"slots": 0}, ["no_worker"] * 2),
    ):
        hire(store, **fields)
        page = store.read_sync(queue)
        assert [entry.blocked_by[0] if entry.blocked_by else None for entry in page.items] == blocked
    hire(store)
    change(store, "UPDATE workers SET stopping_at = started_at")
    assert store.read_sync(queue).items[0].blocked_by == ("no_worker",)


@pytest.mark.rule("INV-003", "INV-004")
def test_a_job_whose_workers_have_no_free_slot_says_so(store: PersistenceAdapter) -> None:
    hire(store, slots=1)
    enqueue_one(store)
    claim_one(store, worker="live")
    waiting = enqueue_one(store, resource="other")
    by_name = {entry.job.id: entry.blocked_by for entry in store.read_sync(queue).items}
    assert by_name[waiting.id] == ("workers_busy",)


@pytest.mark.rule("API-02")
@pytest.mark.parametrize("priority", ["101", "-1", "high", "60..50", "1..2..3", True, "0..101"])
def test_a_priority_that_cannot_be_is_refused(store: PersistenceAdapter, priority: object) -> None:
    with pytest.raises(Invalid, match="priority must be a number from 0 to 100, or a range"):
        store.read_sync(list_jobs, {"priority": priority})


@pytest.mark.rule("API-03")
def test_labels_are_found_by_their_index_whatever_becomes_of_the_job(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    jobs = enqueue_all(store, [NewJob("a", labels={"team": f"t{n % 3}"}) for n in range(30)])
    page = store.read_sync(list_jobs, {"label": "team=t1"}, limit=4)
    rest = store.read_sync(list_jobs, {"label": "team=t1"}, limit=100, cursor=page.next_cursor)
    assert ids(page) + ids(rest) == [job.id for job in reversed(jobs) if job.labels["team"] == "t1"]
    store.write_sync(change_job, jobs[1].id, {"labels": {"team": "t2", "a=b": "c"}})
    assert jobs[1].id not in ids(store.read_sync(list_jobs, {"label": "team=t1"}))
    assert ids(store.read_sync(list_jobs, {"label": "team=t2"}))[-1] in (jobs[1].id, jobs[2].id)
    assert ids(store.read_sync(list_jobs, {"label": "a=b=c"})) == []
    cancel(store, jobs[1].id)
    clock.advance(100)
    store.write_sync(prune, clock.now())
    assert rows(store, "SELECT label FROM job_labels WHERE job_id = :id", id=jobs[1].id) == []
    retried = enqueue_one(store, "r", labels={"k": "v"}, retry_policy=RetryPolicy(max_attempts=1, base_delay_s=0))
    fail(store, claim_one(store, types=["r"]))
    assert len(ids(store.read_sync(list_jobs, {"label": "k=v"}))) == 2, retried
