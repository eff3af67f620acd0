"""The checker says nothing about a good history, and finds each promise that a hand-made one breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdbeat.torture.checker import CHECKS, History, check
from tests.checker import test_durable_checks as durable
from tests.checker.rows import POLICY, Rows, Spoil, add, both, change, end, job, of, remove, run, start, told


def good() -> Rows:
    """A small history with everything in it: a failure and its retry, a sequential group, a schedule, a request."""
    rows: Rows = {
        "acknowledged": [{"job": "a", "key": "k"}, {"job": "g1"}, {"job": "g2"}, {"job": "c"}],
        "cancelled": [{"job": "c", "monotonic": 60.0, "was_queued": True}],
        "starts": [
            start("a", 1, 1.0),
            start("b", 2, 13.0),
            start("g1", 3, 20.0),
            start("g2", 4, 23.0),
            start("s1", 5, 100.0),
            start("s2", 6, 160.0),
            {**start("d", 7, 50.0), "run": "request", "job": None, "token": "t"},
        ],
        "ends": [
            end("a", 2.0, "raised"),
            end("b", 14.0),
            end("g1", 22.0),
            end("g2", 24.0),
            end("s1", 101.0),
            end("s2", 161.0),
            {"run": "request", "monotonic": 51.0, "how": "returned"},
        ],
        "requests": [{"token": "t", "outcome": "COMPLETED"}],
        "limits": {"default": 1},
        "timetables": [{"schedule": "s", "first": 100.0, "every": 60.0, "until": 170.0}],
        "subscribed": "hook",
        "jobs": [
            job("a", "FAILED", retried_by="b", idempotency_key="k"),
            job("b", retry_of="a", retry_kind="auto", attempt=1, not_before=12.0),
            job("g1", group_id="g", sequence=0),
            job("g2", group_id="g", sequence=1),
            job("c", "CANCELLED"),
            job("s1", schedule_id="s", scheduled_for=100.0),
            job("s2", schedule_id="s", scheduled_for=160.0),
        ],
        "runs": [
            run("a", 1, 1.0, 2.0, "FAILED", error_kind="error"),
            run("b", 2, 13.0, 14.0),
            run("g1", 3, 20.0, 22.0),
            run("g2", 4, 23.0, 24.0),
            run("s1", 5, 100.0, 101.0),
            run("s2", 6, 160.0, 161.0),
        ],
        "groups": [{"id": "g", "mode": "sequential", "on_failure": "stop", "status": "COMPLETED"}],
        "occurrences": [
            {"schedule_id": "s", "due_at": 100.0, "status": "fired", "job_id": "s1", "count": 1},
            {"schedule_id": "s", "due_at": 160.0, "status": "fired", "job_id": "s2", "count": 1},
        ],
        "reservations": [{"id": "request", "status": "RELEASED", "outcome": "COMPLETED"}],
    }
    completed = ["b", "g1", "g2", "s1", "s2"]
    rows["deliveries"] = [
        told("a", "job.run.failed", 0),
        *(told(job_id, "job.run.completed", number) for number, job_id in enumerate(completed, 1)),
        told("c", "job.cancelled", 6),
        told(None, "group.finished", 7, "g"),
    ]
    rows["received"] = [{"delivery": row["id"]} for row in rows["deliveries"]]
    return rows


BREACHES: dict[str, tuple[str, Spoil]] = {
    "an acknowledged job is gone": ("lost", remove("jobs", "g1")),
    "an acknowledged job waits for ever": ("lost", change("jobs", "g1", status="QUEUED")),
    "the retry of an acknowledged job is gone": ("lost", remove("jobs", "b")),
    "the retry of an acknowledged job waits for ever": ("lost", change("jobs", "b", status="RUNNING")),
    "the job of a due time is gone": ("lost", remove("jobs", "s2")),
    "a cancelled job completed": ("cancel", change("jobs", "c", status="COMPLETED")),
    "a job that was cancelled in the queue began": ("cancel", add("starts", start("c", 8, 70.0))),
    "two jobs have one key": ("key", change("jobs", "g1", idempotency_key="k")),
    "one key was answered with two jobs": ("key", add("acknowledged", {"job": "g1", "key": "k"})),
    "a run began twice": ("start", add("starts", start("b", 2, 30.0))),
    "a job began under a run that is not on record": ("start", add("starts", {**start("x", 9, 30.0), "job": "x"})),
    "a job ran twice under two runs": ("start", add("starts", {**start("b", 9, 30.0), "run": "other"})),
    "a run began under another fence": ("start", change("starts", "run-b", "run", fence=99)),
    "a completed run never began": ("start", both(remove("starts", "run-b", "run"), remove("ends", "run-b", "run"))),
    "a completed run never returned": ("start", change("ends", "run-b", "run", how="stopped")),
    "a run returned and is on record as an error": (
        "start", both(change("runs", "run-b", status="FAILED", error_kind="error"),
                      change("jobs", "b", status="FAILED", permanently_failed=True)),
    ),
    "an error is on record of a handler that never began": ("start", remove("starts", "run-a", "run")),
    "a fence was given out twice": (
        "fence", both(change("runs", "run-b", fence=1), change("starts", "run-b", "run", fence=1)),
    ),
    "two runs share the only slot": ("limit", change("starts", "run-g2", "run", monotonic=21.5)),
    "a direct request shares the only slot": ("limit", change("starts", "request", "run", monotonic=23.5)),
    "a run without an end shares the only slot": ("limit", remove("ends", "run-g1", "run")),
    "an orphan still writes after its process was killed": (
        "limit", both(remove("ends", "run-g1", "run"),
                      lambda rows: rows.update(deaths=[{"process": "p1", "monotonic": 21.0}],
                                               ticks=[{"run": "run-g1", "monotonic": 23.5}])),
    ),
    "a thawed handler goes on beside its successor": (
        "limit", both(change("ends", "run-g1", "run", monotonic=23.6),
                      lambda rows: rows.update(frozen=[{"process": "p1", "since": 21.0, "until": 23.4}])),
    ),
    "the second member began before the first had ended": (
        "order", both(change("starts", "run-g2", "run", monotonic=21.5),
                      lambda rows: rows.update(limits={"default": 2})),
    ),
    "the second member ran first": (
        "order", both(change("starts", "run-g2", "run", monotonic=17.0),
                      change("ends", "run-g2", "run", monotonic=18.0)),
    ),
    "a failure has neither retry nor verdict": ("retry", both(
        remove("jobs", "b"), remove("runs", "run-b"), remove("starts", "run-b", "run"),
        change("jobs", "a", retried_by=None))),
    "a failure has a retry and a verdict": ("retry", change("jobs", "a", permanently_failed=True)),
    "a failure was retried twice": ("retry", add("jobs", job("z", retry_of="a", retry_kind="auto", attempt=1))),
    "a failure was given up too early": ("retry", both(
        remove("jobs", "b"), change("jobs", "a", retried_by=None, permanently_failed=True))),
    "a failure was retried more often than its policy allows": (
        "retry", change("jobs", "a", retry_policy={**POLICY, "max_attempts": 0})),
    "a rejected run was retried": ("retry", change("runs", "run-a", error_kind="rejected")),
    "an attempt was counted wrongly": ("retry", change("jobs", "b", attempt=2)),
    "a retry waits too short": ("retry", change("jobs", "b", not_before=7.0)),
    "a retry waits too long": ("retry", change("jobs", "b", not_before=22.0)),
    "a retry began before its time": ("retry", change("starts", "run-b", "run", wall=5.0)),
    "a failure does not name its retry": ("retry", change("jobs", "a", retried_by=None)),
    "a due time has no verdict": ("due", lambda rows: rows["occurrences"].pop()),
    "a due time has two verdicts": ("due", lambda rows: rows["occurrences"].append(rows["occurrences"][0])),
    "a due time is on record that is none": ("due", lambda rows: rows["occurrences"][1].update(due_at=150.0)),
    "a due time fired twice": ("due", both(
        add("jobs", job("s3", schedule_id="s", scheduled_for=160.0)),
        add("occurrences", {"schedule_id": "s", "due_at": 220.0, "status": "fired", "job_id": "s3", "count": 1}))),
    "a scheduled job belongs to no due time": ("due", add("jobs", job("s3", schedule_id="s", scheduled_for=220.0))),
    "a scheduled job began early": ("due", change("starts", "run-s2", "run", wall=150.0)),
    "a due time fired without a job": ("due", lambda rows: rows["occurrences"][0].update(job_id=None)),
    "a direct request ran twice": ("direct", add(
        "starts", {**start("d", 8, 70.0), "run": "request", "job": None, "token": "t"})),
    "a direct request was answered and never ran": ("direct", add("requests", {"token": "u", "outcome": "COMPLETED"})),
    "a direct request ran off the record": ("direct", remove("reservations", "request")),
    "a message is on record as delivered and never arrived": ("delivery", lambda rows: rows["received"].pop()),
    "a message was never sent": ("delivery", change("deliveries", "message-1", status="PENDING")),
    "the end of a job was never told": ("delivery", remove("deliveries", "message-1")),
    "the end of a job was told twice": ("delivery", add("deliveries", told("b", "job.run.completed", 1))),
    "the end of a group was never told": ("delivery", remove("deliveries", "message-7")),
    "a job is still under way": ("leftover", change("jobs", "s1", status="RUNNING")),
    "a run has no end": ("leftover", change("runs", "run-s1", status=None)),
    "a run has no job": ("leftover", remove("jobs", "s1")),
    "a job ended otherwise than its run": ("leftover", change("jobs", "s1", status="SKIPPED")),
    "a lease is held by nobody": ("leftover", lambda rows: rows.update(leases=[{"id": "run-s1"}])),
    "a reservation is active": ("leftover", change("reservations", "request", status="ACTIVE")),
    "a group did not end": ("leftover", change("groups", "g", status="RUNNING")),
}  # fmt: skip


CASES = {
    **{breach: (good, *found) for breach, found in BREACHES.items()},
    **{breach: (durable.good, *found) for breach, found in durable.BREACHES.items()},
}


@pytest.mark.rule("TOR-01")
@pytest.mark.parametrize("make", [good, durable.good], ids=["of jobs", "of durable work"])
def test_a_good_history_has_no_violation(make: Callable[[], Rows]) -> None:
    assert check(History(**make())) == []


@pytest.mark.rule("TOR-01")
@pytest.mark.parametrize("breach", CASES)
def test_the_checker_finds(breach: str) -> None:
    make, kind, spoil = CASES[breach]
    rows = make()
    spoil(rows)
    violations = check(History(**rows))
    assert kind in {violation.kind for violation in violations}, violations


@pytest.mark.rule("TOR-01")
def test_every_check_has_a_breach_that_it_alone_finds() -> None:
    """A check that finds nothing by itself would be no check."""
    silent = set(CHECKS)
    for make, _, spoil in CASES.values():
        rows = make()
        spoil(rows)
        silent -= {name for name, look in CHECKS.items() if list(look(History(**rows)))}
    assert silent == set()


@pytest.mark.rule("TOR-01")
def test_a_process_that_stands_still_executes_nothing_meanwhile() -> None:
    rows = good()
    of(rows["ends"], "run-g1", "run")["monotonic"] = 24.5
    assert {violation.kind for violation in check(History(**rows))} == {"limit", "order"}
    rows["frozen"] = [{"process": "p1", "since": 21.0, "until": 24.5}]
    of(rows["starts"], "run-g2", "run")["process"] = "p2"
    assert check(History(**rows)) == []


@pytest.mark.rule("TOR-01")
def test_a_run_of_a_killed_process_ends_with_it() -> None:
    rows = good()
    rows["ends"].remove(of(rows["ends"], "run-a", "run"))
    of(rows["runs"], "run-a")["error_kind"] = "crash"
    assert {violation.kind for violation in check(History(**rows))} == {"limit"}
    rows["deaths"] = [{"process": "p1", "monotonic": 1.5}]
    assert check(History(**rows)) == []


@pytest.mark.rule("TOR-01")
def test_due_times_that_share_a_row_are_counted_each() -> None:
    rows = good()
    rows["timetables"][0]["until"] = 300.0
    assert {violation.kind for violation in check(History(**rows))} == {"due"}
    rows["occurrences"].append({"schedule_id": "s", "due_at": 220.0, "status": "missed", "job_id": None, "count": 2})
    assert check(History(**rows)) == []


@pytest.mark.rule("TOR-01")
def test_an_interrupted_run_is_retried_at_once_and_not_counted() -> None:
    rows = good()
    of(rows["ends"], "run-a", "run")["how"] = "stopped"
    of(rows["runs"], "run-a")["error_kind"] = "interrupted"
    assert {violation.kind for violation in check(History(**rows))} == {"retry"}
    of(rows["jobs"], "b")["not_before"] = None
    assert check(History(**rows)) == []
