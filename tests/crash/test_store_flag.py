"""`--store` and `--concurrency` hold for all that a program does with its App, at whatever moment (OPS-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdbeat.domain.job import JobStatus
from tests.crash.processes import Field
from tests.engine.acting import rows
from tests.waiting import eventually

PROGRAM = "tests.crash.declaring_jobs:app"


@pytest.mark.rule("OPS-01", "DEC-008")
def test_a_module_and_the_process_of_a_handler_use_the_store_of_the_flag(ground: Field, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    worker = ground.start(
        "worker", "--concurrency", "resources:default=7", program_app=PROGRAM, HOLDBEAT_STORE=f"sqlite:///{other}"
    )
    assert rows(ground.store, "SELECT name FROM schedules") == [("nightly",)]
    declared = "SELECT slots FROM limits WHERE name = 'default'"
    eventually(lambda: rows(ground.store, declared) == [(7,)], details=worker.output)
    job_id = ground.app.enqueue_sync("crawl").id
    job = eventually(lambda: (job := ground.job(job_id)).finished_at is not None and job, details=worker.output)
    assert job.status is JobStatus.COMPLETED, job.run.error
    assert ground.job(job.run.result).type == "page"
    assert not other.exists()


@pytest.mark.rule("OPS-01")
def test_a_flag_that_comes_after_the_store_of_the_code_was_opened_is_refused(ground: Field, tmp_path: Path) -> None:
    ground.start(program_app=PROGRAM, PROGRAM_STORE=ground.url)
    own = f"sqlite:///{tmp_path / 'own.db'}"
    worker = ground.start(program_app=PROGRAM, ready=False, PROGRAM_STORE=own)
    assert worker.exit_code() == 2
    assert "--store comes too late" in worker.output()
