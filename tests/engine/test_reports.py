"""What handlers say is kept, survives an outage, and counts only while the lease is held."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid, Unavailable
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import Lease, LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.engine.artifact_sweep import ArtifactSweep
from holdbeat.engine.retention import Retention
from holdbeat.engine.run_reports import RunReports
from holdbeat.store.recovery.recover_leases import recover_lease
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.run_output import ARTIFACT_DATA_MAX, list_artifacts
from holdbeat.testing import stage
from tests.engine.acting import Outage, fail_writes, job, rows, stop_failing_writes, until, value

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("LEASE-03", "EXE-03")
async def test_a_handler_without_its_lease_can_report_nothing(store_url: str, tmp_path: Path) -> None:
    app = App()
    gate = asyncio.Event()
    refusals: list[str] = []

    @app.job(retries=0)
    async def speak(ctx: Context) -> None:
        await gate.wait()
        ctx.progress(0.9, "late")
        ctx.log("late words")
        try:
            await asyncio.to_thread(ctx.artifact, "late.txt", b"late")
        except Invalid as error:
            refusals.append(error.code)

    async with stage(app, tmp_path, ManualClock(), store=store_url, artifact_dir=str(tmp_path / "kept")) as on_stage:
        await app.enqueue("speak")
        await on_stage.supervisor.dispatcher.step()
        app.store.write_sync(lambda tx: tx.execute("DELETE FROM leases"))
        gate.set()
        await until(lambda: not on_stage.supervisor.dispatcher.running)
        await on_stage.supervisor.dispatcher.settle_all()
        assert refusals == ["lease_lost"]
        for table in ("progress", "run_logs", "artifacts"):
            assert value(app.store, f"SELECT count(*) FROM {table}") == 0
        assert [path for path in (tmp_path / "kept").rglob("*") if path.is_file()] == []


@pytest.mark.rule("EXE-03")
async def test_words_that_could_not_be_written_are_kept_in_order_until_they_can(
    store_url: str, request: pytest.FixtureRequest, monkeypatch: Any
) -> None:
    app = App(store_url)
    begun, gate = asyncio.Event(), asyncio.Event()

    @app.job(retries=0)
    async def speak(ctx: Context) -> None:
        ctx.log("before")
        begun.set()
        await gate.wait()
        ctx.log("after")

    async with app.running():
        outage = Outage(app.store, request, monkeypatch)
        handle = await app.enqueue("speak")
        await asyncio.wait_for(begun.wait(), 20)
        supervisor = app._supervisor
        assert supervisor is not None
        with outage.during():
            gate.set()
            await until(lambda: supervisor.dispatcher.backoff.is_paused or not supervisor.reports.is_empty)
        done = await handle.wait(30)
        assert done.status is JobStatus.COMPLETED
        await supervisor.reports.flush()
    lines = [row[0] for row in rows(app.store, "SELECT text FROM run_logs ORDER BY sequence")]
    # What was said before the end is there; words whose run was settled first are dropped, never put elsewhere.
    assert lines in (["before\n", "after\n"], ["before\n"])
    assert job(app.store, handle.id).status is JobStatus.COMPLETED
    app.close()


def _held_run(app: App) -> Lease:
    return _held_runs(app, 1)[0]


def _held_runs(app: App, count: int) -> list[Lease]:
    @app.job
    def paint(ctx: Context) -> None: ...

    app.enqueue_many_sync([app.call("paint") for _ in range(count)])
    claimed = app.store.write_sync(claim, Vacancy("w1", list(range(count)), types=["paint"]))
    return [one.lease for one in claimed]


def _on_record(app: App, lease: Lease) -> list[bytes]:
    return [Path(str(kept.path)).read_bytes() for kept in app.store.read_sync(list_artifacts, lease.id)]


@pytest.mark.rule("LEASE-03", "EXE-03")
async def test_a_late_workers_artifact_leaves_the_one_on_record_as_it_is(store_url: str, tmp_path: Path) -> None:
    app = App(store_url)
    lease = _held_run(app)
    reports = RunReports(app.store, tmp_path / "kept").of(lease)
    reports.artifact("model", b"one")
    reports.artifact("model", b"two")
    reports.artifact("model", b"two")
    assert _on_record(app, lease) == [b"two"]
    assert len(list((tmp_path / "kept").glob("*/*"))) == 1, "what was replaced is gone"
    assert app.store.write_sync(recover_lease, lease.id, ErrorKind.CRASH, lease.heartbeat_at, LeaseTerms())
    for late in (b"two", b"three"):
        with pytest.raises(Invalid) as refused:
            reports.artifact("model", late)
        assert refused.value.code == "lease_lost"
        assert _on_record(app, lease) == [b"two"]
    assert len(list((tmp_path / "kept").glob("*/*"))) == 1, "what was refused is gone"
    app.close()


@pytest.mark.rule("LEASE-03", "EXE-03")
async def test_an_artifact_that_could_not_be_stored_leaves_the_one_on_record_as_it_is(
    store_url: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: Any
) -> None:
    app = App(store_url)
    lease = _held_run(app)
    reports = RunReports(app.store, tmp_path / "kept").of(lease)
    reports.artifact("model", b"one")
    app.store.reconnect_s = 0.0
    with Outage(app.store, request, monkeypatch).during():
        for failed in (b"one", b"two"):
            with pytest.raises(Unavailable):
                await asyncio.to_thread(reports.artifact, "model", failed)
    assert _on_record(app, lease) == [b"one"]
    reports.artifact("model", b"three")
    assert _on_record(app, lease) == [b"three"]
    app.close()


@pytest.mark.rule("EXE-03")
async def test_an_artifact_too_large_for_the_store_is_refused_with_the_setting_that_helps(store_url: str) -> None:
    app = App(store_url)
    lease = _held_run(app)
    with pytest.raises(Invalid, match="Set artifact_dir to a folder") as refused:
        RunReports(app.store, None).of(lease).artifact("film", bytes(ARTIFACT_DATA_MAX + 1))
    assert (refused.value.code, refused.value.field) == ("artifact_too_large", "film")
    assert app.store.read_sync(list_artifacts, lease.id) == []
    app.close()


@pytest.mark.rule("EXE-03")
async def test_words_are_kept_however_the_engine_fails_to_write_them(store_url: str) -> None:
    app = App(store_url)
    lease = _held_run(app)
    reports = RunReports(app.store, None)
    reports.of(lease).log("stdout", "before")
    fail_writes(app.store, "run_logs", at="INSERT")
    for _ in range(2):
        with pytest.raises(Exception, match="the engine fails"):
            await reports.flush()
    stop_failing_writes(app.store, "run_logs")
    reports.of(lease).progress(0.5, "half")
    await reports.flush()
    assert rows(app.store, "SELECT text FROM run_logs") == [("before",)]
    assert reports.is_empty
    app.close()


@pytest.mark.rule("EXE-03")
async def test_files_of_artifacts_are_their_owners_whatever_the_umask(store_url: str, tmp_path: Path) -> None:
    app = App(store_url)
    lease = _held_run(app)
    folder = tmp_path / "store.db-artifacts"
    before = os.umask(0)
    try:
        RunReports(app.store, folder).of(lease).artifact("model", b"one")
        modes = {path.stat().st_mode & 0o777 for path in (folder, folder / lease.id)}
        assert modes == {0o700}
        assert [file.stat().st_mode & 0o777 for file in (folder / lease.id).iterdir()] == [0o600]
        folder.chmod(0o777)  # as an older version left it
        RunReports(app.store, folder).of(lease).artifact("model", b"two")
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    app.close()


@pytest.mark.rule("QUE-07")
async def test_folders_of_runs_that_the_store_does_not_know_are_removed_after_a_day(
    store_url: str, tmp_path: Path
) -> None:
    app = App(store_url)
    lease = _held_run(app)
    folder = tmp_path / "store.db-artifacts"
    RunReports(app.store, folder).of(lease).artifact("model", b"one")
    names = {name: folder / name for name in (lease.id, app.store.terms.ids.new(app.store.clock.now()), "a-stranger")}
    young = folder / app.store.terms.ids.new(app.store.clock.now())
    for one in (*names.values(), young):
        one.mkdir(exist_ok=True)
        (one / "file").write_text("content")
    for one in names.values():
        os.utime(one, (0, 0))
    retention = Retention(app.store, 30, ArtifactSweep(app.store, folder, is_own=True))
    await retention.step()
    assert {path.name for path in folder.iterdir()} == {lease.id, "a-stranger", young.name}
    app.close()


@pytest.mark.rule("QUE-07")
@pytest.mark.parametrize("is_own", [True, False], ids=["beside the store", "shared"])
async def test_files_that_a_dead_worker_did_not_record_are_removed_a_day_later(
    store_url: str, tmp_path: Path, is_own: bool
) -> None:
    """Of ended runs alone: a run that goes on may record its file at any moment."""
    clock = ManualClock()
    app = App(store_url, concurrency="unlimited")
    app._clock = clock
    folder = tmp_path / "shared"
    sweep = ArtifactSweep(app.store, folder, is_own=is_own)
    running, with_artifact, without = _held_runs(app, 3)
    reports = RunReports(app.store, folder)
    for lease in (running, with_artifact):
        reports.of(lease).artifact("model", b"kept")
    unrecorded = [".model.7.part", "model.0123456789ab"]
    for lease in (running, with_artifact, without):
        (folder / lease.id).mkdir(exist_ok=True)
        for name in unrecorded:
            (folder / lease.id / name).write_bytes(b"lost")
    elsewhere = folder / app.store.terms.ids.new(clock.now())
    elsewhere.mkdir()
    (elsewhere / "model.0123456789ab").write_bytes(b"of another store, perhaps")
    for lease in (with_artifact, without):
        app.store.write_sync(recover_lease, lease.id, ErrorKind.CRASH, lease.heartbeat_at, LeaseTerms())

    def left() -> dict[str, set[str]]:
        return {one.name: {file.name.partition(".")[2] for file in one.iterdir()} for one in folder.iterdir()}

    before = left()
    written_at = clock.now().timestamp() - 23.5 * 3600
    for one in folder.iterdir():
        os.utime(one, (written_at, written_at))
    await sweep.step()
    assert left() == before
    clock.advance(0.9 * 3600)
    await sweep.step()
    assert left() == before, "once an hour"
    clock.advance(0.2 * 3600)
    await sweep.step()
    assert left().keys() == {running.id, with_artifact.id} | (set() if is_own else {elsewhere.name})
    assert left()[running.id] == before[running.id]
    assert len(left()[with_artifact.id]) == 1
    assert _on_record(app, with_artifact) == [b"kept"]
    # The folder is not looked at again, unless something is written to it; that of the run that went on is.
    app.store.write_sync(recover_lease, running.id, ErrorKind.CRASH, running.heartbeat_at, LeaseTerms())
    clock.advance(3601)
    await sweep.step()
    assert len(left()[running.id]) == 1
    app.close()
