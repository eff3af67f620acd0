"""Explanations of Schedules: the next time with all that competed for it, and the reasons why there is none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import NotFound
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.observe.explain import explain_schedule
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.pauses import pause, resume
from holdbeat.store.running.workers import register_worker
from holdbeat.store.schedules.schedules import disable_schedule, pause_schedule, set_hints
from tests.conformance.acts import claim_one, fail
from tests.conformance.contract.test_explain import codes, only
from tests.conformance.schedule_acts import fire, jobs_of, make, make_adaptive, make_endpoint


def why(store: PersistenceAdapter, reference: str) -> dict[str, Any]:
    answer = store.read_sync(explain_schedule, reference)
    assert set(answer) >= {"state", "summary", "reasons", "estimated_start"}
    assert all(reason["detail"].endswith(".") for reason in answer["reasons"])
    return answer


@pytest.mark.rule("TIME-09")
def test_a_plain_schedule_names_its_next_time_and_its_timetable(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, "backup", interval_s=60)
    answer = why(store, "backup")
    at = clock.now() + timedelta(seconds=60)
    assert (answer["state"], answer["estimated_start"]) == ("planned", iso(at))
    assert codes(answer) == ["planned", "timetable"]
    assert answer["summary"] == f"backup: It fires next at {iso(at)} (in 1 min)."
    clock.advance(60)
    fire(store)
    latest = only(why(store, schedule.id), "occurrence")
    assert (latest["status"], latest["job_id"]) == ("fired", jobs_of(store, schedule)[0].id)


@pytest.mark.rule("TIME-05")
def test_jitter_is_part_of_the_next_time(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, interval_s=3600, jitter_s=600)
    planned = only(why(store, schedule.id), "planned")
    assert planned["next_run_at"] == iso(clock.now() + timedelta(hours=1))
    assert planned["fires_at"] > planned["next_run_at"] and "jitter" in planned["detail"]


@pytest.mark.rule("GOV-03", "GOV-06")
def test_an_adaptive_schedule_shows_all_candidates_the_winner_and_the_clamps(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make_adaptive(store, interval_s=3600, min_interval_s=300)
    store.write_sync(set_hints, schedule.id, interval_s=60, reason="errors are up")
    answer = why(store, schedule.id)
    candidates = {reason["name"]: reason["won"] for reason in answer["reasons"] if reason["code"] == "candidate"}
    assert candidates == {"interval": False, "hint_interval": True}
    clamp = only(answer, "clamp")
    assert (clamp["name"], clamp["to"]) == ("min_interval_s", iso(clock.now() + timedelta(seconds=300)))
    assert answer["estimated_start"] == clamp["to"]
    assert any("errors are up" in reason["detail"] for reason in answer["reasons"])


@pytest.mark.rule("GOV-07", "TIME-10")
def test_a_paused_schedule_says_until_when_and_why(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store)
    until = clock.now() + timedelta(hours=2)
    store.write_sync(pause_schedule, schedule.id, until, "maintenance")
    answer = why(store, schedule.id)
    assert (answer["state"], answer["estimated_start"]) == ("paused", None)
    assert "in 2 h" in answer["summary"] and "maintenance" in answer["summary"]
    store.write_sync(pause_schedule, schedule.id)
    assert "until somebody resumes it" in why(store, schedule.id)["summary"]
    assert only(why(store, schedule.id), "paused")["until"] is None


def test_a_disabled_schedule_says_what_to_do(store: PersistenceAdapter) -> None:
    schedule = make(store)
    store.write_sync(disable_schedule, schedule.id)
    answer = why(store, schedule.id)
    assert answer["state"] == "disabled" and "enabled" in answer["summary"]


@pytest.mark.rule("GOV-09", "GOV-01")
def test_an_adaptive_schedule_in_flight_names_the_job_and_later_its_failures(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make_endpoint(store)
    clock.advance(60)
    fire(store)
    job = jobs_of(store, schedule)[0]
    answer = why(store, schedule.id)
    assert answer["state"] == "in_flight"
    assert only(answer, "in_flight_jobs")["job_ids"] == [job.id]
    fail(store, claim_one(store, first_slot=0, http=1))
    answer = why(store, schedule.id)
    assert answer["state"] == "planned"
    assert only(answer, "failures")["failure_count"] == 1


@pytest.mark.rule("GOV-07", "GOV-09")
def test_a_pause_during_a_run_is_explained_before_the_unfinished_job(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make_endpoint(store)
    clock.advance(60)
    fire(store)
    claim_one(store, first_slot=0, http=1)
    store.write_sync(pause_schedule, schedule.id, None, "the shop moves")
    answer = why(store, schedule.id)
    assert answer["state"] == "paused"
    assert "until somebody resumes it" in answer["summary"] and "the shop moves" in answer["summary"]
    assert codes(answer)[:2] == ["paused", "in_flight_jobs"]


@pytest.mark.rule("GOV-09", "LIM-06")
def test_an_endpoint_whose_job_waits_says_what_the_job_waits_for(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make_endpoint(store)
    clock.advance(60)
    fire(store)
    store.write_sync(pause, "http", reason="the network is rebuilt")
    job = jobs_of(store, schedule)[0]
    answer = why(store, schedule.id)
    waits = only(answer, "in_flight_waits")
    assert waits["job_id"] == job.id and "paused" in waits["codes"]
    assert "the network is rebuilt" in waits["detail"] and "the network is rebuilt" in answer["summary"]
    store.write_sync(resume, "http")
    claim_one(store, first_slot=0, http=1)
    assert "in_flight_waits" not in codes(why(store, schedule.id))


@pytest.mark.rule("TIME-03", "TIME-09")
def test_a_due_time_that_nobody_fires_is_called_overdue(store: PersistenceAdapter, clock: ManualClock) -> None:
    make(store, "backup", interval_s=60)
    store.write_sync(register_worker, Worker(id="plain", kind=WorkerKind.WORKER, host="here", pid=1), LeaseTerms())
    due = clock.now() + timedelta(seconds=60)
    clock.advance(61)
    assert why(store, "backup")["reasons"][0]["code"] == "planned", "a trigger may be about to fire it"
    clock.advance(9)
    answer = why(store, "backup")
    overdue = only(answer, "overdue")
    assert overdue["fires_at"] == iso(due) and answer["estimated_start"] is None
    assert answer["summary"] == (
        f"backup: It was due at {iso(due)} (10 s ago) and has not fired: no process that fires schedules is alive. "
        "Start one with `holdbeat serve`."
    )
    store.write_sync(register_worker, Worker(id="server", kind=WorkerKind.SERVE, host="here", pid=2), LeaseTerms())
    assert "fires as soon as" in why(store, "backup")["summary"]


def test_an_unknown_schedule_is_not_explained(store: PersistenceAdapter) -> None:
    with pytest.raises(NotFound):
        why(store, "nobody")


@pytest.mark.rule("DEC-006")
def test_an_explanation_shows_the_decision_but_not_what_the_governor_remembers(store: PersistenceAdapter) -> None:
    schedule = make_endpoint(store)
    assert schedule.last_decision is not None and "memory" in schedule.last_decision
    decision = why(store, schedule.id)["last_decision"]
    assert decision["winner"] == "interval" and "memory" not in decision
