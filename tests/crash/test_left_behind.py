"""What runs have started does not go on beside their retries when a worker is killed (REC-06)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.job import JobStatus
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.handlers.process_group import RunWatcher
from holdbeat.store.running.claim import Vacancy, claim
from tests.crash.jobs import NOTE_TIMES
from tests.crash.processes import Field
from tests.engine.acting import rows
from tests.engine.handler_stage import is_alive
from tests.waiting import eventually

SOON: dict[str, Any] = {"lease_s": 2, "heartbeat_s": 0.4, "grace_s": 1, "recover_s": 0.3, "allow_shell": "true"}
AT_ONCE = {"max_attempts": 1, "base_delay_s": 0.1, "max_delay_s": 1, "jitter": 0}


def steps_of(ground: Field, run_id: str) -> list[float]:
    return [float(words[2]) for words in ground.noted("step") if words[1] == run_id]


def retry_of_killed(ground: Field, handle: Any) -> tuple[str, str]:
    """Kills the worker in the middle of the run, and returns the ids of this run and of the one that retries it."""
    (run_id,) = eventually(lambda: rows(ground.store, "SELECT id FROM job_runs"))[0]
    eventually(lambda: len(steps_of(ground, run_id)) > 2, details=lambda: run_id)
    ground._processes[0].kill()
    ground.start(**SOON)
    retry = eventually(lambda: (result := ground.job(handle.id)).status is JobStatus.FAILED and result.retried_by)
    (retry_run_id,) = eventually(lambda: rows(ground.store, "SELECT id FROM job_runs WHERE job_id = :id", id=retry))[0]
    eventually(lambda: len(steps_of(ground, retry_run_id)) > 10)
    return run_id, retry_run_id


@pytest.mark.rule("REC-06")
@pytest.mark.parametrize("is_session", [False, True], ids=["in its group", "in a session of its own"])
def test_the_children_of_a_process_run_are_dead_before_the_retry_begins(ground: Field, is_session: bool) -> None:
    ground.start(**SOON)
    app = ground.app.with_options(retries=AT_ONCE)
    run_id, retry_run_id = retry_of_killed(
        ground, app.enqueue_sync("delegate", diary=ground.diary, is_session=is_session)
    )
    assert max(steps_of(ground, run_id)) < min(steps_of(ground, retry_run_id))


@pytest.mark.rule("REC-06")
def test_a_shell_pipeline_is_dead_before_the_retry_begins(ground: Field) -> None:
    ground.start(**SOON)
    script = ground.folder / "steps.py"
    script.write_text(NOTE_TIMES)
    command = f'{sys.executable} {script} {ground.diary} "step $HOLDBEAT_RUN_ID" | cat'
    app = ground.app.with_options(retries=AT_ONCE)
    run_id, retry_run_id = retry_of_killed(ground, app.enqueue_sync("shell", argv=command, shell=True))
    assert max(steps_of(ground, run_id)) < min(steps_of(ground, retry_run_id))


@pytest.mark.rule("REC-06")
@pytest.mark.asyncio
async def test_recovery_kills_the_processes_of_lost_runs_on_this_machine_and_no_others(ground: Field) -> None:
    """Without the watcher: as if it had been killed together with the worker."""
    ground.app.enqueue_sync("work", diary=ground.diary)
    (held,) = ground.store.write_sync(claim, Vacancy("gone", [0], types=["work"]))
    assert held.job is not None
    ids = {"lost": held.lease.id, "other": held.lease.id[:-1] + "x"}
    sleepers = {
        name: subprocess.Popen(["sleep", "60"], env={"HOLDBEAT_RUN_ID": run_id}, start_new_session=True)  # noqa: ASYNC220
        for name, run_id in ids.items()
    }
    try:
        ground.store.write_sync(lambda tx: tx.execute("UPDATE leases SET expires_at = heartbeat_at"))
        recovery = ZombieRecovery(ground.store, ground.app.settings.lease_terms, 0.1)
        trouble = frozenset({"gone"})
        assert await recovery.recover(trouble) > 0
        assert ground.job(held.job.id).status is JobStatus.FAILED
        assert sleepers["lost"].wait(5) == -signal.SIGKILL
        assert sleepers["other"].poll() is None
    finally:
        for sleeper in sleepers.values():
            sleeper.kill()
            sleeper.wait()


@pytest.mark.rule("REC-06")
def test_the_recover_command_kills_the_processes_of_lost_runs_too(ground: Field) -> None:
    ground.app.enqueue_sync("work", diary=ground.diary)
    (held,) = ground.store.write_sync(claim, Vacancy("gone", [0], types=["work"]))
    sleeper = subprocess.Popen(["sleep", "60"], env={"HOLDBEAT_RUN_ID": held.lease.id}, start_new_session=True)
    try:
        ground.store.write_sync(
            lambda tx: tx.execute("UPDATE leases SET expires_at = acquired_at, heartbeat_at = acquired_at")
        )
        environment = {**os.environ, "HOLDBEAT_GRACE_S": "0"}
        subprocess.run(
            [sys.executable, "-m", "holdbeat", "recover", "--store", ground.url], env=environment, check=True
        )
        assert sleeper.wait(5) == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()


def open_files(pid: int) -> list[str]:
    """What the descriptors of a process lead to; one may be closed between two looks."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(link))
    return targets


@pytest.mark.rule("REC-06")
@pytest.mark.parametrize("is_stopped", [False, True], ids=["", "and stopped with its worker"])
def test_a_watcher_that_dies_is_replaced_and_told_of_all_runs(tmp_path: Path, is_stopped: bool) -> None:
    program = (
        "import os, sys, time\n"
        "from holdbeat.handlers.process_group import RunWatcher\n"
        "watcher = RunWatcher()\n"
        "watcher.add('one', int(sys.argv[1]))\n"
        "watcher._process.kill()\n"
        "watcher._process.wait()\n"
        "watcher.add('two', int(sys.argv[2]))\n"
        "print(watcher._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    sleepers = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
    worker = subprocess.Popen(
        [sys.executable, "-c", program, *(str(sleeper.pid) for sleeper in sleepers)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        watcher = int(worker.stdout.readline())
        os.kill(watcher, signal.SIGTERM)  # as a service manager sends to all: the watcher has blocked it
        assert is_alive(watcher)
        assert all(sleeper.poll() is None for sleeper in sleepers)
        if is_stopped:
            eventually(lambda: any("pidfd" in os.readlink(link) for link in Path(f"/proc/{watcher}/fd").iterdir()))
            for pid in (worker.pid, watcher):
                os.kill(pid, signal.SIGSTOP)
        worker.kill()
        assert [sleeper.wait(10) for sleeper in sleepers] == [-signal.SIGKILL] * 2
        eventually(lambda: not is_alive(watcher))
    finally:
        worker.kill()
        worker.communicate()
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.rule("REC-06")
def test_a_run_that_has_ended_is_not_killed_for(tmp_path: Path) -> None:
    watcher = RunWatcher()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as sleeper:
        watcher.add("one", sleeper.pid)
        watcher.remove("one")
        assert watcher._process is not None and watcher._process.stdin is not None
        watcher._process.stdin.close()
        assert watcher._process.wait(10) == 0
        assert sleeper.poll() is None
        sleeper.kill()
