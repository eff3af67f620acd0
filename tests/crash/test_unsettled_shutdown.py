"""A worker that could not settle its runs before it ended is dead for the others at once (LEASE-05)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdbeat.domain.job import JobStatus
from tests.crash.processes import Field
from tests.waiting import eventually


@pytest.mark.rule("LEASE-05", "OPS-03")
def test_runs_of_a_worker_whose_store_was_away_at_its_end_are_recovered_at_once(sqlite_ground: Field) -> None:
    ground = sqlite_ground
    worker = ground.start(recover_s=0.2)
    long = ground.app.enqueue_sync("work", diary=ground.diary, seconds=600)
    eventually(lambda: ground.noted("begun"), details=worker.output)
    path = Path(ground.url.removeprefix("sqlite:///"))
    ground.app.close()
    os.rename(path, path.with_suffix(".away"))
    assert worker.exit_code() == 3
    os.rename(path.with_suffix(".away"), path)
    ground.start(recover_s=0.2)
    ended = eventually(lambda: (job := ground.job(long.id)).status is not JobStatus.RUNNING and job, 15)
    assert (ended.status, ended.run.error_kind) == (JobStatus.FAILED, "crash")
