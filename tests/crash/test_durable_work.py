"""A durable handler whose worker is killed after each of its lines in turn: it goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdbeat.observe.explain import explain_job
from holdbeat.store.reads.chains import tip_of
from tests.crash.durable_jobs import app as durable_app
from tests.crash.processes import Field, field
from tests.engine.acting import rows, value
from tests.waiting import eventually

PLACES = ("start", "crawled", "embedded", "slept", "approved", "published")
LAST_STEPS = {"crawled": "crawl", "embedded": "embed", "slept": "embed", "approved": "embed", "published": "publish"}
SETTINGS: dict[str, Any] = {"lease_s": 2, "heartbeat_s": 0.4, "grace_s": 0.5, "recover_s": 0.3, "suspend_s": 0.05}


def explained(ground: Field, job_id: str) -> str:
    """What `explain` says of the last job of a chain."""
    explanation = ground.store.read_sync(lambda tx: explain_job(tx, tip_of(tx, job_id)))
    return str(explanation["summary"])


def live(ground: Field) -> None:
    """One life of the example, killed at every place and once while it sleeps or waits."""
    ground.app._types = durable_app._types
    for place in PLACES:
        Path(f"{ground.diary}.{place}").touch()
    handle = ground.app.enqueue_sync("ingest", diary=ground.diary, url="http://example.org")
    for number, place in enumerate(PLACES, 1):
        worker = ground.start(program_app="tests.crash.durable_jobs:app", **SETTINGS)
        if place == "approved":
            eventually(lambda: rows(ground.store, "SELECT id FROM jobs WHERE status = 'QUEUED' AND hold IN (1, 4) "
                                                  "AND waits IS NOT NULL AND not_before IS NOT NULL"))  # fmt: skip
            assert value(ground.store, "SELECT count(*) FROM leases") == 0
            worker.kill()
            assert "waits for the signal 'approved', until" in explained(ground, handle.id)
            ground.app.signal_sync(handle.id, "approved", {"by": "ann"})
            worker = ground.start(program_app="tests.crash.durable_jobs:app", **SETTINGS)
        eventually(lambda: len(ground.noted("hangs")) == number, details=worker.output)  # noqa: B023
        worker.kill()
        done = LAST_STEPS.get(place)
        assert done is None or f"The last step done is {done!r}" in explained(ground, handle.id)
    ground.start(program_app="tests.crash.durable_jobs:app", **SETTINGS)
    job = handle.wait_sync(60)
    assert job.run is not None
    assert (job.status, job.run.result) == ("COMPLETED", [{"vectors": 2}, {"by": "ann"}]), job.run.error
    assert [words[1] for words in ground.noted("hangs")] == list(PLACES)
    for effect in ("crawl", "embed", "publish"):
        assert len(ground.noted(effect)) == 1, effect
    assert value(ground.store, "SELECT count(*) FROM leases") == 0


@pytest.mark.timeout(240)
@pytest.mark.rule("STEP-01", "WAIT-01", "WAIT-02", "WAIT-03", "REC-01")
def test_a_worker_killed_after_each_line_goes_on_where_it_was_on_sqlite(sqlite_ground: Field) -> None:
    live(sqlite_ground)


@pytest.mark.timeout(240)
@pytest.mark.rule("STEP-01", "WAIT-01", "WAIT-02", "WAIT-03", "REC-01")
def test_a_worker_killed_after_each_line_goes_on_where_it_was_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    with field(postgres_url, tmp_path) as ground:
        live(ground)
