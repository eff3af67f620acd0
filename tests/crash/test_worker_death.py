"""Workers that die, freeze and thaw: their work is found, and their late word does not count."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.job import JobStatus
from holdbeat.store.jobs.cancel import cancel_job
from tests.crash.processes import Field, field
from tests.engine.acting import event_names, rows, value
from tests.waiting import eventually

SHORT_LEASE: dict[str, Any] = {"lease_s": 2, "heartbeat_s": 0.4, "grace_s": 0.5, "recover_s": 0.3}


@pytest.mark.rule("LEASE-05", "REC-01", "REC-02", "DEC-007")
def test_the_work_of_a_killed_worker_is_found_at_once(ground: Field) -> None:
    """With the default lease of five minutes: the kernel tells of the death, not the clock."""
    took_s = []
    doomed = ground.start()
    for number in range(1, 4):
        handle = ground.app.enqueue_sync("work", diary=ground.diary, seconds=60)
        eventually(lambda: len(ground.noted("begun")) == number)  # noqa: B023
        heir = ground.start()
        doomed.kill()
        killed_at = time.monotonic()
        failed = eventually(lambda: (result := ground.job(handle.id)).status is JobStatus.FAILED and result)  # noqa: B023
        took_s.append(time.monotonic() - killed_at)
        assert failed.run.error_kind == "crash"
        assert failed.run.error.startswith("Crash recovery: the worker")
        retry = ground.job(failed.retried_by)
        assert (retry.status, retry.not_before is not None) == (JobStatus.QUEUED, True)
        assert value(ground.store, "SELECT count(*) FROM leases") == 0
        ground.app.store.write_sync(cancel_job, retry.id)
        doomed = heir
    # The machine may be busy, but not three times in a row.
    assert min(took_s) < 2.0


def move_workers_to_another_machine(ground: Field) -> None:
    ground.store.write_sync(lambda tx: tx.execute("UPDATE workers SET machine = 'another machine'"))


@pytest.mark.rule("REC-01", "LEASE-05")
def test_on_postgres_the_lease_decides_about_a_worker_of_another_machine(postgres_url: str, tmp_path: Path) -> None:
    with field(postgres_url, tmp_path) as ground:
        doomed = ground.start(**SHORT_LEASE)
        move_workers_to_another_machine(ground)
        handle = ground.app.enqueue_sync("work", diary=ground.diary, seconds=60)
        eventually(lambda: ground.noted("begun"))
        ground.start(**SHORT_LEASE)
        doomed.kill()
        failed = eventually(lambda: (result := ground.job(handle.id)).status is JobStatus.FAILED and result)
        assert failed.run.error_kind == "lost"
        assert failed.retried_by is not None


@pytest.mark.rule("REC-01", "LEASE-01", "LEASE-05")
def test_on_postgres_the_limit_of_a_run_decides_where_it_is_shorter_than_the_lease(
    postgres_url: str, tmp_path: Path
) -> None:
    with field(postgres_url, tmp_path) as ground:
        long_lease = {**SHORT_LEASE, "lease_s": 300}
        doomed = ground.start(**long_lease)
        move_workers_to_another_machine(ground)
        limited = ground.app.with_options(timeout=4, cancel_grace=0.5)
        handle = limited.enqueue_sync("work", diary=ground.diary, seconds=60)
        eventually(lambda: ground.noted("begun"))
        doomed.kill()
        killed_at = time.monotonic()
        ground.start(**long_lease)
        failed = eventually(lambda: (result := ground.job(handle.id)).status is JobStatus.FAILED and result)
        assert failed.run.error_kind == "lost"
        assert time.monotonic() - killed_at < 60


@pytest.mark.rule("LEASE-03", "LEASE-04", "REC-01", "DEC-001")
def test_a_frozen_worker_loses_its_job_to_another_and_its_late_result_is_refused(ground: Field) -> None:
    frozen = ground.start(**SHORT_LEASE)
    once = ground.app.with_options(retries={"max_attempts": 1, "base_delay_s": 0.1, "max_delay_s": 1, "jitter": 0})
    # Long enough to be frozen in, short enough to end right after the thaw, before a beat can stop it.
    handle = once.enqueue_sync("block", diary=ground.diary, seconds=1.0)
    eventually(lambda: ground.noted("begun"))
    ground.freeze(frozen)
    other = ground.start(**SHORT_LEASE)
    lost = eventually(lambda: (result := ground.job(handle.id)).status is JobStatus.FAILED and result)
    assert lost.run.error_kind == "lost"
    retried = eventually(lambda: (result := ground.job(lost.retried_by)).status is JobStatus.COMPLETED and result)
    frozen.send(signal.SIGCONT)
    eventually(lambda: "lease.stale_result" in event_names(ground.store, handle.id))
    again = ground.job(handle.id)
    assert (again.status, again.run) == (lost.status, lost.run)
    assert ground.job(retried.id).run == retried.run
    # Twice executed, and both are on record, each with a fence of its own.
    assert [line[1] for line in ground.noted("begun")] == [lost.run.id, retried.run.id]
    assert len(ground.noted("ended")) == 2
    assert retried.run.fence > lost.run.fence
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
    other.send(signal.SIGTERM)
    assert other.exit_code() == 0


@pytest.mark.rule("LEASE-03", "DEC-007", "DEC-001")
def test_two_workers_frozen_in_turn_and_thawed_together_settle_nothing(sqlite_ground: Field) -> None:
    ground = sqlite_ground
    policy = {"max_attempts": 2, "base_delay_s": 0.1, "max_delay_s": 1, "jitter": 0}
    first = ground.start(**SHORT_LEASE)
    handle = ground.app.with_options(retries=policy).enqueue_sync("block", diary=ground.diary, seconds=1.0)
    eventually(lambda: len(ground.noted("begun")) == 1)
    ground.freeze(first)
    second = ground.start(**SHORT_LEASE)
    eventually(lambda: len(ground.noted("begun")) == 2)
    ground.freeze(second)
    ground.start(**SHORT_LEASE)
    chain = [handle.id]
    for _ in range(2):
        chain.append(eventually(lambda: ground.job(chain[-1]).retried_by))
    eventually(lambda: ground.job(chain[-1]).status is JobStatus.COMPLETED)
    before = [ground.job(job_id).run for job_id in chain]
    first.send(signal.SIGCONT)
    second.send(signal.SIGCONT)
    eventually(lambda: event_names(ground.store).count("lease.stale_result") == 2)
    assert [ground.job(job_id).run for job_id in chain] == before
    assert [run.error_kind for run in before] == ["lost", "lost", None]
    assert [line[1] for line in ground.noted("begun")] == [run.id for run in before]
    assert len(ground.noted("ended")) == 3
    assert value(ground.store, "SELECT count(*) FROM leases") == 0


@pytest.mark.rule("LEASE-01", "REC-01")
def test_a_pause_shorter_than_the_lease_costs_nothing(ground: Field) -> None:
    worker = ground.start(lease_s=8, heartbeat_s=0.5, grace_s=1, recover_s=0.2)
    handle = ground.app.enqueue_sync("work", diary=ground.diary, seconds=0.5)
    eventually(lambda: ground.noted("begun"))
    ground.freeze(worker)
    ground.start(lease_s=8, heartbeat_s=0.5, grace_s=1, recover_s=0.2)
    worker.send(signal.SIGCONT)
    done = eventually(lambda: (result := ground.job(handle.id)).status is not JobStatus.RUNNING and result)
    assert done.status is JobStatus.COMPLETED
    assert "zombie.found" not in event_names(ground.store)


@pytest.mark.rule("OPS-06", "CAP-02", "DEC-001")
def test_two_servers_on_one_store_share_the_work_and_one_goes_on_when_the_other_dies(ground: Field) -> None:
    first, second = ground.start("serve", slots=4, **SHORT_LEASE), ground.start("serve", slots=4, **SHORT_LEASE)
    app = ground.app
    app.enqueue_many_sync([app.call("quick", diary=ground.diary, number=number) for number in range(60)])
    eventually(lambda: len(ground.noted("did")) >= 60)
    first.kill()
    app.enqueue_many_sync([app.call("quick", diary=ground.diary, number=number) for number in range(60, 90)])
    eventually(lambda: value(ground.store, "SELECT count(*) FROM jobs WHERE finished_at IS NULL") == 0)
    eventually(lambda: {int(line[1]) for line in ground.noted("did")} == set(range(90)))
    runs = [line[2] for line in ground.noted("did")]
    assert len(runs) == len(set(runs)) == 90
    second.send(signal.SIGTERM)
    assert second.exit_code() == 0
    # What the first had done and not yet said when it was killed is on record as failed, for a reason.
    ends = set(rows(ground.store, "SELECT DISTINCT status, error_kind FROM job_runs"))
    assert ends <= {("COMPLETED", None), ("FAILED", "crash"), ("FAILED", "lost")}


@pytest.mark.rule("DIR-02", "DEC-004", "LEASE-05")
def test_a_direct_request_dies_with_the_process_in_which_its_client_waits(ground: Field) -> None:
    ground.start()
    asker = ground.start("serve", "--no-worker")
    current = ground.app.enqueue_sync("work", diary=ground.diary, seconds=5)
    eventually(lambda: ground.noted("begun"))
    client = threading.Thread(target=_ask, args=(asker.output, ground.diary), daemon=True)
    client.start()
    eventually(
        lambda: rows(ground.store, "SELECT id FROM direct_reservations WHERE status = 'ACTIVE'"), details=asker.output
    )
    queued = ground.app.enqueue_sync("work", diary=ground.diary)
    asker.kill()
    eventually(lambda: ground.job(queued.id).status is JobStatus.COMPLETED)
    assert ground.job(current.id).status is JobStatus.COMPLETED
    ((status, granted_at),) = rows(ground.store, "SELECT status, granted_at FROM direct_reservations")
    assert (status, granted_at) == ("EXPIRED", None)
    assert len(ground.noted("begun")) == 2
    assert value(ground.store, "SELECT count(*) FROM leases") == 0
    client.join(10)


def _ask(output: Callable[[], str], diary: str) -> None:
    address = eventually(lambda: re.search(r"serving on (http://\S+?)[\"\s]", output() + "\n"))[1]
    body = json.dumps({"params": {"diary": diary}}).encode()
    request = urllib.request.Request(
        f"{address}/api/direct/work", body, {"content-type": "application/json"}, method="POST"
    )
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=30).read()


@pytest.mark.rule("LEASE-06", "OPS-06")
@pytest.mark.parametrize("hours", [5, -5])
def test_a_jump_of_the_wall_clock_neither_kills_nor_doubles_live_work(sqlite_ground: Field, hours: int) -> None:
    """Two real processes whose machine's clock is set by hours while one of them works."""
    ground = sqlite_ground
    shift = ground.folder / "shift"
    shift.write_text("0")
    settings: dict[str, Any] = {"lease_s": 20, "heartbeat_s": 1, "grace_s": 5, "recover_s": 0.2, "slots": 1}
    for _ in range(2):
        ground.start(program="tests.crash.shifted", HB_SHIFT=str(shift), **settings)
    handle = ground.app.enqueue_sync("work", diary=ground.diary, seconds=4)
    eventually(lambda: ground.noted("begun"))
    shift.write_text(str(hours * 3600))
    done = eventually(lambda: (result := ground.job(handle.id)).finished_at and result)
    assert done.status is JobStatus.COMPLETED
    assert len(ground.noted("begun")) == 1
    assert "zombie.found" not in event_names(ground.store)


