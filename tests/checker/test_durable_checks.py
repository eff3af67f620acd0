"""A hand-made history of durable work, and what breaks its promises: `test_checker.py` shows them to the checker."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.torture.checker import History, check
from tests.checker.rows import Rows, Spoil, add, both, change, end, job, of, remove, run, start

CHAIN = {"chain": "a"}


def step(run_id: str, what: str, at: float, value: str | None = None) -> Rows:
    return {**CHAIN, "run": run_id, "step": "fetch", "what": what, "value": value, "monotonic": at}


def wait(run_id: str, number: int, what: str, at: float, payload: str | None = None) -> Rows:
    return {
        **CHAIN, "run": run_id, "number": number, "what": what, "payload": payload, "timeout_s": 5.0, "monotonic": at,
    }  # fmt: skip


def sleep(run_id: str, what: str, at: float) -> Rows:
    return {**CHAIN, "run": run_id, "what": what, "seconds": 10.0, "monotonic": at}


def sent(payload: str, at: float, *, is_answered: bool = True) -> Rows:
    return {**CHAIN, "payload": payload, "is_answered": is_answered, "monotonic": at}


def good() -> Rows:
    """A chain of three jobs, which a sleep and a wait continue; its child; one that waits for it; a unique key."""
    jobs: dict[str, dict[str, Any]] = {
        "a": {"status": "CONTINUED", "retried_by": "b"},
        "b": {"status": "CONTINUED", "retry_of": "a", "retry_kind": "continue", "retried_by": "c"},
        "c": {"retry_of": "b", "retry_kind": "continue"},
        "child": {"parent_id": "b"},
        "after": {},
        "u1": {"unique_key": "k", "unique_while": "unfinished"},
        "u2": {"unique_key": "k", "unique_while": "unfinished", "expires_at": 80.0},
        "late": {"status": "SKIPPED", "expires_at": 71.0},
    }
    times = {
        "a": (1.0, 3.0), "b": (14.0, 16.0), "c": (30.0, 33.0), "child": (20.0, 21.0), "after": (40.0, 41.0),
        "u1": (50.0, 52.0), "u2": (60.0, 61.0),
    }  # fmt: skip
    return {
        "acknowledged": [{"job": name} for name in ("a", "after", "u1", "u2", "late")],
        "jobs": [job(name, **{"status": "COMPLETED", **fields}) for name, fields in jobs.items()],
        "runs": [
            *(run(name, fence, *at, jobs[name].get("status", "COMPLETED"))
              for fence, (name, at) in enumerate(times.items(), 1)),
            run("late", 0, 72.0, 72.0, "SKIPPED"),
        ],
        "starts": [start(name, fence, at) for fence, (name, (at, _)) in enumerate(times.items(), 1)],
        "ends": [end(name, at, "stopped" if name in "ab" else "returned") for name, (_, at) in times.items()],
        "steps": [{"root_id": "a", "name": "fetch", "value": "v"}],
        "steps_seen": [
            step("run-a", "called", 1.5),
            step("run-a", "passed", 2.0, "v"),
            step("run-b", "passed", 14.1, "v"),
            step("run-c", "passed", 30.1, "v"),
        ],
        "sleeps_seen": [sleep("run-a", "begun", 2.5), sleep("run-b", "over", 14.5), sleep("run-c", "over", 30.2)],
        "signals_sent": [sent("one", 15.0), sent("unanswered", 15.5, is_answered=False)],
        "waits_seen": [
            wait("run-b", 0, "begun", 14.6),
            wait("run-c", 0, "begun", 30.3),
            wait("run-c", 0, "got", 30.4, "one"),
            wait("run-c", 1, "begun", 30.5),
            wait("run-c", 1, "timed out", 32.0),
        ],
        "children_seen": [{**CHAIN, "run": "run-c"}],
        "dependencies": [{"job": "after", "after": ["a"], "on_upstream": "cancel"}],
    }  # fmt: skip


BREACHES: dict[str, tuple[str, Spoil]] = {
    "a kept step was called again": ("step", add("steps_seen", step("run-b", "called", 14.05))),
    "a step was called twice in one run": ("step", add("steps_seen", step("run-a", "called", 1.6))),
    "a step had another value in a later attempt": ("step", lambda rows: rows["steps_seen"][2].update(value="w")),
    "the value of a step is not in the store": ("step", lambda rows: rows["steps"].clear()),
    "a sleep was too short": ("sleep", lambda rows: rows["sleeps_seen"][1].update(monotonic=12.0)),
    "a signal was lost": ("signal", add("signals_sent", sent("two", 16.0))),
    "a signal was taken twice": ("signal", add("waits_seen", wait("run-c", 2, "got", 32.5, "one"))),
    "a wait had two outcomes": ("signal", add("waits_seen", wait("run-b", 0, "timed out", 15.9))),
    "a signal came from nowhere": ("signal", lambda rows: rows["waits_seen"][2].update(payload="what")),
    "signals came in another order": ("signal", both(
        add("signals_sent", sent("two", 16.0)),
        lambda rows: rows["waits_seen"][2].update(payload="two"),
        lambda rows: rows["waits_seen"][4].update(what="got", payload="one"))),
    "a child was made twice": ("child", add("jobs", job("twin", parent_id="c"))),
    "a parent went on without its child's result": ("child", change("jobs", "child", status="CANCELLED")),
    "a job began before its upstream had ended": ("upstream", change("starts", "run-after", "run", monotonic=32.0)),
    "a job ran although its upstream had not completed": ("upstream", change("jobs", "c", status="CANCELLED")),
    "two jobs with one unique key ran at once": ("unique", change("starts", "run-u2", "run", monotonic=51.0)),
    "a job started after it had expired": ("expiry", change("runs", "run-u2", started_at=81.0)),
    "a continued job has no successor": ("retry", remove("jobs", "c")),
    "a continuation was counted as an attempt": ("retry", change("jobs", "c", attempt=1)),
    "the end of a continued job was told": ("delivery", lambda rows: rows.update(
        subscribed="hook", received=[{"delivery": "m"}],
        deliveries=[{"id": "m", "webhook_id": "hook", "job_id": "a", "group_id": None, "event": "job.run.completed",
                     "status": "DELIVERED"}])),
}  # fmt: skip


@pytest.mark.rule("TOR-01")
def test_a_signal_without_an_answer_may_be_stored_or_not() -> None:
    rows = good()
    rows["waits_seen"][4].update(what="got", payload="unanswered")
    assert check(History(**rows)) == []


@pytest.mark.rule("TOR-01")
def test_a_late_worker_may_call_a_step_that_its_successor_has_passed() -> None:
    rows = good()
    rows["steps_seen"].append(step("run-a", "called", 14.2))
    rows["steps_seen"].remove(of(rows["steps_seen"], "called", "what"))
    assert check(History(**rows)) == []
