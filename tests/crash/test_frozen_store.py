"""A store that does not answer any more cannot keep a process from ending (CON-003, DEC-008)."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdbeat.domain.job import JobStatus
from tests.conformance.fault_proxy import FaultProxy
from tests.crash import frozen_disk
from tests.crash.processes import Field, Process, field
from tests.engine.acting import rows
from tests.waiting import eventually

SHORT: dict[str, Any] = {
    "shutdown_grace_s": 0.5, "lease_s": 2, "heartbeat_s": 0.4, "grace_s": 1, "recover_s": 0.3,
}  # fmt: skip
LONG = SHORT | {"shutdown_grace_s": 600}
ENDS_WITHIN_S = 45.0
"""So long a test waits; the process waits half a minute for a store that does not answer."""
NOT_SETTLED = "could not be settled before the end; recovery will find them: "


def leased(ground: Field) -> list[str]:
    return [row[0] for row in rows(ground.store, "SELECT id FROM leases")]


def end_unsettled(process: Process, run_id: str, *, is_told_twice: bool = False) -> None:
    """Tells a process to end, which names the run whose end it could not store."""
    process.send(signal.SIGTERM)
    if is_told_twice:
        eventually(lambda: "shutting down" in process.output(), details=process.output)
        process.send(signal.SIGTERM)
    assert process.exit_code(ENDS_WITHIN_S) == 5
    assert f"{NOT_SETTLED}{run_id}" in process.output()


def assert_nothing_is_lost(ground: Field, job_id: str) -> None:
    """Another worker finds the run whose end was not stored."""
    ground.start(**SHORT)
    ended = eventually(lambda: (job := ground.job(job_id)).status is not JobStatus.RUNNING and job)
    assert (ended.status, ended.retried_by is not None) == (JobStatus.FAILED, True)


@pytest.mark.rule("CON-003", "DEC-008")
@pytest.mark.parametrize(
    ("verb", "flags", "settings"),
    [("worker", [], SHORT), ("serve", [], LONG), ("worker", ["--processes", "1"], LONG)],
    ids=["worker", "serve, second signal", "processes, second signal"],
)
def test_a_flush_that_does_not_return_cannot_keep_a_process_from_ending(
    sqlite_ground: Field, tmp_path: Path, verb: str, flags: list[str], settings: dict[str, Any]
) -> None:
    ground = sqlite_ground
    process = ground.start(
        verb, *flags, ready=not flags, program_app="tests.crash.frozen_disk:app",
        **frozen_disk.environment(tmp_path), **settings,
    )  # fmt: skip
    job = ground.app.enqueue_sync("freeze_disk", diary=ground.diary)
    eventually(lambda: ground.noted("frozen"), details=process.output)
    (run_id,) = leased(ground)
    end_unsettled(process, run_id, is_told_twice=settings is LONG)
    assert "was not closed within 10 s: its disk or another process holds it up" in process.output()
    assert_nothing_is_lost(ground, job.id)


@pytest.mark.rule("CON-003", "DEC-008")
def test_a_process_whose_event_loop_and_disk_stand_still_says_what_is_not_stored(
    sqlite_ground: Field, tmp_path: Path
) -> None:
    ground = sqlite_ground
    process = ground.start(
        program_app="tests.crash.frozen_disk:app", slots=2, **frozen_disk.environment(tmp_path), **SHORT
    )
    job = ground.app.with_options(cancel_grace=0.3).enqueue_sync("freeze_disk_and_loop", diary=ground.diary)
    eventually(lambda: ground.noted("frozen"), details=process.output)
    (run_id,) = leased(ground)
    end_unsettled(process, run_id)
    assert_nothing_is_lost(ground, job.id)


@pytest.mark.rule("CON-003", "DEC-008")
@pytest.mark.parametrize(("verb", "settings"), [("worker", SHORT), ("serve", LONG)], ids=["worker", "second signal"])
def test_a_database_that_stands_still_cannot_keep_a_process_from_ending(
    postgres_url: str, tmp_path: Path, verb: str, settings: dict[str, Any]
) -> None:
    proxy = FaultProxy(postgres_url)
    with field(postgres_url, tmp_path) as ground:
        process = ground.start(verb, "--store", proxy.url, **settings)
        job = ground.app.enqueue_sync("work", diary=ground.diary, seconds=600)
        eventually(lambda: ground.noted("begun"), details=process.output)
        (run_id,) = leased(ground)
        proxy.swallow()
        end_unsettled(process, run_id, is_told_twice=settings is LONG)
        proxy.close()
        assert_nothing_is_lost(ground, job.id)


def handles_sigterm(process: Process) -> bool:
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def end_before_it_has_started(process: Process) -> None:
    eventually(lambda: handles_sigterm(process), details=process.output)
    process.send(signal.SIGTERM)
    assert process.exit_code(ENDS_WITHIN_S) == 0
    assert "told to end before it had started" in process.output()


@pytest.mark.rule("CON-003")
def test_a_worker_whose_disk_stands_still_while_it_starts_can_be_stopped(sqlite_ground: Field, tmp_path: Path) -> None:
    ground = sqlite_ground
    assert ground.store is not None, "its job types are announced, so that a worker first writes when it registers"
    environment = frozen_disk.environment(tmp_path, frozen=True)
    process = ground.start(ready=False, program_app="tests.crash.frozen_disk:app", **environment, **SHORT)
    end_before_it_has_started(process)


@pytest.mark.rule("CON-003")
def test_a_worker_that_waits_for_a_lock_while_it_starts_can_be_stopped(postgres_url: str, tmp_path: Path) -> None:
    with field(postgres_url, tmp_path) as ground:
        assert ground.store is not None
        with psycopg.connect(postgres_url) as connection:
            connection.execute("LOCK TABLE workers")
            end_before_it_has_started(ground.start(ready=False, **SHORT))


@pytest.mark.rule("CON-003", "FRM-04")
def test_a_worker_whose_startup_function_does_not_return_can_be_stopped(ground: Field) -> None:
    process = ground.start(ready=False, program_app="tests.crash.loading_forever:app", **SHORT)
    eventually(lambda: "loading" in process.output(), details=process.output)
    end_before_it_has_started(process)
    assert rows(ground.store, "SELECT id FROM workers WHERE stopped_at IS NULL") == []
