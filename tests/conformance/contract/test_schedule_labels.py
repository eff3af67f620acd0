"""Schedules and endpoints by label: found, paused and resumed together."""

from __future__ import annotations

import json

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.find_schedules import find_schedules
from holdbeat.store.schedules.schedule_reports import list_schedules
from holdbeat.store.schedules.schedules import disable_schedule, pause_schedules, resume_schedules
from tests.conformance.acts import events_of
from tests.conformance.schedule_acts import make, make_endpoint


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
