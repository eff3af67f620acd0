"""Killed at any step of the storage, a life leaves nothing lost, nothing doubled in silence, nothing left over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdbeat.store.transaction import Transaction
from tests.crash.history import judge
from tests.crash.life import BIRTH, Diary, live, on_stage
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
SHORT = {"sqlite": 16, "postgres": 8}
LONG = {"sqlite": 1600, "postgres": 400}


def run_campaign(engine: str, points: int, jobs: int, server: PostgresServer | None) -> dict[str, Any]:
    environment = dict(os.environ)
    if server is not None:
        environment["HOLDBEAT_TEST_PG"] = server.url()
    command = [sys.executable, "-m", "tests.crash.campaign", "--engine", engine, "--points", str(points)]
    ended = subprocess.run(
        [*command, "--jobs", str(jobs), "--json"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ended.stdout, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


@pytest.mark.rule(
    "DEC-008", "REC-01", "REC-02", "REC-03", "RET-03", "LEASE-01", "INV-002", "INV-006", "DEC-009", "TIME-02", "OPS-06",
    "QUE-01", "DEC-001", "DIR-02", "GRP-01", "CAN-04", "QUE-07", "STEP-01", "WAIT-01", "WAIT-06", "DEP-01", "DEP-02",
)  # fmt: skip
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.timeout(3600)
def test_a_process_killed_at_any_step_loses_nothing_and_doubles_nothing(
    engine: str, campaign: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    server = request.getfixturevalue("postgres_server") if engine == "postgres" else None
    if server is not None:
        server.start()
    is_long = campaign == "long"
    result = run_campaign(engine, (LONG if is_long else SHORT)[engine], 2 if is_long else 1, server)
    with capsys.disabled():
        if is_long:
            print(
                f"\n{engine}: {result['points']} points in {result['seconds']:.0f} s, {result['killed']} killed, "
                f"{result['killed_twice']} killed again in recovery: lost {result['lost']}, silent doubles "
                f"{result['doubles']}, broken {result['broken']}"
            )
    assert result["killed"] == result["points"] > 0
    assert result["examples"] == []
    assert (result["lost"], result["doubles"], result["broken"]) == (0, 0, 0)


EXECUTED = {
    "first", "second", "steps-2", "crowd-0", "report", "durable", "durable-child", "metered-1", "metered-2",
    "ordered-0", "ordered-1", "ordered-2", "unique-1", "made", "behind-a-borrower", "interrupted", "urgent",
    "cancelled-while-running", "direct", "permanent", "tick", "tock", "last",
}  # fmt: skip
NOT_EXECUTED = {"unwanted", "unique-2", "expiring", "cancelled-in-queue"}


@pytest.mark.rule("DEC-008")
@pytest.mark.asyncio
async def test_a_life_that_nobody_cuts_short_executes_what_it_submits(store_url: str, tmp_path: Path) -> None:
    """A campaign is worth as much as the life that it kills: each act has its handlers called."""
    await live(store_url, tmp_path)
    names = {entry["name"] for entry in Diary.read(tmp_path / "diary") if entry["kind"] == "begun"}
    assert names >= EXECUTED
    assert not names & NOT_EXECUTED


@pytest.mark.rule("DEC-008")
@pytest.mark.asyncio
async def test_the_judge_notices_a_lost_job_a_silent_double_and_a_missing_retry(tmp_path: Path) -> None:
    """A campaign is worth as much as its judge: each kind of violation, made by hand, is found."""
    diary = tmp_path / "diary"
    async with on_stage(f"sqlite:///{tmp_path / 'life.db'}", tmp_path, BIRTH) as life:
        await life.submit("work", "first")
        await life.submit("stumble", "second")
        await life.stage.drain()
        await life.stage.advance(10)
        me = life.stage.supervisor.worker.id
        assert judge(life.store, diary, me) == []

        def spoil(tx: Transaction) -> None:
            tx.execute("DELETE FROM jobs WHERE idempotency_key = 'first'")
            tx.execute("UPDATE jobs SET retried_by = NULL WHERE status = 'FAILED'")

        await life.store.write(spoil)
        life.diary.write("begun", run="unknown", fence=99, job="unknown", name="x")
        for kind in ("called", "kept", "called"):
            life.diary.write(kind, chain="unknown", step="crawl")
        sentences = judge(life.store, diary, me)
    assert {sentence.partition(":")[0] for sentence in sentences} == {"lost", "double", "broken"}
    assert [sentence for sentence in sentences if "was called after it was kept" in sentence]
