"""On a small terminal nothing is folded letter by letter: columns leave, and lists end in how many more there are."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from holdbeat.cli.job_tables import jobs_table
from holdbeat.cli.output import table
from holdbeat.cli.top import fitted_screen
from tests.cli.command import Command

STATUSES = ("QUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED")


def job(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"01a1e158-5fba-73af-9ade-{number:012d}",
        "status": STATUSES[number % 6],
        "type": "newsletter",
        "title": "newsletter",
        "priority": 0,
        "resource": "default",
        "attempt": 0,
        "created_at": "2026-11-16T05:00:00.000Z",
        "started_at": "2026-11-16T05:01:02.000Z",
        "heartbeat_at": "2026-11-16T05:01:30.000Z",
        "finished_at": None,
        "cancel_reason": None,
        "not_before": None,
        "waits": [],
        "progress": {"fraction": 0.25, "message": "chapter 1 of 4"},
        "run": None,
        "blocked_by": ["resource_full"],
        **fields,
    }


def schedule(number: int) -> dict[str, Any]:
    return {
        "id": f"01a1e158-5fba-73af-9ade-{number:012d}",
        "name": f"editor at the desk {number}",
        "enabled": True,
        "cron": None,
        "interval_s": 60,
        "type": "editor",
        "last_run_at": None,
        "fires_at": "2026-11-16T05:02:00.000Z",
        "failure_count": 0,
        "paused_until": None,
    }


def worker(number: int) -> dict[str, Any]:
    return {
        "id": f"build-{number}-c296c5",
        "kind": "serve",
        "host": "build.example",
        "pid": number,
        "slots": 7,
        "resources": None,
        "heartbeat_at": "2026-11-16T05:01:30.000Z",
        "stopped_at": None,
        "stopping_at": None,
    }


def look() -> dict[str, Any]:
    slots = {"slots": 2, "used": 2, "waiting": 7, "oldest_wait_s": 3.5}
    counts = dict.fromkeys(STATUSES, 12)
    return {
        "at": "2026-11-16T05:01:32.000Z",
        "stats": {"jobs": {**counts, "total": 72}, "resources": {f"gpu-{n}": slots for n in range(6)}, "schedules": 40},
        "running": [job(n, status="RUNNING") for n in range(12)],
        "queue": {"items": [job(n, status="QUEUED") for n in range(10)], "paused": []},
        "direct": [],
        "limits": [],
        "workers": [worker(n) for n in range(9)],
        "schedules": [schedule(n) for n in range(8)],
    }


def drawn(what: Any, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(what)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [70, 80, 100, 160])
def test_top_shows_every_section_on_24_lines_of_any_width(width: int) -> None:
    lines = drawn(fitted_screen(look(), "sqlite:///holdbeat.db", width, 24), width, 24)
    assert len(lines) <= 24 and max(map(len, lines)) <= width
    for title, row in (
        ("SLOTS", "gpu-0"), ("RUNNING", "newsletter"), ("QUEUE", "newsletter"), ("WORKERS", "build-0-c296c5"),
        ("NEXT RUNS", "editor at the desk 0"),
    ):  # fmt: skip
        at = lines.index(title)
        assert row in lines[at + 2], "a header, then at least one row"
    assert "30 s" in lines[lines.index("RUNNING") + 2], "for how long it runs"
    assert "finished" not in lines[lines.index("RUNNING") + 1]
    more = [line for line in lines if line.startswith("… ")]
    assert len(more) == 5 and all(line.endswith(" more") for line in more)
    # One row of 12 that run, and what the screen does not show is told exactly.
    running = lines[lines.index("RUNNING") + 2 : lines.index("QUEUE") - 1]
    assert lines[lines.index("QUEUE") - 1] == f"… {12 - len(running)} more"


def test_top_shows_all_there_is_where_there_is_room() -> None:
    lines = drawn(fitted_screen(look(), "sqlite:///holdbeat.db", 120, 100), 120, 100)
    assert sum("newsletter" in line for line in lines) == 22
    assert [line for line in lines if line.startswith("… ")] == ["… 2 more", "… 32 more"], "more than it asked for"


def test_top_lists_direct_requests_while_there_are_some() -> None:
    instants = {"requested_at": "2026-11-16T05:01:02.000Z", "granted_at": None, "finished_at": None}
    what = {"type": "story", "title": "story about a fox", "client": "anna", "resource": "gpu"}
    one = {"id": "r", "status": "ACTIVE", "outcome": None, **what, **instants}
    lines = drawn(fitted_screen({**look(), "direct": [one]}, "sqlite:///holdbeat.db", 120, 40), 120, 40)
    assert "story" in lines[lines.index("DIRECT REQUESTS") + 2]
    # The list of the API begins with the newest; the screen begins with what runs, then who is next.
    running = one | {"id": "0000000a", "granted_at": "2026-11-16T05:01:03.000Z"}
    waiting = [one | {"id": f"0000000{letter}"} for letter in "dcb"]
    lines = drawn(fitted_screen({**look(), "direct": [*waiting, running]}, "sqlite:///holdbeat.db", 120, 40), 120, 40)
    first = lines.index("DIRECT REQUESTS") + 2
    assert [line[7] for line in lines[first : first + 4]] == ["a", "b", "c", "d"]
    assert "DIRECT REQUESTS" not in drawn(fitted_screen(look(), "sqlite:///holdbeat.db", 120, 40), 120, 40)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_list_of_jobs_says_status_and_type_on_a_terminal_of_any_width(width: int) -> None:
    jobs = [job(number) for number in range(6)]
    fitted = jobs_table(jobs).fitted(width)
    assert sum(max(len(row[at]) for row in fitted.rows) + 2 for at in range(3)) - 2 <= width
    for each, row in zip(jobs, fitted.rows, strict=True):
        assert row[1] == each["status"]
        assert row[2] == "newsletter"
        assert row[0] == each["id"] or (width == 40 and row[0].startswith("…") and each["id"].endswith(row[0][1:]))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_word_of_a_list_is_folded_on_a_real_terminal(holdbeat: Command, width: int) -> None:
    job_id = holdbeat.submit("story")
    holdbeat("cancel", job_id)
    output = holdbeat.on_a_terminal("jobs", columns=width)
    header, row = output.splitlines()[:2]
    assert header.split()[:3] == ["id", "status", "type"] and row.split()[1:3] == ["CANCELLED", "story"]
    assert max(map(len, output.splitlines())) <= width
    assert row.split()[0] == job_id or width == 40


def test_what_is_empty_leaves_before_what_says_something() -> None:
    wide = table(("id", "note", "name"), [("1" * 20, "", "n" * 30)])
    assert list(wide.fitted(46).columns) == ["id", "name"]
    assert list(wide.fitted(80).columns) == ["id", "note", "name"]
