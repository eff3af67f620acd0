"""FND-01, AUD-01: jobs and events are found by text, by time and by who acted, page by page, in short reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain import events
from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import Invalid, NotFound
from holdbeat.domain.events import Event
from holdbeat.domain.job import NewJob
from holdbeat.domain.reservation import ReservationKind
from holdbeat.operations import find_operation
from holdbeat.operations.operation import OperationContext
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.questions import ask_question
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads import find_events as finding
from holdbeat.store.reads import find_jobs
from holdbeat.store.reads.find_events import EventSearch
from holdbeat.store.running.held_slots import hold_slot
from tests.conformance.acts import cancel, change, claim_one, complete, enqueue_all, enqueue_one
from tests.conformance.contract.test_questions import asked


def as_(actor: str | None) -> OperationContext:
    return OperationContext(actor, True, lambda tx: OutboundPolicy(loopback_server=True))


def ask(store: PersistenceAdapter, name: str, /, *args: Any, by: str | None = None, **kwargs: Any) -> Any:
    operation = find_operation(name)
    assert operation is not None
    return operation.run_sync(store, as_(by), *args, **kwargs)


def found(store: PersistenceAdapter, **search: Any) -> list[Event]:
    return store.read_sync(finding.find_events, EventSearch(**search)).events


@pytest.fixture
def announced(store: PersistenceAdapter) -> PersistenceAdapter:
    store.write_sync(announce, [AnnouncedType("noop"), AnnouncedType("story"), AnnouncedType("http")])
    return store


@pytest.mark.rule("AUD-01")
def test_each_act_is_on_record_with_who_did_it_and_what_changed(
    announced: PersistenceAdapter, clock: ManualClock
) -> None:
    store = announced
    job = ask(store, "submit_job", {"type": "story", "title": "A fox"}, by="anna on desk")
    ask(store, "update_job", job["id"], {"priority": 5, "labels": {"a": "b"}}, by="agent")
    ask(store, "pause_queue", "gpu", by="agent")
    ask(store, "cancel_job", job["id"], "no", by="ben on desk")
    ask(store, "schedules.create", {"name": "s", "type": "noop", "interval_s": 60}, by="agent")
    ask(store, "schedules.update", "s", {"interval_s": 90}, by="ben on desk")
    acts = {(event.name, event.data.get("actor")): event.data for event in found(store)}
    assert acts.keys() >= {
        (events.JOB_QUEUED, "anna on desk"),
        (events.JOB_CHANGED, "agent"),
        (events.QUEUE_PAUSED, "agent"),
        (events.JOB_CANCELLED, "ben on desk"),
        (events.SCHEDULE_CHANGED, "agent"),
        (events.SCHEDULE_CHANGED, "ben on desk"),
    }
    assert acts[events.JOB_CHANGED, "agent"]["values"] == {"priority": [0, 5], "labels": [{}, {"a": "b"}]}
    assert acts[events.SCHEDULE_CHANGED, "ben on desk"]["values"] == {"interval_s": [60, 90]}
    assert {event.name for event in found(store, actor="BEN")} >= {events.JOB_CANCELLED, events.SCHEDULE_CHANGED}
    assert all("ben" in event.data["actor"] for event in found(store, actor="ben"))


@pytest.mark.rule("AUD-01")
def test_what_nobody_asked_for_has_no_actor(announced: PersistenceAdapter) -> None:
    store = announced
    ask(store, "submit_job", {"type": "noop"}, by="anna")
    complete(store, claim_one(store))
    enqueue_one(store)
    acted = [event.name for event in found(store) if "actor" in event.data]
    assert acted == [events.JOB_QUEUED]


@pytest.mark.rule("FND-01")
def test_events_are_found_by_text_name_job_schedule_and_time(store: PersistenceAdapter, clock: ManualClock) -> None:
    fox = enqueue_one(store, title="A quick fox")
    clock.advance(60)
    hen = enqueue_one(store, title="A hen")
    cancel(store, hen.id)
    assert {event.job_id for event in found(store, text="QUICK")} == {fox.id}
    assert {event.job_id for event in found(store, text=hen.id[-8:])} == {hen.id}
    assert [event.name for event in found(store, names=[events.JOB_CANCELLED])] == [events.JOB_CANCELLED]
    assert [event.name for event in found(store, job_id=hen.id)] == [events.JOB_CANCELLED, events.JOB_QUEUED]
    assert {event.job_id for event in found(store, until=clock.now())} == {fox.id}
    assert {event.job_id for event in found(store, since=clock.now())} == {hen.id}
    assert found(store, text="nowhere") == []


@pytest.mark.rule("FND-01")
@pytest.mark.parametrize("name", [events.JOB_QUEUED, events.JOB_CANCELLED])
def test_a_search_goes_on_page_by_page_over_the_whole_log(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(finding, "READ_AT_MOST", 40)
    monkeypatch.setattr(finding, "AT_ONCE", 20)
    jobs = enqueue_all(store, [NewJob("noop", title="fox" if n % 10 == 0 else "hen") for n in range(120)])
    for job in jobs:
        cancel(store, job.id)
    pages, cursor = [], None
    while True:
        page = ask(store, "search_events", q="fox", name=[name], limit=5, cursor=cursor)
        pages.append([event["job_id"] for event in page["items"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [job_id for page in pages for job_id in page] == [job.id for job in reversed(jobs) if job.title == "fox"]
    assert len(pages) > 2
    with pytest.raises(Invalid):
        ask(store, "search_events", q="hen", cursor=ask(store, "search_events", q="fox", limit=5)["next_cursor"])


@pytest.mark.rule("FND-01")
def test_jobs_are_found_by_text_beyond_the_newest_page_by_page(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(find_jobs, "NEWEST", 25)
    jobs = enqueue_all(store, [NewJob("noop", params={"prompt": "a fox" if n % 20 == 0 else "x"}) for n in range(101)])
    answers: list[str] = []
    cursor = None
    reads = 0
    while reads == 0 or cursor is not None:
        page = ask(store, "list_jobs", q="FOX", cursor=cursor)
        answers += [job["id"] for job in page["items"]]
        cursor, reads = page["next_cursor"], reads + 1
    assert answers == [job.id for job in reversed(jobs) if job.params["prompt"] == "a fox"]
    assert reads == 5
    clock.advance(10)
    late = enqueue_one(store)
    page = ask(store, "list_jobs", created_after=iso(clock.now() - timedelta(seconds=5)))
    assert [job["id"] for job in page["items"]] == [late.id]


@pytest.mark.rule("FND-01")
def test_a_job_is_named_by_the_beginning_or_the_end_of_its_id_where_that_is_unambiguous(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first = enqueue_one(store)
    clock.advance(100_000)
    second = enqueue_one(store)
    assert ask(store, "get_job", second.id[:13])["id"] == second.id
    assert ask(store, "get_job", first.id[-12:].upper())["id"] == first.id
    assert ask(store, "cancel_job", first.id[-12:])["status"] == "CANCELLED"
    with pytest.raises(Invalid, match="More than one job has") as refusal:
        ask(store, "get_job", first.id[:4])
    assert refusal.value.code == "ambiguous_id"
    for nothing in ("ffffffff", "xyz", "", "%"):
        with pytest.raises(NotFound):
            ask(store, "get_job", nothing)


@pytest.mark.rule("FND-01")
def test_all_that_has_no_name_is_named_by_the_end_of_its_id(announced: PersistenceAdapter) -> None:
    store = announced
    group = ask(store, "create_group", {"mode": "parallel", "jobs": [{"type": "noop"}, {"type": "noop"}]})
    taken = claim_one(store)
    question = store.write_sync(ask_question, asked(taken, "Send it?", choices=["yes"]))
    slot = store.write_sync(hold_slot, ReservationKind.SLOT, "gpu", wait_s=60, ttl_s=60)
    webhook = ask(store, "create_webhook", "http://127.0.0.1:9/hook")
    delivery = ask(store, "test_webhook", webhook["id"][-10:])
    assert ask(store, "get_group", group["id"][-10:])["id"] == group["id"]
    assert ask(store, "get_job_run", taken.lease.id[-10:])["id"] == taken.lease.id
    assert ask(store, "get_logs", group["jobs"][0]["id"][-10:])["items"] == []
    assert ask(store, "get_reservation", slot.id[-10:])["id"] == slot.id
    assert ask(store, "cancel_reservation", slot.id[-10:])["status"] == "RELEASED"
    assert ask(store, "get_webhook", webhook["id"][-10:])["id"] == webhook["id"]
    assert ask(store, "get_delivery", delivery["id"][-10:])["id"] == delivery["id"]
    assert ask(store, "answer_question", question["id"][-10:], "yes")["answer"] == "yes"
    second = group["jobs"][1]
    with pytest.raises(NotFound, match="no reservation"):
        ask(store, "get_reservation", webhook["id"][-10:])
    last = enqueue_one(store)
    assert ask(store, "move_job", last.id[-10:], before=second["id"][-10:])["position"] < second["position"]


@pytest.mark.rule("FND-01")
def test_what_has_a_name_is_named_by_the_end_of_its_id_too_but_not_by_a_word(announced: PersistenceAdapter) -> None:
    store = announced
    schedule = ask(store, "schedules.create", {"name": "nightly", "type": "noop", "interval_s": 60})
    endpoint = ask(store, "endpoints.create", {"name": "probe", "url": "http://127.0.0.1:9/", "interval_s": 60})
    template = ask(store, "create_template", {"name": "crawl", "type": "noop"})
    assert ask(store, "schedules.get", schedule["id"][-10:])["name"] == "nightly"
    assert ask(store, "endpoints.pause", endpoint["id"][-10:])["paused_until"] is not None
    assert ask(store, "get_template", template["id"][-10:])["name"] == "crawl"
    for kind, part in (("schedules", endpoint["id"][-10:]), ("schedules", schedule["id"][-7:])):
        with pytest.raises(NotFound):
            ask(store, f"{kind}.delete", part)


@pytest.mark.rule("FND-01")
def test_schedules_and_endpoints_are_found_by_text_and_by_whether_they_fail(announced: PersistenceAdapter) -> None:
    store = announced
    for name in ("nightly crawl", "hourly report"):
        ask(store, "schedules.create", {"name": name, "type": "noop", "interval_s": 60, "labels": {"team": "art"}})
    call = {"name": "probe", "url": "http://127.0.0.1:9/Health", "interval_s": 60}
    endpoint = ask(store, "endpoints.create", call)
    change(store, "UPDATE schedules SET failure_count = 2 WHERE id = :id", id=endpoint["id"])

    def names(kind: str, **filters: Any) -> list[str]:
        return [item["name"] for item in ask(store, f"{kind}.list", **filters)["items"]]

    assert names("schedules", q="CRAWL") == ["nightly crawl"]
    assert names("schedules", q="art") == ["hourly report", "nightly crawl"]
    assert names("schedules", q="probe") == []
    assert names("endpoints", q="health") == names("endpoints", failing=True) == ["probe"]
    assert names("endpoints", failing=False) == names("endpoints", q="100%") == []
