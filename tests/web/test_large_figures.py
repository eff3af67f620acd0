"""What pages count is all that there is, not only what they draw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.durable.questions import Asked, ask_question
from holdbeat.store.running.workers import register_worker, stop_worker
from tests.api.serving import Served
from tests.conformance.acts import claim_some, enqueue_all
from tests.web.conftest import serve_at

MANY = 1050
"""More than any page reads of the leases one by one."""


@pytest.fixture(params=["sqlite", "postgres"])
def idle(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Served]:
    """A server that knows no job type `crowd`: jobs of it run only if a test claims them."""
    url = postgres_url if request.param == "postgres" else f"sqlite:///{tmp_path / 'holdbeat.db'}"
    served = serve_at(url, concurrency="unlimited")
    yield served
    served.stop()


def words_of(served: Served, path: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", served.client.get(path).text))


@pytest.mark.rule("FND-01")
def test_more_running_jobs_than_a_page_reads_are_all_counted(idle: Served) -> None:
    enqueue_all(idle.store, [NewJob("crowd", resource="gpu")] * MANY)
    assert len(claim_some(idle.store, MANY, worker=idle.supervisor.worker.id, types=["crowd"])) == MANY
    overview, queue, workers = (words_of(idle, path) for path in ("/", "/ui/queue", "/ui/workers"))
    assert f"{MANY} of 64 + 256 http busy" in overview and f"and {MANY - 8:,} more" in overview
    assert f"Running now {MANY:,}" in queue
    assert f"{MANY:,} of 64 + 256 http slots in use" in workers and f"and {MANY - 6:,} more" in workers


@pytest.mark.rule("FND-01")
def test_a_worker_is_shown_however_many_came_and_went_after_it(idle: Served) -> None:
    for number in range(120):
        worker = Worker(f"gone-{number}", WorkerKind.WORKER, "host", 1, types=("noop",))
        idle.store.write_sync(register_worker, worker, LeaseTerms())
        idle.store.write_sync(stop_worker, worker.id)
    page = idle.client.get("/ui/workers").text
    assert f'id="worker-{idle.supervisor.worker.id}"' in page
    assert page.count('id="gone-') == 20 and "the newest 20" in page


@pytest.mark.rule("FND-01")
def test_a_page_that_shows_some_children_or_questions_says_so(idle: Served) -> None:
    (parent,) = enqueue_all(idle.store, [NewJob("crowd")])
    enqueue_all(idle.store, [NewJob("crowd", parent_id=parent.id)] * 50)
    assert "submitted by its handler</small>" in idle.client.get(f"/ui/jobs/{parent.id}").text
    enqueue_all(idle.store, [NewJob("crowd", parent_id=parent.id)])
    assert "submitted by its handler, the newest 50" in idle.client.get(f"/ui/jobs/{parent.id}").text
    (claim,) = claim_some(idle.store, 1, worker=idle.supervisor.worker.id, types=["crowd"])
    lease = claim.lease
    for number in range(12):
        asked = Asked(lease.id, lease.worker_id, lease.fence, parent.id, parent.id, f"q{number}", "Which?")
        idle.store.write_sync(ask_question, asked)
    assert "the oldest 10 of 12" in words_of(idle, "/")
