"""Why a Schedule runs when it runs: the plan with everything that competed for it, and what came of its due times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdbeat.domain.clock import from_iso
from holdbeat.domain.job import JobStatus
from holdbeat.domain.occurrence import Occurrence
from holdbeat.domain.schedule import INDEFINITE, Schedule
from holdbeat.domain.views import occurrence_json, schedule_json
from holdbeat.observe.explain_waiting import explain_waiting
from holdbeat.observe.wording import answer, because, counted, listed, moment, reason, sentence, span
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.workers import fires_schedules
from holdbeat.store.schedules.schedule_reports import ScheduleFacts, schedule_facts
from holdbeat.store.transaction import Transaction

OVERDUE_S = 5.0
"""A due time that has not fired for so long is not about to."""

_CLAMPS = {
    "retry_after": "the Retry-After of the last answer moved it later",
    "min_interval_s": "min_interval_s moved it later",
    "max_interval_s": "max_interval_s moved it earlier",
    "now": "it had passed and became now",
    "start_at": "start_at moved it later",
    "spread": "it was spread, so that not all run at once",
    "pause": "a pause moved it to its end",
}


def explain_schedule(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> dict[str, Any]:
    """The explanation of a schedule or endpoint, found by id or name, in the same form as a job's.

    `state` is disabled, broken, paused, in_flight, planned or over. `estimated_start` is the next due time with its
    jitter. The plain facts stand beside the reasons: next_run_at, last_decision, trouble, in_flight, occurrences.
    """
    facts = schedule_facts(tx, reference, endpoint=endpoint)
    schedule = facts.schedule
    reasons = _state(tx, facts)
    waits = _wait_of_job(tx, facts.in_flight)
    reasons += waits
    if facts.state == "planned":
        reasons += _plan(schedule, tx.now)
    reasons += [reason("warning", warning) for warning in schedule.warnings]
    reasons += _failures(schedule)
    reasons += _latest(facts.latest, tx.now)
    view = schedule_json(schedule)
    summary = f"{schedule.name}: {reasons[0]['detail']}"
    if facts.state == "in_flight":
        summary = " ".join([summary, *(wait["detail"] for wait in waits)])
    start = facts.fires_at if facts.state == "planned" and not _is_overdue(facts, tx.now) else None
    return answer(facts.state, summary, reasons, start) | {
        **{name: view[name] for name in ("next_run_at", "fires_at", "last_decision", "trouble", "warnings")},
        "in_flight": facts.in_flight,
        "occurrences": [occurrence_json(occurrence) for occurrence in facts.latest],
    }


def _state(tx: Transaction, facts: ScheduleFacts) -> list[dict[str, Any]]:
    schedule, now = facts.schedule, tx.now
    reasons = []
    match facts.state:
        case "paused":
            assert schedule.paused_until is not None
            until = None if schedule.paused_until >= INDEFINITE else schedule.paused_until
            reasons.append(
                reason(
                    "paused",
                    f"It is paused until {moment(schedule.paused_until, now)}{because(schedule.pause_reason)}.",
                    until=until,
                    why=schedule.pause_reason,
                )
            )
        case "planned" if facts.fires_at is not None and _is_overdue(facts, now):
            detail = f"It was due at {moment(facts.fires_at, now)} and has not fired: {_why_overdue(tx)}"
            reasons.append(reason("overdue", detail, next_run_at=schedule.next_run_at, fires_at=facts.fires_at))
        case "planned" if facts.fires_at is not None and schedule.next_run_at is not None:
            jitter = ""
            if facts.fires_at != schedule.next_run_at:
                jitter = f", {span((facts.fires_at - schedule.next_run_at).total_seconds())} of jitter included"
            detail = f"It fires next at {moment(facts.fires_at, now)}{jitter}."
            reasons.append(reason("planned", detail, next_run_at=schedule.next_run_at, fires_at=facts.fires_at))
        case "broken":
            detail = (
                f"It cannot be planned: {sentence(schedule.trouble or '')} It goes on by itself once that is mended; "
                "an edit of its timetable helps too."
            )
            reasons.append(reason("broken", detail, trouble=schedule.trouble, pending=schedule.next_run_at))
        case "disabled":
            reasons.append(reason("disabled", "It is disabled: nothing fires until it is enabled."))
        case "in_flight":
            detail = "A job of it is unfinished: the next run is planned when that ends."
            reasons.append(reason("in_flight", detail))
        case _:
            decided = (schedule.last_decision or {}).get("sentence")
            reasons.append(reason(facts.state, decided or "Its timetable has no due time after now."))
    if facts.in_flight:
        are = "is" if len(facts.in_flight) == 1 else "are"
        names = listed(f"job {job_id}" for job_id in facts.in_flight)
        reasons.append(reason("in_flight_jobs", f"Of it {names} {are} unfinished.", job_ids=facts.in_flight))
    return reasons


def _is_overdue(facts: ScheduleFacts, now: datetime) -> bool:
    return facts.fires_at is not None and (now - facts.fires_at).total_seconds() > OVERDUE_S


def _why_overdue(tx: Transaction) -> str:
    if fires_schedules(tx):
        return "it fires as soon as the trigger has fired what was due before it."
    return "no process that fires schedules is alive. Start one with `holdbeat serve`."


def _wait_of_job(tx: Transaction, in_flight: list[str]) -> list[dict[str, Any]]:
    """What the unfinished job waits for, where none of them runs."""
    job = load_job(tx, in_flight[0]) if in_flight else None
    if job is None or job.status is not JobStatus.QUEUED:
        return []
    explanation = explain_waiting(tx, job)
    codes = [entry["code"] for entry in explanation["reasons"]]
    return [reason("in_flight_waits", explanation["summary"], job_id=job.id, codes=codes)]


def _plan(schedule: Schedule, now: datetime) -> list[dict[str, Any]]:
    """The candidates for the next run, the winner, and what moved it."""
    decision = schedule.last_decision
    if decision is None or not schedule.adaptive:
        rhythm = f"cron {schedule.cron} in {schedule.timezone}" if schedule.cron else f"every {schedule.interval_s:g} s"
        return [reason("timetable", f"Its timetable is {rhythm}.", cron=schedule.cron, interval_s=schedule.interval_s)]
    reasons = []
    for candidate in decision.get("candidates", ()):
        won = candidate["name"] == decision.get("winner")
        reasons.append(
            reason(
                "candidate",
                f"{'Chosen' if won else 'Not chosen'}: {candidate['name'].replace('_', ' ')} at "
                f"{moment(from_iso(candidate['at']), now)}, {sentence(candidate['why'])}",
                name=candidate["name"],
                at=candidate["at"],
                won=won,
            )
        )
    for clamp in decision.get("clamps", ()):
        words = _CLAMPS.get(clamp["name"], clamp["name"])
        detail = f"Then {words}, to {moment(from_iso(clamp['to']), now)}."
        reasons.append(reason("clamp", detail, name=clamp["name"], **{"from": clamp["from"], "to": clamp["to"]}))
    reasons += [reason("note", note) for note in decision.get("notes", ())]
    if decision.get("replan_at"):
        detail = f"A hint ends at {moment(from_iso(decision['replan_at']), now)}; then it is planned anew."
        reasons.append(reason("replan", detail, at=decision["replan_at"]))
    return reasons


def _failures(schedule: Schedule) -> list[dict[str, Any]]:
    if not schedule.failure_count:
        return []
    failures = counted(schedule.failure_count, "failure")
    return [reason("failures", f"It has had {failures} in a row.", failure_count=schedule.failure_count)]


def _latest(latest: list[Occurrence], now: datetime) -> list[dict[str, Any]]:
    reasons = []
    for occurrence in latest:
        what = (
            str(occurrence.status)
            if occurrence.count == 1
            else f"{occurrence.status} ({occurrence.count:,} due times in one)"
        )
        job = f" as job {occurrence.job_id}" if occurrence.job_id else ""
        reasons.append(
            reason(
                "occurrence",
                f"Due at {moment(occurrence.due_at, now)}: {what}{job}{because(occurrence.reason)}.",
                due_at=occurrence.due_at,
                status=str(occurrence.status),
                job_id=occurrence.job_id,
                why=occurrence.reason,
            )
        )
    return reasons
