"""A handler that ends the event loop does not end its worker (EXE-02)."""

from __future__ import annotations

import signal

import pytest

from holdbeat.domain.job import JobStatus
from tests.crash import loop_ending_jobs
from tests.crash.processes import Field
from tests.waiting import eventually


@pytest.mark.rule("EXE-02")
@pytest.mark.parametrize("type_", ["exits_in_callback", "interrupts_in_task", "stops_loop"])
def test_a_worker_goes_on_whose_event_loop_a_handler_has_ended(ground: Field, type_: str) -> None:
    ground.app._types = loop_ending_jobs.app._types
    worker = ground.start(program_app="tests.crash.loop_ending_jobs:app")
    for _ in range(2):
        job_id = ground.app.enqueue_sync(type_).id
        job = eventually(
            lambda: (job := ground.job(job_id)).finished_at is not None and job,  # noqa: B023
            details=worker.output,
        )
        assert (job.status, job.run.result) == (JobStatus.COMPLETED, "went on"), job.run.error
    assert worker.output().count("the event loop was ended by a handler's code") == 2
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
