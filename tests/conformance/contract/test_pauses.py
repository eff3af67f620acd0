"""QUE-04: pausing everything, or one resource."""

from __future__ import annotations

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.pauses import list_pauses, pause, resume
from holdbeat.store.running.claim import Vacancy, claim
from tests.conformance.acts import (
    ROOMY,
    OpenStore,
    claim_all,
    claim_one,
    complete,
    enqueue_one,
    events_of,
    ids_of,
    rows,
)
from tests.conformance.races import HeldOpen, in_background


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


@pytest.mark.rule("QUE-04")
@pytest.mark.parametrize("policy", [ROOMY, "unlimited"])
@pytest.mark.parametrize("resource", [None, "default"])
def test_a_pause_is_not_confirmed_before_the_claims_that_did_not_see_it_have_ended(
    open_store: OpenStore, policy: str, resource: str | None
) -> None:
    worker, person = open_store(policy), open_store(policy)
    first, second = enqueue_one(worker), enqueue_one(worker)
    with HeldOpen(worker, claim, Vacancy("w", [0], (), ["noop"])) as open_claim:
        pausing = in_background(lambda: person.write_sync(pause, resource))
        with pytest.raises(TimeoutError):
            pausing.result(0.3)
        assert ids_of(open_claim.commit()) == [first.id]
    pausing.result(30)
    assert rows(person, "SELECT id FROM jobs WHERE status = 'RUNNING'") == [(first.id,)]
    assert claim_all(worker, worker="v") == []
    person.write_sync(resume, resource)
    assert ids_of(claim_all(worker, worker="v")) == [second.id]


@pytest.mark.rule("QUE-04", "CAP-02")
@pytest.mark.parametrize("engine", ["postgres"])
def test_without_limits_claims_do_not_wait_for_each_other(open_store: OpenStore) -> None:
    store = open_store("unlimited")
    first, second = enqueue_one(store), enqueue_one(store)
    with HeldOpen(store, claim, Vacancy("w", [0], (), ["noop"])) as open_claim:
        assert ids_of(in_background(lambda: claim_all(store, worker="v")).result(10)) == [second.id]
        assert ids_of(open_claim.commit()) == [first.id]
