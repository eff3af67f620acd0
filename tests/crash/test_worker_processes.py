"""`holdbeat worker --processes N`: several workers under one process, started again when they die, stopped together."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.job import JobStatus
from holdbeat.engine.worker_processes import WorkerProcesses
from tests.crash.processes import Field, Process
from tests.engine.acting import event_names, rows, value
from tests.waiting import eventually

pytestmark = pytest.mark.rule("CON-005")


def live_pids(ground: Field) -> set[int]:
    alive = set()
    for (pid,) in rows(ground.store, "SELECT pid FROM workers WHERE stopped_at IS NULL AND kind = 'worker'"):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        alive.add(pid)
    return alive


def others_than(ground: Field, killed: set[int], count: int, parent: Process) -> set[int]:
    """Waits until so many workers are alive and the killed ones are not among them."""

    def alive() -> set[int] | None:
        pids = live_pids(ground)
        return pids if len(pids) == count and not pids & killed else None

    pids: set[int] = eventually(alive, details=parent.output)
    return pids


def start(ground: Field, count: int = 2, *flags: str, **settings: Any) -> tuple[Process, set[int]]:
    parent = ground.start("worker", "--processes", str(count), *flags, ready=False, **settings)
    eventually(lambda: len(live_pids(ground)) == count, details=parent.output)
    return parent, live_pids(ground)


def test_a_killed_worker_is_started_again_and_sigterm_stops_all(ground: Field) -> None:
    parent, first = start(ground)
    assert parent.pid not in first
    killed = min(first)
    os.kill(killed, signal.SIGKILL)
    others_than(ground, {killed}, 2, parent)
    assert f"pid {killed}, ended with signal SIGKILL; it is started again in 0.5 s" in parent.output()
    done = ground.app.enqueue_sync("work", diary=ground.diary)
    assert done.wait_sync(60).status is JobStatus.COMPLETED
    pids = live_pids(ground)
    parent.send(signal.SIGTERM)
    assert parent.exit_code() == 0
    assert live_pids(ground) == set()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_pause_before_a_new_start_grows(ground: Field) -> None:
    parent, pids = start(ground, 1)
    for pause in ("0.5", "1.0", "2.0"):
        (pid,) = pids
        os.kill(pid, signal.SIGKILL)
        pids = others_than(ground, pids, 1, parent)
        assert f"pid {pid}, ended with signal SIGKILL; it is started again in {pause} s" in parent.output()
    parent.send(signal.SIGTERM)
    assert parent.exit_code() == 0


@pytest.mark.rule("CON-003")
def test_a_second_signal_ends_the_grace_of_all(ground: Field) -> None:
    parent, _ = start(ground, 2, shutdown_grace_s=600)
    options = ground.app.with_options(resource="many", retries=0, cancel_grace=0.3)
    jobs = [options.enqueue_sync("work", diary=ground.diary, seconds=600) for _ in range(2)]
    eventually(lambda: len(ground.noted("begun")) == 2, details=parent.output)
    parent.send(signal.SIGINT)
    eventually(lambda: event_names(ground.store).count("shutdown.begun") == 2, details=parent.output)
    assert value(ground.store, "SELECT count(*) FROM jobs WHERE status = 'RUNNING'") == 2
    parent.send(signal.SIGINT)
    assert parent.exit_code() == 0
    assert {ground.job(job.id).run.error_kind for job in jobs} == {"interrupted"}
    assert value(ground.store, "SELECT count(*) FROM leases") == 0


def test_workers_shut_down_in_order_when_their_parent_is_killed(ground: Field) -> None:
    parent, pids = start(ground)
    parent.kill()
    eventually(lambda: live_pids(ground) == set(), details=parent.output)
    assert event_names(ground.store).count("shutdown.ended") == len(pids)


def test_settings_that_no_worker_could_start_with_are_refused_at_once(ground: Field) -> None:
    parent = ground.start("worker", "--processes", "2", "--slots", "-5", ready=False)
    assert parent.exit_code() == 2


def test_a_worker_that_ends_for_good_ends_all_with_its_exit_code(tmp_path: Path) -> None:
    """By commands of our own: a real worker does so when its store was replaced beneath it."""
    waits = [sys.executable, "-c", "import time; time.sleep(60)"]
    refused = [sys.executable, "-c", "import sys; sys.exit(3)"]
    assert WorkerProcesses([waits, refused], SystemClock()).run() == 3
