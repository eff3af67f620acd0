"""Checks about what goes in and out beside jobs: direct requests and webhook messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdbeat.torture.checker.history import History, Violation

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
    told = Counter(
        (row["job_id"], row["event"]) for row in history.deliveries if row["webhook_id"] == history.subscribed
    )
    for job in history.jobs:
        run = history.run_of.get(job["id"])
        if job["status"] == "CANCELLED":
            event = "job.cancelled"
        elif run is not None and run["status"] is not None:
            event = TOLD_AS[run["status"]]
        else:
            continue
        if told[job["id"], event] != 1:
            sentence = f"job {job['id']} ended {job['status']}, and {event} was told {told[job['id'], event]} times"
            yield Violation("delivery", job["id"], sentence)
    groups_told = {row["group_id"] for row in history.deliveries if row["webhook_id"] == history.subscribed}
    for group in history.groups:
        if group["status"] not in ("QUEUED", "RUNNING") and group["id"] not in groups_told:
            yield Violation("delivery", group["id"], f"the group {group['id']} ended, and nobody was told")