@pytest.mark.rule("REC-01")
def test_a_worker_that_died_is_written_down_as_stopped_on_both_stores(ground: Field) -> None:
    doomed = ground.start(**SHORT_LEASE)
    ground.start(**SHORT_LEASE)
    (worker_id,) = rows(ground.store, "SELECT id FROM workers WHERE pid = :pid", pid=doomed.pid)[0]
    doomed.kill()
    stopped = "SELECT data FROM events WHERE name = 'worker.stopped' AND worker_id = :id"
    (data,) = eventually(lambda: rows(ground.store, stopped, id=worker_id))[0]
    assert "its process died" in str(data) or "its heartbeat stopped" in str(data)
    assert value(ground.store, "SELECT count(*) FROM workers WHERE stopped_at IS NULL") == 1


@pytest.mark.rule("REC-01", "LEASE-04")
def test_a_worker_that_was_only_frozen_is_alive_again_with_its_next_beat(postgres_url: str, tmp_path: Path) -> None:
    with field(postgres_url, tmp_path) as ground:
        frozen = ground.start(**SHORT_LEASE)
        ground.start(**SHORT_LEASE)
        ground.freeze(frozen)
        living = "SELECT count(*) FROM workers WHERE stopped_at IS NULL"
        eventually(lambda: value(ground.store, living) == 1)
        frozen.send(signal.SIGCONT)
        eventually(lambda: value(ground.store, living) == 2)
