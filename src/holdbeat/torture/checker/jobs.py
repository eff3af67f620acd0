"""Checks about jobs, their runs and retries: nothing lost, nothing run behind anyone's back, nothing left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdbeat.torture.checker.history import ENDED, History, Row, Violation

CUT_SHORT = frozenset({"crash", "lost", "interrupted", "timeout", "cancelled"})
"""Why a run may be FAILED on record although its handler returned: the result came too late."""


def acknowledged_jobs_end(history: History) -> Iterator[Violation]:
    """Every job that was acknowledged is there and has ended, and so has the last of its automatic retries."""
    for row in history.acknowledged:
        job_id = row["job"]
        job: Row | None = history.job.get(job_id)
        if job is None:
            if job_id not in history.may_be_gone:
                yield Violation("lost", job_id, f"job {job_id} was acknowledged and is not in the store")
            continue
        visited = {job_id}
        while job is not None and job["retried_by"] is not None and job["retried_by"] not in visited:
            visited.add(job["retried_by"])
            following = history.job.get(job["retried_by"])
            if following is None and job["retried_by"] not in history.may_be_gone:
                yield Violation("lost", job_id, f"the retry {job['retried_by']} of job {job['id']} is not in the store")
            job = following
        if job is not None and job["status"] not in ENDED:
            yield Violation("lost", job_id, f"job {job_id} was acknowledged and {job['id']} is still {job['status']}")


def cancels_hold(history: History) -> Iterator[Violation]:
    """A job whose cancel was acknowledged stays CANCELLED; one that had not begun never begins."""
    for row in history.cancelled:
        job = history.job.get(row["job"])
        if job is not None and job["status"] != "CANCELLED":
            yield Violation("cancel", row["job"], f"the cancel of {row['job']} was acknowledged; it is {job['status']}")
    never = {row["job"]: row["monotonic"] for row in history.cancelled if row.get("was_queued")}
    for start in history.starts:
        if start["job"] in never:
            yield Violation("cancel", start["job"], f"job {start['job']} was cancelled while it waited, and began")


def keys_name_one_job(history: History) -> Iterator[Violation]:
    """One idempotency key, one job: in the store and in the answers."""
    stored = Counter(job["idempotency_key"] for job in history.jobs if job["idempotency_key"])
    for key, count in stored.items():
        if count > 1:
            yield Violation("key", key, f"{count} jobs have the key {key}")
    answered: dict[str, str] = {}
    for row in history.acknowledged:
        key = row.get("key")
        if key is not None and answered.setdefault(key, row["job"]) != row["job"]:
            yield Violation("key", key, f"the key {key} was answered with {answered[key]} and with {row['job']}")


def starts_are_on_record(history: History) -> Iterator[Violation]:
    """The runs that handlers saw begin are those on record, each once, under the fence that it was given."""
    of_jobs = [row for row in history.starts if row["job"] is not None]
    for run_id, count in Counter(row["run"] for row in of_jobs).items():
        if count > 1:
            yield Violation("start", run_id, f"run {run_id} was begun {count} times")
    for job_id, count in Counter(row["job"] for row in of_jobs).items():
        if count > 1:
            yield Violation("start", job_id, f"job {job_id} was begun {count} times")
    for row in of_jobs:
        if row["job"] in history.may_be_gone:
            continue
        run = history.run.get(row["run"])
        if run is None:
            yield Violation("start", row["run"], f"run {row['run']} of job {row['job']} began and is not on record")
        elif (run["fence"], run["job_id"]) != (row["fence"], row["job"]):
            sentence = f"run {row['run']} began as {row['job']}/{row['fence']}, not {run['job_id']}/{run['fence']}"
            yield Violation("start", row["run"], sentence)
    for run in history.runs:
        yield from _executed_as_recorded(history, run)


def _executed_as_recorded(history: History, run: Row) -> Iterator[Violation]:
    end = history.end_of.get(run["id"])
    if run["status"] == "COMPLETED" and (end is None or end["how"] != "returned"):
        observed = "never began" if run["id"] not in history.started else "did not return"
        yield Violation("start", run["id"], f"run {run['id']} is COMPLETED, and its handler {observed}")
    elif run["status"] == "FAILED" and end is not None and end["how"] == "returned":
        if run["error_kind"] not in CUT_SHORT:
            yield Violation("start", run["id"], f"run {run['id']} returned and is FAILED ({run['error_kind']})")
    elif run["status"] == "FAILED" and run["error_kind"] == "error" and run["id"] not in history.started:
        yield Violation("start", run["id"], f"run {run['id']} is FAILED by an error of a handler that never began")


def fences_are_unique(history: History) -> Iterator[Violation]:
    """No two runs have the same fence; 0 is the fence of runs that were never executed."""
    for fence, count in Counter(run["fence"] for run in history.runs if run["fence"]).items():
        if count > 1:
            yield Violation("fence", str(fence), f"the fence {fence} was given out {count} times")


def nothing_is_left_over(history: History) -> Iterator[Violation]:
    """Once all work is done nothing is under way any more, and what belongs together agrees."""
    for job in history.jobs:
        if job["status"] not in ENDED and job["status"] != "CONTINUED":
            yield Violation("leftover", job["id"], f"job {job['id']} is {job['status']}")
        run = history.run_of.get(job["id"])
        if run is None or run["status"] is None or run["status"] == job["status"]:
            continue
        if not (job["status"] == "CANCELLED" and run["error_kind"] == "cancelled"):
            yield Violation("leftover", job["id"], f"job {job['id']} is {job['status']}, and its run {run['status']}")
    for run in history.runs:
        if run["status"] is None:
            yield Violation("leftover", run["id"], f"run {run['id']} has no end")
        if run["job_id"] not in history.job and run["job_id"] not in history.may_be_gone:
            yield Violation("leftover", run["id"], f"run {run['id']} has no job")
    for lease in history.leases:
        yield Violation("leftover", lease["id"], f"the lease {lease['id']} is held by nobody")
    for reservation in history.reservations:
        if reservation["status"] == "ACTIVE":
            yield Violation("leftover", reservation["id"], f"the direct request {reservation['id']} is ACTIVE")
    for group in history.groups:
        if group["status"] in ("QUEUED", "RUNNING"):
            yield Violation("leftover", group["id"], f"the group {group['id']} is {group['status']}")


COUNTED = frozenset({"error", "exit", "timeout", "crash", "lost"})
"""Failures that use up an attempt."""
NEVER_RETRIED = frozenset({"cancelled", "rejected"})
ROUNDING_S = 0.003


def retries_follow_their_policy(history: History) -> Iterator[Violation]:
    """A failure is retried once, after the right delay, as often as its policy allows and no more."""
    children = Counter(job["retry_of"] for job in history.jobs if job["retry_kind"] == "auto")
    following = Counter(job["retry_of"] for job in history.jobs if job["retry_kind"] == "continue")
    for job in history.jobs:
        before = history.job.get(job["retry_of"]) if job["retry_of"] else None
        if before is not None and job["attempt"] != before["attempt"] + (job["retry_kind"] != "continue"):
            sentence = f"job {job['id']} is attempt {job['attempt']} after attempt {before['attempt']}"
            yield Violation("retry", job["id"], sentence)
        if following[job["id"]] != (job["status"] == "CONTINUED"):
            sentence = f"job {job['id']} is {job['status']}, and {following[job['id']]} jobs continue it"
            yield Violation("retry", job["id"], sentence)
        run = history.run_of.get(job["id"])
        if job["status"] != "FAILED" or run is None:
            continue
        has_retry = children[job["id"]] > 0
        if children[job["id"]] > 1:
            yield Violation("retry", job["id"], f"job {job['id']} was retried {children[job['id']]} times")
        if bool(job["permanently_failed"]) == has_retry:
            decided = "both a retry and a verdict" if has_retry else "neither a retry nor a verdict"
            yield Violation("retry", job["id"], f"job {job['id']} failed ({run['error_kind']}) and has {decided}")
            continue
        counted = _counted(history, job)
        if has_retry != _is_due(job, run, counted):
            most = job["retry_policy"]["max_attempts"]
            was = "was" if has_retry else "was not"
            sentence = f"job {job['id']} {was} retried after {counted} counted failures ({run['error_kind']}) of {most}"
            yield Violation("retry", job["id"], sentence)
        elif has_retry:
            yield from _delay(history, job, run, counted)


def _is_due(job: Row, run: Row, counted: int) -> bool:
    most: int = job["retry_policy"]["max_attempts"]
    if run["error_kind"] in NEVER_RETRIED or most == 0:
        return False
    return run["error_kind"] not in COUNTED or counted <= most


def _counted(history: History, job: Row) -> int:
    """Counted failures from this job back to the first of its chain."""
    count = 0
    at: Row | None = job
    while at is not None:
        run = history.run_of.get(at["id"])
        count += run is not None and run["status"] == "FAILED" and run["error_kind"] in COUNTED
        at = history.job.get(at["retry_of"]) if at["retry_of"] else None
    return count


def _delay(history: History, job: Row, run: Row, counted: int) -> Iterator[Violation]:
    retry = history.job.get(job["retried_by"]) if job["retried_by"] else None
    if retry is None:
        yield Violation("retry", job["id"], f"job {job['id']} does not name its retry")
        return
    least = most = 0.0
    if run["error_kind"] in COUNTED:
        policy = job["retry_policy"]
        jitter = policy.get("jitter", 0)
        cap = policy.get("max_delay_s", 3600)
        least = min(policy["base_delay_s"] * 2.0 ** min(counted - 1, 64), cap / (1 + jitter))
        most = min(least * (1 + jitter), cap)
    planned = (retry["not_before"] or run["finished_at"]) - run["finished_at"]
    # Somebody may have edited a retry that waits; nobody does so in a campaign.
    if not least - ROUNDING_S <= planned <= most + ROUNDING_S:
        sentence = f"the retry {retry['id']} waits {planned:.3f} s and not between {least:.3f} and {most:.3f} s"
        yield Violation("retry", job["id"], sentence)
    began = history.wall_of_start.get(retry["id"])
    if history.wall_is_steady and began is not None and began < run["finished_at"] + planned - ROUNDING_S:
        waited = began - run["finished_at"]
        yield Violation("retry", job["id"], f"the retry {retry['id']} began after {waited:.3f} s of {planned:.3f} s")
