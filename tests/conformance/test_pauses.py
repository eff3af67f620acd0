"""QUE-04: pausing everything, or one resource."""

from __future__ import annotations

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.verbs.pauses import list_pauses, pause, resume
from tests.conformance.acts import (
    OpenStore,
    claim_all,
    claim_one,
    complete,
    enqueue_one,
    events_of,
    ids_of,
)


@pytest.mark.rule("QUE-04")
def test_a_paused_resource_starts_nothing_and_the_others_go_on(store: PersistenceAdapter) -> None:
    gpu, plain = enqueue_one(store, resource="gpu"), enqueue_one(store)
    store.write_sync(pause, "gpu", by="ada", reason="hot")
    assert ids_of(claim_all(store)) == [plain.id]
    assert [(p.resource, p.paused_by, p.reason) for p in store.read_sync(list_pauses)] == [("gpu", "ada", "hot")]
    assert store.write_sync(resume, "gpu") is True
    assert ids_of(claim_all(store, worker="v")) == [gpu.id]


@pytest.mark.rule("QUE-04")
def test_a_pause_of_everything_lets_what_runs_go_on(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    waiting = enqueue_one(store, resource="gpu")
    store.write_sync(pause)
    assert claim_all(store, worker="v") == []
    assert complete(store, taken) == "accepted"
    store.write_sync(resume)
    assert ids_of(claim_all(store)) == [waiting.id]


@pytest.mark.rule("QUE-04", "DEC-008")
def test_a_pause_outlives_the_process_that_set_it(open_store: OpenStore) -> None:
    first = open_store()
    enqueue_one(first)
    first.write_sync(pause)
    first.close()
    second = open_store()
    assert [p.resource for p in second.read_sync(list_pauses)] == [None]
    assert claim_all(second) == []


@pytest.mark.rule("QUE-04")
def test_pausing_or_resuming_twice_changes_nothing_and_leaves_one_event(store: PersistenceAdapter) -> None:
    first = store.write_sync(pause, "gpu", reason="one")
    assert store.write_sync(pause, "gpu", reason="two") == first
    assert len(events_of(store, "queue.paused")) == 1
    assert store.write_sync(resume, "gpu") is True
    assert store.write_sync(resume, "gpu") is False
    assert len(events_of(store, "queue.resumed")) == 1


@pytest.mark.rule("QUE-04")
def test_resuming_everything_leaves_the_pause_of_one_resource(store: PersistenceAdapter) -> None:
    enqueue_one(store, resource="gpu")
    store.write_sync(pause)
    store.write_sync(pause, "gpu")
    store.write_sync(resume)
    assert claim_all(store) == []
    store.write_sync(resume, "gpu")
    assert len(claim_all(store)) == 1


@pytest.mark.rule("QUE-04")
def test_the_dispatcher_is_woken_when_a_pause_ends(store: PersistenceAdapter) -> None:
    store.write_sync(pause)
    heard: list[frozenset[str]] = []
    stop = store.listen(heard.append)
    store.write_sync(resume)
    stop()
    assert any("ready" in topics for topics in heard)


@pytest.mark.rule("QUE-04")
@pytest.mark.parametrize("name", ["", "*", " gpu", "a\nb", "x" * 201])
def test_a_name_that_no_resource_can_have_is_refused(store: PersistenceAdapter, name: str) -> None:
    with pytest.raises(Invalid):
        store.write_sync(pause, name)
