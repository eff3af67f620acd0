"""Bugs that are put into the product on purpose: a simulator that does not find them is worth nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from holdbeat.domain import governor
from holdbeat.domain.ids import spread_of
from holdbeat.domain.retry import RetryController, RetryVerdict
from holdbeat.engine import run_keeper
from holdbeat.engine.dispatcher import Dispatcher
from holdbeat.engine.heartbeat import Heartbeat
from holdbeat.handlers.steps import Steps
from holdbeat.store.dependencies import consequences
from holdbeat.store.durable import signals, steps
from holdbeat.store.firing import fire_due
from holdbeat.store.jobs import children, end_runs
from holdbeat.store.recovery import recover
from holdbeat.store.running import candidates, lanes, settle
from holdbeat.store.schedules import after_run
from holdbeat.store.schedules.occurrences import insert_occurrences
from holdbeat.store.webhooks.outbox import Outbox

Patch = contextlib.AbstractContextManager[Any]


def no_fence() -> Patch:
    """A result is taken although the lease is gone."""

    def take(tx: Any, settlement: Any) -> None:
        tx.execute(
            "UPDATE jobs SET status = :status WHERE id = (SELECT job_id FROM job_runs WHERE id = :id)",
            status=settlement.outcome.status.value, id=settlement.lease_id,
        )  # fmt: skip

    return mock.patch.object(settle, "_keep_evidence", take)


def no_stop() -> Patch:
    """A worker that learns that its lease is gone lets the handler go on."""
    return mock.patch.object(Heartbeat, "_stop_lost", lambda self, entry: None)


def settles_twice() -> Patch:
    """A result that is offered again, since the first answer was lost, is told to receivers again."""
    keep_evidence = settle._keep_evidence

    def take(tx: Any, settlement: Any) -> None:
        keep_evidence(tx, settlement)
        row = tx.one(
            "SELECT r.job_id, r.status FROM job_runs r WHERE r.id = :id AND r.worker_id = :worker AND r.fence = :fence "
            "AND r.status = :status",
            id=settlement.lease_id, worker=settlement.worker_id, fence=settlement.fence,
            status=settlement.outcome.status.value,
        )  # fmt: skip
        if row is not None:
            outbox = Outbox(tx)
            outbox.tell_job(f"job.run.{row[1].lower()}", row[0], None)
            outbox.write()

    return mock.patch.object(settle, "_keep_evidence", take)


def forgets_a_wake() -> Patch:
    """The dispatcher does not look again by itself: what is ready later waits for somebody else's wake-up."""
    return mock.patch.object(Dispatcher, "_set_alarm", lambda self, next_ready_at: None)


def loses_a_retry() -> Patch:
    """One failure in twenty is given up although it has retries left."""
    decide = RetryController.decide

    def wrong(job: Any, *args: Any, **options: Any) -> RetryVerdict:
        verdict = decide(job, *args, **options)
        if verdict.retry and spread_of(job.id) < 0.05:
            return RetryVerdict(False, None, "lost")
        return verdict

    return mock.patch.object(RetryController, "decide", staticmethod(wrong))


def counts_wrongly() -> Patch:
    """The last failure is not counted."""
    counted = end_runs._counted_failures
    return mock.patch.object(end_runs, "_counted_failures", lambda tx, job, kind: max(1, counted(tx, job, kind) - 1))


@contextlib.contextmanager
def fires_twice() -> Iterator[None]:
    """A trigger does not see that another has fired, and the database does not forbid it."""

    def replace(tx: Any, occurrences: Any) -> None:
        for occurrence in occurrences:
            tx.execute(
                "DELETE FROM occurrences WHERE schedule_id = :schedule AND due_at = :due",
                schedule=occurrence.schedule_id, due=occurrence.due_at,
            )  # fmt: skip
        insert_occurrences(tx, occurrences)

    with (
        mock.patch.object(fire_due, "taken", lambda tx, value: set()),
        mock.patch.object(fire_due, "insert_occurrences", replace),
    ):
        yield


