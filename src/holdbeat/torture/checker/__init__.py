"""The history checker: decides from plain rows whether a scheduler kept its promises.

It knows nothing of the store or the engine. It is handed what was acknowledged, what handlers themselves saw, and the
tables as they stand in the end, and computes what must be true from these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdbeat.torture.checker.durable import (
    children_are_made_once,
    nothing_starts_expired,
    signals_arrive_once,
    sleeps_last,
    steps_are_kept,
    unique_keys_exclude,
    upstreams_end_first,
)
from holdbeat.torture.checker.history import History, Violation
from holdbeat.torture.checker.jobs import (
    acknowledged_jobs_end,
    cancels_hold,
    fences_are_unique,
    keys_name_one_job,
    nothing_is_left_over,
    retries_follow_their_policy,
    starts_are_on_record,
)
from holdbeat.torture.checker.limits import groups_run_in_order, limits_hold
from holdbeat.torture.checker.messages import deliveries_arrive, due_times_have_one_verdict, requests_run_at_most_once

__all__ = ["CHECKS", "History", "Violation", "check"]

Check = Callable[[History], Iterable[Violation]]

CHECKS: dict[str, Check] = {
    "every acknowledged submission ends": acknowledged_jobs_end,
    "a cancel that was acknowledged holds": cancels_hold,
    "a key names one job": keys_name_one_job,
    "witnessed starts equal the runs on record": starts_are_on_record,
    "a fence is given out once": fences_are_unique,
    "limits hold as physical intervals": limits_hold,
    "sequential groups run in order": groups_run_in_order,
    "retries follow their policy": retries_follow_their_policy,
    "each due time has one verdict": due_times_have_one_verdict,
    "a direct request runs at most once": requests_run_at_most_once,
    "messages arrive at least once": deliveries_arrive,
    "a step that was passed is not called again": steps_are_kept,
    "a sleep lasts": sleeps_last,
    "signals are neither lost nor doubled": signals_arrive_once,
    "a child is made once": children_are_made_once,
    "upstreams end first": upstreams_end_first,
    "a unique key excludes": unique_keys_exclude,
    "nothing starts after it has expired": nothing_starts_expired,
    "nothing is left over": nothing_is_left_over,
}
"""Each promise in words, and the function that looks for a breach of it."""


def check(history: History) -> list[Violation]:
    """Every violation that any check finds, sorted, so that equal histories give equal answers."""
    return sorted(violation for check in CHECKS.values() for violation in check(history))
