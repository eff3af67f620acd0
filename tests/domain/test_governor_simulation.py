"""A week of one endpoint under hints, failures, slow runs and pauses: the same trace every time."""

from __future__ import annotations

import hashlib
import json
import random
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import iso
from holdbeat.domain.governor import PlanInputs, plan
from holdbeat.domain.occurrence import due_work
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.schedule_edit import created, edited
from holdbeat.domain.schedule_steps import (
    after_run,
    cleared_hints,
    fired,
    paused,
    replanned,
    reset_failures,
    resumed,
    with_hint,
)

NOW = datetime(2026, 3, 25, tzinfo=UTC)
WEEK_S = 7 * 86400


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def simulated_week(seed: int, **fields: Any) -> list[str]:
    """Steps through a week that contains the spring clock change; returns one line per thing that happened."""
    chance = random.Random(seed)
    body = {"name": "week", "url": "http://localhost/", "timezone": "Europe/Berlin", "max_interval_s": 7200, **fields}
    schedule = replanned(created("endpoint-1", body, NOW, endpoint=True), NOW).schedule
    trace: list[str] = []
    now, next_step = NOW, after(chance.randrange(60, 3600))
    while now < after(WEEK_S):
        assert len(trace) < 100_000, "the week does not pass"
        replan_at = (schedule.last_decision or {}).get("replan_at")
        looks = [next_step, schedule.next_run_at, datetime.fromisoformat(replan_at) if replan_at else None]
        now = max(now, min(at for at in looks if at is not None))
        if now == next_step:
            schedule, what = random_step(schedule, now, chance)
            trace.append(f"{iso(now)} {what} -> {schedule.next_run_at and iso(schedule.next_run_at)}")
            next_step = now + timedelta(milliseconds=chance.randrange(60_000, 4 * 3_600_000))
            continue
        fires = [verdict for verdict in due_work(schedule, now).verdicts if verdict.fires]
        if not fires:
            schedule = replanned(schedule, now).schedule
            trace.append(f"{iso(now)} expired -> {schedule.next_run_at and iso(schedule.next_run_at)}")
            continue
        schedule = fired(schedule, fires[0].due_at, now)
        started = now
        now += timedelta(milliseconds=chance.choice((200, 900, 4000, 90_000, 700_000)))
        outcome = chance.choices(("COMPLETED", "FAILED", "SKIPPED", "CANCELLED"), (70, 25, 3, 2))[0]
        schedule = after_run(schedule, outcome, started, fires[0].due_at, now).schedule
        decision = schedule.last_decision or {}
        figures = {name: decision[name] for name in ("next_run_at", "winner", "clamps", "failure_count", "replan_at")}
        trace.append(f"{iso(started)} ran {outcome} until {iso(now)}: {json.dumps(figures)}")
        next_step = max(next_step, now)
    return trace


def random_step(schedule: Schedule, now: datetime, chance: random.Random) -> tuple[Schedule, str]:
    what = chance.choice(("faster", "slower", "once", "both", "clear", "pause", "hold", "resume", "reset", "edit"))
    soon = now + timedelta(milliseconds=chance.randrange(0, 1_200_000))
    match what:
        case "faster" | "slower":
            amount_s = chance.choice((15, 30, 60) if what == "faster" else (1800, 3600, 10_000))
            step = with_hint(schedule, now, interval_s=amount_s, ttl_s=chance.choice((None, 600, 7200)))
        case "once":
            step = with_hint(schedule, now, next_run_at=soon, reason="look")
        case "both":
            step = with_hint(schedule, now, interval_s=chance.randrange(10, 4000), next_run_at=soon)
        case "clear":
            step = cleared_hints(schedule, now)
        case "pause":
            step = paused(schedule, soon, "maintenance", now)
        case "hold":
            step = paused(schedule, None, None, now)
        case "resume":
            step = resumed(schedule, now, spread_s=60)
        case "reset":
            step = reset_failures(schedule, now)
        case _:
            changed = edited(
                schedule, {"min_interval_s": chance.choice((None, 5, 20)), "priority": chance.randrange(9)}
            )
            step = replanned(changed, now, previous=schedule)
    return step.schedule, what


def digest(trace: list[str]) -> str:
    return hashlib.sha256("\n".join(trace).encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("seed", "fields", "expected"),
    [
        (1, {"interval_s": 60}, "5b4b2c9c35710ac84d1ea15dd274217e"),
        (2, {"cron": "*/5 * * * *"}, "a17e7a8ff5f7df7898277af93464efa3"),
        (3, {"cron": "30 2 * * *", "max_interval_s": None}, "d134ef898fcacd04a0909040dd81532a"),
    ],
)
@pytest.mark.rule("GOV-01", "GOV-03", "GOV-05", "GOV-07")
def test_a_week_of_an_endpoint_leaves_the_same_trace_every_time(
    seed: int, fields: dict[str, Any], expected: str
) -> None:
    trace = simulated_week(seed, **fields)
    assert trace == simulated_week(seed, **fields)
    assert digest(trace) == expected, f"the plans of the governor changed ({len(trace)} steps)"


def test_planning_a_schedule_takes_less_than_a_millisecond(record_property: Any) -> None:
    minute = created("e1", {"name": "x", "url": "http://localhost/", "interval_s": 60}, NOW, endpoint=True)
    slots = replace(minute, cron="*/5 * * * *", interval_s=None, timezone="Europe/Berlin")
    for schedule, least in ((minute, 5000), (slots, 1000)):
        inputs = PlanInputs(schedule, last_start=NOW, last_due=NOW, last_finish=after(1))
        began = time.process_time()
        for _ in range(2000):
            plan(inputs, after(1))
        rate = 2000 / (time.process_time() - began)
        record_property("plans_per_second", round(rate))
        assert rate > least, "ten times slower than on an idle machine: something grew"