def claims_out_of_order() -> Patch:
    """Of the jobs of a lane that are ready the newest is taken first."""
    newest_first = candidates._READ_LANE.replace("position, created_at, id", "position DESC, created_at DESC, id DESC")
    return mock.patch.object(candidates, "_READ_LANE", newest_first)


@contextlib.contextmanager
def forgets_a_plan() -> Iterator[None]:
    """An adaptive schedule whose run has failed is not planned again, and recovery does not look for it."""
    plan = after_run._plan

    def wrong(tx: Any, ids: Any, ended: Any, flights: Any) -> None:
        if all(job.status == "COMPLETED" for job in ended):
            plan(tx, ids, ended, flights)

    with (
        mock.patch.object(after_run, "_plan", wrong),
        mock.patch.object(recover, "orphaned_schedules", lambda tx: []),
    ):
        yield


def ignores_clamps() -> Patch:
    """A hint is followed however soon it asks for the next run."""
    return mock.patch.object(governor, "_clamped", lambda inputs, winner, now, clamps: winner and winner.at)


def forgets_steps() -> Patch:
    """A retry does not know what the attempts before it have kept."""
    return mock.patch.object(run_keeper, "kept_values", lambda tx, root_id: {})


def misses_signals() -> Patch:
    """A wait is given up although its signal is there."""
    look, give_up = signals.look_for_signal, signals.give_up_waiting

    def blind(tx: Any, wait: Any) -> dict[str, Any]:
        standing = look(tx, wait)
        return standing if "until" in standing or "timed_out" in standing else {"until": None, "is_due": True}

    def gives_up(tx: Any, wait: Any) -> dict[str, Any]:
        with mock.patch.object(signals, "look_for_signal", blind):
            return give_up(tx, wait)

    return mock.patch.multiple(run_keeper, look_for_signal=blind, give_up_waiting=gives_up)


def doubles_signals() -> Patch:
    """A signal that has ended a wait ends the next one, too."""
    return mock.patch.object(Steps, "take_signal", lambda self, name: None)


def doubles_children() -> Patch:
    """A handler that comes to its child again sometimes makes another one."""
    outcome_of, keep_outcome = steps.outcome_of, steps.keep_outcome

    def forgotten(tx: Any, call: Any) -> Any:
        return None if spread_of(call.job_id) < 0.3 else outcome_of(tx, call)

    def keep_first(tx: Any, call: Any, outcome: Any) -> None:
        if outcome_of(tx, call) is None:
            keep_outcome(tx, call, outcome)

    return mock.patch.multiple(children, outcome_of=forgotten, keep_outcome=keep_first)


def sleeps_too_short() -> Patch:
    """A sleep that was interrupted by the end of its process is taken for over."""
    return mock.patch.object(Steps, "kept_wait", lambda self, key: {"until": "2026-01-01T00:00:00.000Z"})


def opens_dependents_early() -> Patch:
    """A job that waits for two others begins when the first of them has ended."""
    blocked = consequences._blocked
    return mock.patch.object(
        consequences, "_blocked", lambda tx, roots: [(*row[:3], False) for row in blocked(tx, roots)]
    )


def starts_expired() -> Patch:
    """A job that has expired is started all the same."""
    return mock.patch.object(lanes, "expire_jobs", lambda tx: False)


BUGS: dict[str, Callable[[], Patch]] = {
    "take away the fence": no_fence,
    "go on without a lease": no_stop,
    "settle twice": settles_twice,
    "forget a wake": forgets_a_wake,
    "lose a retry": loses_a_retry,
    "count attempts wrongly": counts_wrongly,
    "let two triggers fire": fires_twice,
    "claim out of order": claims_out_of_order,
    "forget an adaptive plan": forgets_a_plan,
    "ignore the clamps of a plan": ignores_clamps,
    "call kept steps again": forgets_steps,
    "give up on a signal": misses_signals,
    "take a signal twice": doubles_signals,
    "make a child twice": doubles_children,
    "sleep too short": sleeps_too_short,
    "open dependents early": opens_dependents_early,
    "start what has expired": starts_expired,
}
