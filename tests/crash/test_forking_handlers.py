"""Handlers that fork: SIGTERM to their processes ends those and not the worker (CON-003)."""

from __future__ import annotations

import signal

import pytest

from holdbeat.domain.job import JobStatus
from tests.crash import forking_jobs
from tests.crash.processes import Field
from tests.waiting import eventually


@pytest.mark.rule("CON-003")
@pytest.mark.parametrize("type_", ["pool_in_thread", "pool_in_loop"])
def test_a_pool_that_a_handler_forks_ends_without_ending_the_worker(ground: Field, type_: str) -> None:
    ground.app._types = forking_jobs.app._types
    worker = ground.start(program_app="tests.crash.forking_jobs:app")
    # The end of a pool waits for the end of its processes. A worker that had been told to end takes no second job.
    for _ in range(2):
        job_id = ground.app.enqueue_sync(type_).id
        job = eventually(
            lambda: (job := ground.job(job_id)).finished_at is not None and job,  # noqa: B023
            details=worker.output,
        )
        assert (job.status, job.run.result) == (JobStatus.COMPLETED, [1, 4, 9]), job.run.error
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
