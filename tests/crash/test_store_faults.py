"""The store fails under a running process: it heals by itself where it can, and is loud where it cannot (OPS-03)."""

from __future__ import annotations

import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.job import JobStatus
from tests.crash.processes import Field, field
from tests.engine.acting import rows, value
from tests.postgres import PostgresServer
from tests.waiting import eventually


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_file_that_is_deleted_or_replaced_stops_the_server_loudly_and_is_not_made_anew(
    sqlite_ground: Field, tmp_path: Path, fate: str
) -> None:
    ground = sqlite_ground
    process = ground.start("serve")
    ground.app.close()
    path = tmp_path / "crash.db"
    for suffix in ("", "-wal", "-shm"):
        if (file := Path(f"{path}{suffix}")).exists():
            file.unlink()
    if fate == "replaced":
        path.write_bytes(b"")
    assert process.exit_code() == 3
    # The process may look between two of the deletions, and then names the log instead of the store.
    assert "was deleted" in process.output() or "was replaced" in process.output()
    if fate == "deleted":
        assert not path.exists()
    else:
        assert path.read_bytes() == b""
    # And it does not start again on what is left.
    if fate == "replaced":
        again = ground.start("serve", ready=False)
        assert again.exit_code() != 0
        assert path.read_bytes() == b""


@pytest.mark.rule("OPS-03", "DEC-008")
def test_a_full_disk_heals_by_itself(sqlite_ground: Field, tmp_path: Path) -> None:
    """The files of the process may not grow any more (RLIMIT_FSIZE, as a full disk would have it), and then may."""
    ground = sqlite_ground
    process = ground.start()
    handle = ground.app.enqueue_sync("work", diary=ground.diary, seconds=1.0)
    eventually(lambda: ground.noted("begun"))
    # The worker's own handle on the disk is taken away: nothing it writes may reach beyond what there is.
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
    eventually(lambda: "full" in process.output() or "failed" in process.output(), details=process.output)
    assert ground.job(handle.id).status is JobStatus.RUNNING
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    done = eventually(lambda: (result := ground.job(handle.id)).status is not JobStatus.RUNNING and result)
    assert (done.status, done.run.result) == (JobStatus.COMPLETED, "done")
    assert len(ground.noted("begun")) == 1
    again = ground.app.enqueue_sync("work", diary=ground.diary)
    eventually(lambda: ground.job(again.id).status is JobStatus.COMPLETED)
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0


@pytest.mark.rule("OPS-03")
def test_a_store_that_is_not_ours_or_not_whole_is_refused_at_the_start(sqlite_ground: Field, tmp_path: Path) -> None:
    ground = sqlite_ground
    ground.app.enqueue_sync("work", diary=ground.diary)
    ground.app.close()
    path = tmp_path / "crash.db"
    whole = path.read_bytes()
    assert len(whole) > 20_000
    path.write_bytes(b"\0" * 4096 + whole[4096:])
    process = ground.start("serve", ready=False)
    assert process.exit_code() != 0
    assert str(path) in process.output()
    assert path.read_bytes()[:4096] == b"\0" * 4096
    path.write_bytes(whole)
    ground.start("serve")


@pytest.mark.rule("OPS-03")
def test_a_database_that_becomes_a_standby_stops_the_server_loudly(tmp_path: Path) -> None:
    with PostgresServer() as server, field(server.url(), tmp_path) as ground:
        process = ground.start("serve", heartbeat_s=0.5, lease_s=60)
        eventually(lambda: "serving on" in process.output(), details=process.output)
        ground.app.close()
        server.become_standby()
        assert process.exit_code() == 3
        assert "The database only reads" in process.output()
        assert "Traceback" not in process.output()


@pytest.mark.rule("DEC-008", "OPS-06", "DEC-001")
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_when_postgres_crashes_under_load(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, campaign: str
) -> None:
    crashes = 12 if campaign == "long" else 2
    with field(postgres_url, tmp_path) as ground:
        lease: dict[str, Any] = {"lease_s": 20, "heartbeat_s": 1, "grace_s": 2, "recover_s": 0.5}
        workers = [ground.start(slots=4, **lease) for _ in range(2)]
        acknowledged: list[str] = []
        stopped = threading.Event()

        def submit() -> None:
            number = 0
            while not stopped.is_set():
                number += 1
                # Refused or not answered: tried again under the same key.
                while not stopped.is_set():
                    try:
                        keyed = ground.app.with_options(key=f"k{number}")
                        acknowledged.append(keyed.enqueue_sync("quick", diary=ground.diary, number=number).id)
                        break
                    except Exception:
                        time.sleep(0.05)
                time.sleep(0.01)

        client = threading.Thread(target=submit)
        client.start()
        for _ in range(crashes):
            count = len(acknowledged)
            eventually(lambda count=count: len(acknowledged) >= count + 15)  # type: ignore[misc]
            postgres_server.restart("immediate")
        stopped.set()
        client.join()
        eventually(lambda: _unfinished(ground) == 0)
        known = {row[0]: row[1] for row in rows(ground.store, "SELECT id, status FROM jobs")}
        assert [job_id for job_id in acknowledged if job_id not in known] == []
        assert len(set(acknowledged)) == len(acknowledged)
        assert value(ground.store, "SELECT count(*) FROM leases") == 0
        # Each execution has its run, and no job was executed twice.
        runs = {row[0] for row in rows(ground.store, "SELECT id FROM job_runs")}
        done = ground.noted("did")
        assert {line[2] for line in done} <= runs
        assert len({line[1] for line in done}) == len(done)
        for worker in workers:
            worker.send(signal.SIGTERM)
        assert [worker.exit_code() for worker in workers] == [0, 0]


def _unfinished(ground: Field) -> int:
    try:
        return int(value(ground.store, "SELECT count(*) FROM jobs WHERE finished_at IS NULL"))
    except Exception:
        return -1


@pytest.mark.rule("DEC-002", "OPS-03")
def test_a_folder_that_cannot_be_written_is_refused_with_its_name(sqlite_ground: Field, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "x.db"
    sqlite_ground.url = f"sqlite:///{missing}"
    process = sqlite_ground.start("serve", ready=False)
    assert process.exit_code() != 0
    assert "nowhere" in process.output()
    assert not missing.parent.exists()


@pytest.mark.rule("CON-003", "OPS-03")
@pytest.mark.parametrize("verb", ["serve", "worker"])
def test_a_shutdown_ends_within_its_grace_though_the_database_is_away(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path, verb: str
) -> None:
    with field(postgres_url, tmp_path) as ground:
        process = ground.start(verb, shutdown_grace_s=20)
        ground.app.enqueue_sync("quick", diary=ground.diary, number=1).wait_sync(30)
        postgres_server.stop("immediate")
        eventually(lambda: "wake-ups are off" in process.output(), details=process.output)
        process.send(signal.SIGTERM)
        assert process.exit_code(20) == 0
        postgres_server.start()
