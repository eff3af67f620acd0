"""Checks about what goes in and out beside jobs: due times, direct requests and webhook messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdbeat.torture.checker.history import History, Row, Violation

TOLD_AS = {"COMPLETED": "job.run.completed", "FAILED": "job.run.failed", "SKIPPED": "job.run.skipped"}


def requests_run_at_most_once(history: History) -> Iterator[Violation]:
    """A direct request is executed once or not at all; one that was answered COMPLETED was executed."""
    begun = [row for row in history.starts if row["job"] is None]
    times = Counter(row["token"] for row in begun)
    reserved = {row["id"]: row for row in history.reservations}
    for token, count in times.items():
        if count > 1:
            yield Violation("direct", token, f"the direct request {token} was executed {count} times")
    for row in begun:
        if row["run"] not in reserved:
            yield Violation("direct", row["run"], f"the direct request {row['run']} was executed and is not on record")
    returned = {row["token"] for row in begun if history.end_of.get(row["run"], {}).get("how") == "returned"}
    for request in history.requests:
        if request.get("outcome") == "COMPLETED" and request["token"] not in returned:
            sentence = f"the direct request {request['token']} was answered COMPLETED and no handler returned"
            yield Violation("direct", request["token"], sentence)


def deliveries_arrive(history: History) -> Iterator[Violation]:
    """Each end of a job is in the outbox once, and what is on record as delivered was received."""
    received = {row["delivery"] for row in history.received}
    for delivery in history.deliveries:
        if delivery["status"] == "DELIVERED" and delivery["id"] not in received:
            yield Violation("delivery", delivery["id"], f"the message {delivery['id']} is DELIVERED and never arrived")
        elif delivery["status"] != "DELIVERED" and delivery["webhook_id"] == history.subscribed:
            sentence = f"the message {delivery['id']} is {delivery['status']} although its receiver answers"
            yield Violation("delivery", delivery["id"], sentence)
    if history.subscribed is None:
        return
    recorded = Counter(
        (row["job_id"], row["event"]) for row in history.deliveries if row["webhook_id"] == history.subscribed
    )
    for job in history.jobs:
        run = history.run_of.get(job["id"])
        if job["status"] == "CANCELLED":
            event = "job.cancelled"
        elif run is not None and run["status"] == "CONTINUED":
            if ended := sum(recorded[job["id"], event] for event in TOLD_AS.values()):
                sentence = f"job {job['id']} is CONTINUED, and its end was told {ended} times"
                yield Violation("delivery", job["id"], sentence)
            continue
        elif run is not None and run["status"] is not None:
            event = TOLD_AS[run["status"]]
        else:
            continue
        if recorded[job["id"], event] != 1:
            sentence = f"job {job['id']} ended {job['status']}, and {event} was told {recorded[job['id'], event]} times"
            yield Violation("delivery", job["id"], sentence)
    groups_told = {row["group_id"] for row in history.deliveries if row["webhook_id"] == history.subscribed}
    for group in history.groups:
        if group["status"] not in ("QUEUED", "RUNNING") and group["id"] not in groups_told:
            yield Violation("delivery", group["id"], f"the group {group['id']} ended, and nobody was told")


ROUNDING_S = 0.003


def due_times_have_one_verdict(history: History) -> Iterator[Violation]:
    """Every due time of a timetable is on record once; a fired one has its one job, and no job began early."""
    rows: dict[str, list[Row]] = {}
    for row in history.occurrences:
        if row["status"] != "manual":
            rows.setdefault(row["schedule_id"], []).append(row)
    for timetable in history.timetables:
        yield from _grid(timetable, rows.get(timetable["schedule"], []))
    yield from _fired(history)


def _grid(timetable: Row, rows: list[Row]) -> Iterator[Violation]:
    schedule_id, first, every = timetable["schedule"], timetable["first"], timetable["every"]
    verdicts: Counter[int] = Counter()
    for row in rows:
        number = round((row["due_at"] - first) / every)
        if number < 0 or abs(first + number * every - row["due_at"]) > ROUNDING_S:
            yield Violation("due", schedule_id, f"schedule {schedule_id} judged {row['due_at']:.3f}: no due time of it")
            continue
        for covered in range(number, number + row["count"]):
            verdicts[covered] += 1
    count = int((timetable["until"] - first) // every) + 1
    missing = [number for number in range(max(0, count)) if not verdicts[number]]
    if missing:
        at = first + missing[0] * every
        sentence = f"schedule {schedule_id}: {len(missing)} due times have no verdict, the first at {at:.3f}"
        yield Violation("due", schedule_id, sentence)
    for number, times in verdicts.items():
        if times > 1:
            at = first + number * every
            yield Violation("due", schedule_id, f"schedule {schedule_id}: {times} verdicts on the due time {at:.3f}")


def _fired(history: History) -> Iterator[Violation]:
    named = Counter(row["job_id"] for row in history.occurrences if row["job_id"] is not None)
    jobs: Counter[tuple[str, float]] = Counter()
    for job in history.jobs:
        if job["schedule_id"] is None or job["retry_of"] is not None:
            continue
        if named[job["id"]] != 1:
            sentence = f"the scheduled job {job['id']} belongs to {named[job['id']]} due times"
            yield Violation("due", job["schedule_id"], sentence)
        if job["scheduled_for"] is None:
            continue
        jobs[job["schedule_id"], job["scheduled_for"]] += 1
        began = history.wall_of_start.get(job["id"])
        if history.wall_is_steady and began is not None and began < job["scheduled_for"] - ROUNDING_S:
            early = job["scheduled_for"] - began
            yield Violation("due", job["schedule_id"], f"job {job['id']} began {early:.3f} s before its due time")
    for (schedule_id, due_at), count in jobs.items():
        if count > 1:
            yield Violation(
                "due", schedule_id, f"schedule {schedule_id} made {count} jobs for the due time {due_at:.3f}"
            )
    for row in history.occurrences:
        if row["status"] != "fired":
            continue
        if row["job_id"] is None:
            yield Violation("due", row["schedule_id"], f"the due time {row['due_at']:.3f} fired without a job")
        elif row["job_id"] not in history.job and row["job_id"] not in history.may_be_gone:
            yield Violation("lost", row["job_id"], f"the job {row['job_id']} of a due time is not in the store")
