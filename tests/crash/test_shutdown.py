"""SIGTERM and SIGINT to real processes: nothing new, a chance to finish, and everything given back (CON-003)."""

from __future__ import annotations

import signal
import time

import pytest

from holdbeat.domain.job import JobStatus
from tests.crash.processes import Field
from tests.engine.acting import event_names, rows, value
from tests.waiting import eventually


def begun(ground: Field, count: int = 1) -> None:
    eventually(lambda: len(ground.noted("begun")) == count)


@pytest.mark.rule("CON-003")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_short_job_completes_nothing_more_is_claimed_and_the_exit_is_zero(
    ground: Field, number: signal.Signals
) -> None:
    process = ground.start()
    short = ground.app.enqueue_sync("work", diary=ground.diary, seconds=1.0)
    begun(ground)
    waiting = ground.app.enqueue_sync("work", diary=ground.diary)
    process.send(number)
    assert process.exit_code() == 0
    assert ground.job(short.id).status is JobStatus.COMPLETED
    assert ground.job(waiting.id).status is JobStatus.QUEUED
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
    assert rows(ground.store, "SELECT id FROM workers WHERE stopped_at IS NULL") == []
    assert {"shutdown.begun", "shutdown.ended", "worker.stopped"} <= set(event_names(ground.store))


@pytest.mark.rule("CON-003", "DEC-007")
def test_a_long_job_is_interrupted_and_tried_again_at_once_without_being_counted(ground: Field) -> None:
    process = ground.start(shutdown_grace_s=0.5)
    long = ground.app.enqueue_sync("work", diary=ground.diary, seconds=60)
    begun(ground)
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0
    ended = ground.job(long.id)
    assert (ended.status, ended.run.error_kind) == (JobStatus.FAILED, "interrupted")
    retry = ground.job(ended.retried_by)
    assert (retry.status, retry.not_before, retry.permanently_failed) == (JobStatus.QUEUED, None, False)
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
    assert ground.noted("ended") == []


@pytest.mark.rule("CON-003")
def test_a_second_signal_ends_the_grace_even_of_handlers_that_ignore_it(ground: Field) -> None:
    process = ground.start(shutdown_grace_s=600)
    options = ground.app.with_options(cancel_grace=0.3, retries=0)
    unsubscribe = options.enqueue_sync("unsubscribe", diary=ground.diary)
    begun(ground)
    process.send(signal.SIGTERM)
    eventually(lambda: "shutdown.begun" in event_names(ground.store))
    process.send(signal.SIGTERM)
    asked_at = time.monotonic()
    assert process.exit_code() == 0
    assert time.monotonic() - asked_at < 30
    ended = ground.job(unsubscribe.id)
    assert (ended.status, ended.run.error_kind) == (JobStatus.FAILED, "interrupted")
    # max_attempts 0: not tried again for any reason.
    assert (ended.retried_by, ended.permanently_failed) == (None, True)
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
    assert ground.noted("told") != []


@pytest.mark.rule("CON-003", "LEASE-02")
@pytest.mark.parametrize("verb", ["worker", "serve"])
def test_a_handler_that_blocks_the_event_loop_cannot_keep_the_process_from_ending(ground: Field, verb: str) -> None:
    process = ground.start(verb, shutdown_grace_s=0.5)
    seized = ground.app.with_options(cancel_grace=0.3).enqueue_sync("seize", diary=ground.diary, seconds=300)
    begun(ground)
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0
    ended = ground.job(seized.id)
    assert (ended.status, ended.run.error_kind) == (JobStatus.FAILED, "interrupted")
    assert ground.job(ended.retried_by).status is JobStatus.QUEUED
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
    assert rows(ground.store, "SELECT id FROM workers WHERE stopped_at IS NULL") == []
    assert {"shutdown.begun", "shutdown.ended", "worker.stopped"} <= set(event_names(ground.store))
    assert rows(ground.store, "SELECT text FROM run_logs") == [("the last words\n",)]
    assert "blocks the event loop" in process.output()


@pytest.mark.rule("CON-003")
def test_a_second_signal_ends_the_grace_though_the_event_loop_is_blocked(ground: Field) -> None:
    process = ground.start(shutdown_grace_s=600)
    options = ground.app.with_options(cancel_grace=0.3, retries=0)
    seized = options.enqueue_sync("seize", diary=ground.diary, seconds=300)
    begun(ground)
    process.send(signal.SIGTERM)
    process.send(signal.SIGINT)
    assert process.exit_code() == 0
    ended = ground.job(seized.id)
    assert (ended.status, ended.run.error_kind) == (JobStatus.FAILED, "interrupted")


@pytest.mark.rule("CON-003")
def test_a_success_within_the_grace_counts_though_the_event_loop_was_blocked(ground: Field) -> None:
    process = ground.start(shutdown_grace_s=60)
    seized = ground.app.enqueue_sync("seize", diary=ground.diary, seconds=3)
    begun(ground)
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0
    assert ground.job(seized.id).status is JobStatus.COMPLETED
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
