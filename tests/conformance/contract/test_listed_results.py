"""Lists leave large results out, and do not parse what they leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.run import JobRun
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.list_jobs import list_jobs, list_runs
from tests.conformance.repair import run_by_hand, running_without_lease, write_rows

pytestmark = pytest.mark.rule("SEC-09")

LARGE = "x" * 5000


def ended_with(store: PersistenceAdapter, clock: ManualClock, artifacts: str) -> str:
    job_id = running_without_lease(store)
    return run_by_hand(store, job_id, clock, status="COMPLETED", finished_at=clock.now(), artifacts=artifacts)


def listed(store: PersistenceAdapter) -> list[JobRun]:
    """The one run, as it is in each list."""
    (job,) = store.read_sync(list_jobs).items
    (entry,) = store.read_sync(list_runs).items
    assert job.run is not None
    return [job.run, entry.run]


@pytest.mark.parametrize("result", [LARGE, {"text": LARGE}, "é" * 3000])
def test_a_large_result_is_left_out_and_its_size_is_told(
    store: PersistenceAdapter, clock: ManualClock, result: Any
) -> None:
    text = json.dumps(result, ensure_ascii=False)
    ended_with(store, clock, f'{{"result":{text}}}')
    for run in listed(store):
        assert (run.artifacts, run.omitted_result_bytes) == ({}, len(text.encode()))


@pytest.mark.parametrize("name", ["a.txt", "z.txt"])
def test_the_artifacts_beside_a_large_result_stay_in_the_list(
    store: PersistenceAdapter, clock: ManualClock, name: str
) -> None:
    kept = {name: {"sha256": "00", "size": 3}}
    run_id = ended_with(store, clock, json.dumps({**kept, "result": LARGE}, sort_keys=True, separators=(",", ":")))
    write_rows(store, "artifacts", run_id=run_id, name=name, size=3, sha256="00", data=b"abc", created_at=clock.now())
    for run in listed(store):
        assert (run.artifacts, run.omitted_result_bytes) == (kept, len(LARGE) + 2)


def test_a_large_result_without_artifacts_is_not_parsed(store: PersistenceAdapter, clock: ManualClock) -> None:
    """PostgreSQL keeps this text as JSON and cannot parse it: it has no character 0."""
    ended_with(store, clock, f'{{"result":"\\u0000{LARGE}"}}')
    for run in listed(store):
        assert (run.artifacts, run.omitted_result_bytes) == ({}, len(LARGE) + 8)
