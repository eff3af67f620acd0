"""show keeps apart what a handler reported, how it ended and why it was cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.cli.job_tables import job_fields, jobs_table, queue_table
from holdbeat.cli.output import Table


def lines_of(**fields: Any) -> dict[str, str]:
    job = {
        "permanently_failed": False,
        "cancel_reason": None,
        "run": None,
        "progress": None,
        "open_steps": [],
        "waits": [],
        "is_detached": False,
        **fields,
    }
    drawn = job_fields(job)
    assert isinstance(drawn, Table)
    return {row[0]: row[1] for row in drawn.rows}


def note_of(**fields: Any) -> str:
    empty = dict.fromkeys(("id", "type", "title", "resource", "created_at", "finished_at", "run", "progress"))
    job = {**empty, "status": "QUEUED", "priority": 0, "attempt": 0, "open_steps": [], **fields}
    return jobs_table([job]).rows[0][-1]


@pytest.mark.rule("WAIT-01")
def test_the_queue_says_what_a_chain_waits_for_and_which_rule_keeps_others_back() -> None:
    empty = dict.fromkeys(("id", "type", "title", "priority", "resource", "created_at"))
    waits = [{"kind": "signal", "name": name, "number": 1, "until": None} for name in ("approved", "paid")]
    items = [
        {**empty, "blocked_by": ["waiting", "paused"], "waits": waits},
        {**empty, "blocked_by": ["resource_full"], "waits": []},
    ]
    drawn = queue_table({"items": items, "paused": []})[0]
    assert isinstance(drawn, Table)
    assert [row[-1] for row in drawn.rows] == ["signal approved and signal paid, paused", "resource_full"]


@pytest.mark.rule("DEP-05", "WAIT-05")
def test_upstreams_and_children_are_named_with_how_they_ended() -> None:
    after = [
        {"job_id": "1", "group_id": None, "as": "pages", "met_at": None, "outcome": "COMPLETED"},
        {"job_id": None, "group_id": "2", "as": None, "met_at": None, "outcome": None},
    ]
    children = [{"id": str(number), "type": "page", "status": "QUEUED"} for number in range(5)]
    output = lines_of(status="QUEUED", after=after, children=children)
    assert output["after"] == "pages: 1 COMPLETED and 2 (not over)"
    assert output["children"] == "0 page QUEUED, 1 page QUEUED, 2 page QUEUED and 2 more"


PROGRESS = {"fraction": 0.4, "message": "chapter 2", "at": "2026-11-16T05:00:00.000Z"}


def test_the_progress_of_a_failed_job_is_what_it_reported_and_its_error_stands_by_its_name() -> None:
    run = {"id": "1", "error_kind": "exception", "error": "ValueError: no ink", "result": None}
    output = lines_of(status="FAILED", progress=PROGRESS, run=run)
    assert output["progress"] == "40% chapter 2"
    assert output["run error"] == "ValueError: no ink" and output["run error_kind"] == "exception"


def test_the_reason_of_a_cancelled_job_is_no_progress() -> None:
    output = lines_of(status="CANCELLED", progress=PROGRESS, cancel_reason="wrong prompt")
    assert output["progress"] == "40% chapter 2" and output["cancel_reason"] == "wrong prompt"


def test_the_progress_of_a_completed_job_is_no_json() -> None:
    done = {"fraction": 1.0, "message": None, "at": "2026-11-16T05:00:00.000Z"}
    assert lines_of(status="COMPLETED", progress=done)["progress"] == "100%"
    report = {"fraction": None, "message": "nearly", "at": "2026-11-16T05:00:00.000Z"}
    assert lines_of(status="COMPLETED", progress=report)["progress"] == "nearly"


@pytest.mark.rule("STEP-05")
def test_a_job_shows_the_step_in_which_it_is_and_what_its_chain_waits_for() -> None:
    step = {"name": "embed", "started_at": "2026-01-31T09:30:00.000Z"}
    assert lines_of(status="RUNNING", open_steps=[step])["open_steps"].startswith("embed since 2026-01-31")
    until = "2026-02-01T09:30:00.000Z"
    signal = {"kind": "signal", "name": "approved", "number": 1, "until": until}
    assert lines_of(status="QUEUED", waits=[signal])["waits_for"].startswith("signal approved until 2026-02-01")
    children = [{"kind": "child", "job_id": f"abc{number}", "until": None} for number in range(5)]
    line = lines_of(status="QUEUED", waits=children, waits_for=children[0])["waits_for"]
    assert line == "child abc0, child abc1, child abc2, child abc3, child abc4"
    assert "open_steps" not in lines_of(status="RUNNING")


@pytest.mark.rule("STEP-05", "WAIT-08")
def test_the_newest_job_of_a_chain_is_a_line_with_what_it_waits_for() -> None:
    sleep = {"kind": "sleep", "until": "2026-02-01T09:30:00.000Z"}
    question = {"kind": "question", "question_id": "xyz", "until": None}

    def newest(status: str, *waits: object) -> str:
        return lines_of(status="CONTINUED", newest={"id": "abc", "status": status, "waits": waits})["newest"]

    assert newest("QUEUED", sleep) == "abc QUEUED, sleep until 2026-02-01 09:30:00Z"
    assert newest("QUEUED", question) == "abc QUEUED, waits for question xyz"
    assert newest("QUEUED", sleep, question) == (
        "abc QUEUED, waits for sleep until 2026-02-01 09:30:00Z and question xyz"
    )
    assert newest("RUNNING") == "abc RUNNING"


@pytest.mark.rule("WAIT-03", "WAIT-08")
def test_lists_say_what_a_chain_waits_for_and_not_when_that_ends_at_the_latest() -> None:
    until = "2026-02-01T09:30:00.000Z"
    signal = {"kind": "signal", "name": "approved", "number": 1, "until": until}
    sleep = {"kind": "sleep", "until": until}
    assert note_of(waits=[signal], not_before=until) == "waits for signal approved until 2026-02-01 09:30:00Z"
    assert note_of(waits=[sleep], not_before=until) == "not before 2026-02-01 09:30:00Z"
    children = [{"kind": "child", "job_id": f"abc{number}", "until": None} for number in range(5)]
    assert note_of(waits=children) == "waits for child abc0, child abc1, child abc2 and 2 more"
