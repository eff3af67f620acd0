"""ZombieRecovery finds what the dead have left, acts once, and leaves the living and the waiting alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import JobStatus
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import claim_one, enqueue_one, open_at
from tests.conformance.repair import TERMS, introduce, picture
from tests.engine.acting import event_names, job, rows, value

pytestmark = pytest.mark.asyncio

LONG_SILENCE_S = 361.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[PersistenceAdapter]:
    app = App(store_url)
    app.close()
    opened = open_at(store_url, clock=clock)
    yield opened
    opened.close()


def claimed(store: PersistenceAdapter, count: int) -> list[str]:
    """Jobs that a worker claimed before it fell silent."""
    introduce(store, "silent")
    ids = [enqueue_one(store).id for _ in range(count)]
    for slot in range(count):
        claim_one(store, worker="silent", first_slot=slot, terms=TERMS)
    return ids


async def fully(recovery: ZombieRecovery, clock: ManualClock) -> int:
    """Looks twice, a heartbeat apart: a lease must be seen late for that long."""
    first = await recovery.recover()
    clock.advance(TERMS.heartbeat_s)
    return first + await recovery.recover()


@pytest.mark.rule("REC-01", "REC-03", "REC-04")
async def test_a_run_without_heartbeats_ends_lost_with_its_retry_and_the_queue_keeps_its_order(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    ids = claimed(store, 3)
    queued = [enqueue_one(store).id for _ in range(3)]
    order = "SELECT id, status, position, not_before FROM jobs WHERE id IN :ids ORDER BY position"
    before = rows(store, order, ids=queued)
    recovery = ZombieRecovery(store, TERMS, 5)
    clock.advance(LONG_SILENCE_S - 2)
    assert await recovery.recover() == 0
    clock.advance(2)
    assert await fully(recovery, clock) == 3
    for job_id in ids:
        ended = job(store, job_id)
        assert (ended.status, ended.run and ended.run.error_kind) == (JobStatus.FAILED, "lost")
        assert ended.retried_by is not None
    assert rows(store, order, ids=queued) == before
    after = picture(store)
    assert await fully(recovery, clock) == 0
    assert await fully(ZombieRecovery(store, TERMS, 5), clock) == 0
    assert picture(store) == after


@pytest.mark.rule("REC-01")
async def test_several_recoverers_at_once_act_once(
    store: PersistenceAdapter, store_url: str, clock: ManualClock
) -> None:
    ids = claimed(store, 6)
    clock.advance(LONG_SILENCE_S)
    others = [open_at(store_url, clock=clock) for _ in range(3)]
    recoveries = [ZombieRecovery(other, TERMS, 5) for other in others]
    assert [await recovery.recover() for recovery in recoveries] == [0, 0, 0]
    clock.advance(TERMS.heartbeat_s)
    repaired = await asyncio.gather(*(recovery.recover() for recovery in recoveries))
    assert sum(repaired) == len(ids)
    assert value(store, "SELECT count(*) FROM jobs WHERE retry_kind = 'auto'") == len(ids)
    assert event_names(store).count("zombie.found") == len(ids)
    for other in others:
        other.close()


@pytest.mark.rule("REC-05")
async def test_one_job_whose_recovery_fails_is_left_for_the_next_round_and_the_others_proceed(
    store: PersistenceAdapter, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ids = claimed(store, 3)
    clock.advance(LONG_SILENCE_S)

    def spoil(tx: Any, policy: str) -> None:
        tx.execute("UPDATE jobs SET retry_policy = :policy WHERE id = :id", id=ids[1], policy=policy)

    whole = value(store, "SELECT retry_policy FROM jobs WHERE id = :id", id=ids[1])
    store.write_sync(spoil, '{"max_attempts": "many"}')
    recovery = ZombieRecovery(store, TERMS, 5)
    assert await fully(recovery, clock) == 2
    assert "left for the next round" in caplog.text
    assert [str(row[0]) for row in rows(store, "SELECT status FROM jobs WHERE id IN :ids ORDER BY id", ids=ids)] == [
        "FAILED", "RUNNING", "FAILED",
    ]  # fmt: skip
    store.write_sync(spoil, whole if isinstance(whole, str) else "{}")
    assert await recovery.recover() == 1
    assert job(store, ids[1]).status is JobStatus.FAILED


@pytest.mark.rule("QUE-07")
async def test_retention_takes_away_what_is_old_with_its_files_and_nothing_else(store_url: str, tmp_path: Path) -> None:
    from holdbeat import Context
    from holdbeat.engine.retention import Retention
    from holdbeat.testing import stage

    app = App()
    clock = ManualClock()

    @app.job(retries=0)
    async def keep(ctx: Context, name: str) -> None:
        ctx.log("some words")
        ctx.artifact("file.txt", name.encode())

    folder = tmp_path / "artifacts"
    async with stage(app, tmp_path, clock, store=store_url, artifact_dir=str(folder)) as on_stage:
        await app.enqueue("keep", name="old")
        await on_stage.drain()
        (old_file,) = folder.glob("*/*")
        clock.advance(20 * 86_400)
        young = await app.enqueue("keep", name="young")
        await on_stage.drain()
        waiting = await app.with_options(delay=90 * 86_400).enqueue("keep", name="waiting")
        clock.advance(11 * 86_400)
        assert await Retention(app.store, 0).step() == 0
        assert await Retention(app.store, 30).step() > 0
        assert {row[0] for row in rows(app.store, "SELECT id FROM jobs")} == {young.id, waiting.id}
        assert not old_file.exists()
        assert not old_file.parent.exists()
        assert len(list(folder.glob("*/*"))) == 1
        assert value(app.store, "SELECT count(*) FROM run_logs") == 1
        assert await Retention(app.store, 30).step() == 0


@pytest.mark.rule("QUE-07", "OPS-06")
async def test_files_whose_deletion_a_crash_prevented_are_deleted_by_the_next_who_looks(
    store_url: str, tmp_path: Path
) -> None:
    from holdbeat import Context
    from holdbeat.engine.retention import Retention
    from holdbeat.store.recovery.prune import noted_files, prune
    from holdbeat.testing import stage

    app = App()
    clock = ManualClock()

    @app.job(retries=0)
    async def keep(ctx: Context) -> None:
        ctx.artifact("file.txt", b"words")

    folder = tmp_path / "artifacts"
    async with stage(app, tmp_path, clock, store=store_url, artifact_dir=str(folder)) as on_stage:
        await app.enqueue("keep")
        await on_stage.drain()
        (file,) = folder.glob("*/*")
        (file.parent / ".file.txt.77.part").write_bytes(b"half a w")
        clock.advance(31 * 86_400)
        # Here a process dies: what it took away is on disk, and nobody has deleted the file.
        assert app.store.write_sync(prune, clock.now() - timedelta(days=30)).paths == [str(file)]
        assert file.exists()
        await Retention(app.store, 30).step()
        assert list(folder.iterdir()) == []
        assert app.store.read_sync(noted_files) == []
