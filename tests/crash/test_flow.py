"""Limits, affinity and preemption as a person sees them: a worker process, and commands in other processes."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdbeat.store.reads.event_log import newest_events
from tests.crash.flow_jobs import app as flow_app
from tests.crash.processes import ROOT, Field
from tests.engine.acting import rows
from tests.fork_server import start_module
from tests.waiting import eventually

SETTINGS: dict[str, Any] = {"slots": 4, "lease_s": 10, "heartbeat_s": 1, "concurrency": "resources:gpu=1"}


def command(ground: Field, *words: str) -> str:
    """What `holdbeat` prints in a process of its own."""
    process = start_module(
        "holdbeat", *words, "--store", ground.url,
        cwd=ROOT, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    output = str(process.communicate(timeout=60)[0])
    assert process.returncode == 0, output
    return output


@pytest.mark.rule("LIM-02", "LIM-11", "LIM-13", "STEP-01")
def test_a_running_worker_obeys_a_new_limit_within_a_second_keeps_its_model_and_is_preempted(ground: Field) -> None:
    ground.app._types = flow_app._types
    worker = ground.start(program_app="tests.crash.flow_jobs:app", **SETTINGS)
    release = f"{ground.diary}.release"

    first, second = (ground.app.enqueue_sync("hold", diary=ground.diary, until=release) for _ in range(2))
    eventually(lambda: len(ground.noted("holds")) == 1, details=worker.output)
    assert ground.job(second.id).status == "QUEUED"
    command(ground, "limits", "set", "gpu", "--slots", "2")
    eventually(lambda: ground.job(second.id).status == "RUNNING", details=worker.output)
    changed_at = max(
        event.at for event in ground.store.read_sync(newest_events, None, 1000) if event.name == "limit.changed"
    )
    assert 0 <= (ground.job(second.id).started_at - changed_at).total_seconds() < 1
    command(ground, "limits", "reset", "gpu")

    models = [ground.app.enqueue_sync("write", diary=ground.diary, model=model) for model in "abcabcabc"]
    Path(release).touch()
    for handle in (first, second, *models):
        assert handle.wait_sync(60).status == "COMPLETED"
    loaded = [words[1] for words in ground.noted("writes")]
    assert sorted(loaded) == sorted("abcabcabc")
    assert sum(before != after for before, after in pairwise(loaded)) == 2, "8 without affinity"
    assert rows(ground.store, "SELECT kept, switches FROM affinity_counts WHERE resource = 'gpu'") == [(6, 2)]

    batch = ground.app.enqueue_sync("batch", diary=ground.diary)
    eventually(lambda: ground.noted("batch"), details=worker.output)
    assert "the answer" in command(ground, "direct", "answer", "--preempt")
    ended = batch.wait_sync(60)
    assert ended.status == "COMPLETED" and ended.run is not None
    assert (ended.run.result, ended.attempt) == ("loaded and done", 1), "no attempt was counted"
    assert (len(ground.noted("loads")), len(ground.noted("batch"))) == (1, 2), "the step was kept"
