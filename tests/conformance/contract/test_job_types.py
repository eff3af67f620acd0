"""QUE-06: job types are announced to the store."""

from __future__ import annotations

import threading

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.job_types import (
    AnnouncedType,
    Catalogue,
    announce,
    list_types,
    unknown_type_error,
)
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import OpenStore

STORY = AnnouncedType("story", {"type": "object"}, {"resource": "gpu"}, ("tale", "novel"), "Writes one.")


def resolved(tx: Transaction, name: str) -> AnnouncedType:
    return Catalogue(tx).resolve(name)


@pytest.mark.rule("QUE-06")
def test_types_are_remembered_with_schema_defaults_and_aliases(open_store: OpenStore) -> None:
    first = open_store()
    first.write_sync(announce, [STORY, AnnouncedType("alpha")])
    first.close()
    second = open_store()
    alpha, story = second.read_sync(list_types)
    assert (alpha.name, story.name) == ("alpha", "story")
    assert (story.schema, story.defaults, story.aliases) == (STORY.schema, STORY.defaults, STORY.aliases)
    assert story.description == "Writes one."


@pytest.mark.rule("QUE-06")
def test_only_what_changed_is_written_again(store: PersistenceAdapter, clock: ManualClock) -> None:
    assert store.write_sync(announce, [STORY, AnnouncedType("alpha")]) == ["alpha", "story"]
    clock.advance(10)
    assert store.write_sync(announce, [STORY]) == []
    assert store.write_sync(announce, [AnnouncedType("story", {"type": "object"}, {}), AnnouncedType("alpha")]) == [
        "story"
    ]
    alpha, story = store.read_sync(list_types)
    assert alpha.announced_at != story.announced_at == clock.now()


@pytest.mark.rule("QUE-06", "OPS-06")
def test_many_processes_may_announce_at_once(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(3)]
    names = [f"t{number}" for number in range(30)]

    def go(store: PersistenceAdapter, backwards: bool) -> None:
        for order in (names, names[::-1]):
            store.write_sync(announce, [AnnouncedType(name) for name in (order[::-1] if backwards else order)])

    threads = [threading.Thread(target=go, args=(store, bool(index % 2))) for index, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type_.name for type_ in stores[0].read_sync(list_types)} == set(names)


@pytest.mark.rule("QUE-06")
def test_an_alias_leads_to_its_type_and_a_name_goes_before_an_alias(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [STORY, AnnouncedType("novel")])
    assert store.read_sync(resolved, "tale").name == "story"
    assert store.read_sync(resolved, "novel").name == "novel"


@pytest.mark.rule("QUE-06")
def test_an_unknown_name_is_refused_with_those_that_were_meant(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid) as refusal:
        store.read_sync(resolved, "story")
    assert "No job type is known yet" in refusal.value.detail
    store.write_sync(announce, [STORY])
    with pytest.raises(Invalid) as refusal:
        store.read_sync(resolved, "storry")
    assert refusal.value.code == "unknown_type"
    assert "story" in refusal.value.detail
    assert "Known are a, b" in unknown_type_error("zzzzzz", ["b", "a"]).detail
