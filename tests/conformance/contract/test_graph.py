"""The graph around a job: what it depends on, and what depends on it."""

from __future__ import annotations

import pytest

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads.graph import graph_of
from tests.conformance.acts import fail
from tests.conformance.contract.test_dependencies import claims_by_job, send, send_after


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("noop")])


@pytest.mark.rule("DEP-05")
def test_the_graph_shows_both_directions_and_is_cut_at_its_limit(store: PersistenceAdapter) -> None:
    top, middle, side, bottom = send(
        store,
        {"ref": "top"},
        {"ref": "middle", "after": [{"ref": "top", "as": "x"}]},
        {"ref": "side", "after": [{"ref": "top"}]},
        {"after": [{"ref": "middle"}, {"ref": "side"}]},
    )
    for job in (top, middle, bottom):
        graph = store.read_sync(graph_of, job.id)
        assert {node.id for node in graph.nodes} == {top.id, middle.id, side.id, bottom.id}
        assert {(link.source, link.target) for link in graph.links} == {
            (top.id, middle.id),
            (top.id, side.id),
            (middle.id, bottom.id),
            (side.id, bottom.id),
        }
        assert graph.centre == job.id
        assert not graph.is_cut
    near = store.read_sync(graph_of, top.id, 3)
    assert (len(near.nodes), near.is_cut) == (3, True)


@pytest.mark.rule("DEP-05", "RET-04")
def test_the_graph_of_a_manual_retry_shows_what_it_depends_on(store: PersistenceAdapter) -> None:
    upstream = send(store, {})[0]
    dependent = send_after(store, upstream.id)
    fail(store, claims_by_job(store)[upstream.id])
    retry = store.write_sync(retry_job, dependent.id)
    below = send_after(store, retry.id)
    graph = store.read_sync(graph_of, retry.id)
    assert graph.centre == retry.id
    assert {node.id: node.status for node in graph.nodes} == {
        upstream.id: "FAILED",
        dependent.id: "CANCELLED",
        retry.id: "QUEUED",
        below.id: "QUEUED",
    }
    assert {(link.source, link.target) for link in graph.links} == {
        (upstream.id, dependent.id),
        (upstream.id, retry.id),
        (retry.id, below.id),
    }
