"""Schedules and endpoints by label: found, paused and resumed together."""

from __future__ import annotations

import json

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.find_schedules import find_schedules
from holdbeat.store.schedules.schedule_reports import list_schedules
from holdbeat.store.schedules.schedules import (
    create_schedule,
    delete_schedule,
    disable_schedule,
    patch_schedule,
    pause_schedules,
    resume_schedules,
)
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import change, events_of
from tests.conformance.plans import plans_of
from tests.conformance.schedule_acts import announce_types, make, make_endpoint


@pytest.mark.rule("FND-01")
def test_a_label_finds_schedules_written_as_name_and_value_or_as_a_part_of_it(store: PersistenceAdapter) -> None:
    make(store, "shop 1", interval_s=60, labels={"team": "shop", "zone": "eu"})
    make(store, "team=search is a name", interval_s=60, labels={"team": "mail"})
    make_endpoint(store, "shop page", labels={"team": "shop"})

    def names(text: str, *, endpoint: bool = False) -> list[str]:
        page = store.read_sync(
            find_schedules, endpoint=endpoint, text=text, state=None, order="name", limit=9, offset=0
        )
        return [schedule.name for schedule in page.schedules]

    assert names("team=shop") == names("eu") == ["shop 1"]
    assert names("Team=Shop", endpoint=True) == ["shop page"]
    assert names("team=search") == ["team=search is a name"]
    assert names("team=sho") == ["shop 1"]
    assert names("team=shopping") == names("eam = shop") == []
    make(store, "\u00dcbersicht Z\u00fcrich", interval_s=60, labels={"Stadt": "\u00d6rebro"})
    assert names("\u00dcBERSICHT Z\u00fcrich") == names("Stadt=\u00d6rebro") == ["\u00dcbersicht Z\u00fcrich"]
    labelled = store.read_sync(list_schedules, {"label": "team=shop"}, endpoint=None).items
    assert {schedule.name for schedule in labelled} == {"shop 1", "shop page"}
    with pytest.raises(Invalid, match="name=value"):
        store.read_sync(list_schedules, {"label": "team"})


@pytest.mark.rule("AUD-01", "FND-01")
def test_schedules_of_a_label_are_paused_and_resumed_together_and_each_is_on_record(store: PersistenceAdapter) -> None:
    shop = [make(store, f"shop {number}", interval_s=60, labels={"team": "shop"}) for number in range(3)]
    other = make(store, "mail", interval_s=60, labels={"team": "mail"})
    endpoint = make_endpoint(store, "page", labels={"team": "shop"})
    store.write_sync(disable_schedule, shop[2].id)
    paused = store.write_sync(pause_schedules, label="team=shop", reason="freeze", endpoint=False)
    assert [schedule.id for schedule in paused] == [schedule.id for schedule in shop[:2]]
    assert all(schedule.pause_reason == "freeze" for schedule in paused)
    # Those that are paused already are left as they are.
    assert store.write_sync(pause_schedules, label="team=shop", reason="again", endpoint=False) == []
    changes = [json.loads(row[3])["change"] for row in events_of(store, "schedule.changed")]
    assert changes.count("paused") == 2
    store.write_sync(pause_schedules, [other.id, endpoint.id])
    resumed = store.write_sync(resume_schedules, label="team=shop")
    assert {schedule.id for schedule in resumed} == {shop[0].id, shop[1].id, endpoint.id}
    assert [schedule.name for schedule in store.write_sync(resume_schedules)] == ["mail"]


def by_label(
    store: PersistenceAdapter, label: str, *, endpoint: bool | None = None, order: str = "newest"
) -> list[str]:
    page = store.read_sync(list_schedules, {"label": label, "order": order}, endpoint=endpoint)
    return [schedule.name for schedule in page.items]


@pytest.mark.rule("FND-01")
def test_the_index_of_labels_follows_edits_and_deletes(store: PersistenceAdapter) -> None:
    first, second = (make(store, name, labels={"a": "b=c", "$.x": "1"}) for name in ("first", "second"))
    make(store, "third", labels={"a=b": "c"})
    endpoint = make_endpoint(store, "page", labels={"a": "b=c"})
    assert by_label(store, "a=b=c") == ["page", "second", "first"]
    assert by_label(store, "$.x=1", order="next_run") == ["first", "second"]
    store.write_sync(patch_schedule, first.id, {"labels": {"a": "d"}})
    store.write_sync(patch_schedule, second.id, {"priority": 7})
    assert by_label(store, "a=b=c", endpoint=False) == ["second"]
    assert by_label(store, "a=d") == ["first"]
    store.write_sync(patch_schedule, endpoint.id, {"labels": None}, endpoint=True)
    store.write_sync(delete_schedule, second.id)
    assert by_label(store, "a=b=c") == by_label(store, "$.x=1") == []
    rows = store.read_sync(lambda tx: tx.rows("SELECT label_name, label_value FROM schedule_labels ORDER BY 1"))
    assert [tuple(row) for row in rows] == [("a", "d"), ("a=b", "c")]


@pytest.mark.rule("FND-01")
def test_the_schedules_of_a_label_are_read_page_by_page_along_its_index(store: PersistenceAdapter) -> None:
    announce_types(store)
    body = {"type": "noop", "interval_s": 60}

    def fill(tx: Transaction) -> None:
        for number in range(2000):
            labels = {"team": "rare" if number % 500 == 0 else "common"}
            create_schedule(tx, {**body, "name": f"s {number}", "labels": labels})

    store.write_sync(fill)
    change(store, "ANALYZE")
    for label, count in (("team=rare", 4), ("team=common", 50)):
        (plan,) = plans_of(store, list_schedules, {"label": label})
        assert not plan.tables_read_whole and not plan.sorts_table, plan.steps
        page = store.read_sync(list_schedules, {"label": label}, limit=50)
        assert len(page.items) == count
    following = store.read_sync(list_schedules, {"label": "team=common"}, limit=50, cursor=page.next_cursor)
    assert following.items[0].name == "s 1949" and page.items[-1].name == "s 1950"
    pause = plans_of(store, pause_schedules, label="team=rare", endpoint=False)[0]
    assert not pause.tables_read_whole, pause.steps
