"""The check about retries: each failure has its one retry or its verdict, as its policy says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdbeat.torture.checker.history import History, Row, Violation

COUNTED = frozenset({"error", "exit", "timeout", "crash", "lost"})
"""Failures that use up an attempt."""
NEVER_RETRIED = frozenset({"cancelled", "rejected"})
ROUNDING_S = 0.003


def retries_follow_their_policy(history: History) -> Iterator[Violation]:
    """A failure is retried once, after the right delay, as often as its policy allows and no more."""
    children = Counter(job["retry_of"] for job in history.jobs if job["retry_kind"] == "auto")
    for job in history.jobs:
        before = history.job.get(job["retry_of"]) if job["retry_of"] else None
        if before is not None and job["attempt"] != before["attempt"] + 1:
            sentence = f"job {job['id']} is attempt {job['attempt']} after attempt {before['attempt']}"
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
            what = "was" if has_retry else "was not"
            sentence = (
                f"job {job['id']} {what} retried after {counted} counted failures ({run['error_kind']}) of {most}"
            )
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
