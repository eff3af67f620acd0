"""What a handler's code does to its worker's processes and event loop does not end the worker (CON-003, EXE-02)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.job import JobStatus
from tests.crash import forking_jobs, loop_ending_jobs
from tests.crash.processes import Field, Process
from tests.waiting import eventually


def worker_of(ground: Field, app: App, module: str) -> Process:
    ground.app._types = app._types
    return ground.start(program_app=f"tests.crash.{module}:app")


def assert_runs_twice(ground: Field, worker: Process, type_: str, result: Any) -> None:
    """A worker that had been told to end, or had ended, takes no second job."""
    for _ in range(2):
        job_id = ground.app.enqueue_sync(type_).id
        job = eventually(
            lambda: (job := ground.job(job_id)).finished_at is not None and job,  # noqa: B023
            details=worker.output,
        )
        assert (job.status, job.run.result) == (JobStatus.COMPLETED, result), job.run.error


def assert_stops(worker: Process) -> None:
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0


@pytest.mark.rule("CON-003")
@pytest.mark.parametrize("type_", ["pool_in_thread", "pool_in_loop"])
def test_a_pool_that_a_handler_forks_ends_without_ending_the_worker(ground: Field, type_: str) -> None:
    """The end of a pool waits for the end of its processes, to which it sends SIGTERM."""
    worker = worker_of(ground, forking_jobs.app, "forking_jobs")
    assert_runs_twice(ground, worker, type_, [1, 4, 9])
    assert_stops(worker)


@pytest.mark.rule("EXE-02")
@pytest.mark.parametrize("type_", ["exits_in_callback", "interrupts_in_task", "stops_loop"])
def test_a_worker_goes_on_whose_event_loop_a_handler_has_ended(ground: Field, type_: str) -> None:
    worker = worker_of(ground, loop_ending_jobs.app, "loop_ending_jobs")
    assert_runs_twice(ground, worker, type_, "went on")
    assert worker.output().count("the event loop was ended by a handler's code") == 2
    assert_stops(worker)
