"""The grace of a cancelled handler comes from the job, its schedule, its template, or its type, nearest first."""

from __future__ import annotations

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import DEFAULT_CANCEL_GRACE_S
from holdbeat.domain.views import schedule_json, template_json
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.manual_fire import trigger_schedule
from holdbeat.store.queue.templates import create_template, get_template, patch_template
from holdbeat.store.schedules.schedules import patch_schedule
from tests.conformance.schedule_acts import announce_types, fire_all, jobs_of, make, make_endpoint, seen


@pytest.mark.rule("CAN-03")
def test_a_schedule_sets_it_for_its_jobs_over_its_template(store: PersistenceAdapter, clock: ManualClock) -> None:
    announce_types(store)
    template = store.write_sync(create_template, {"name": "t", "type": "noop", "cancel_grace_s": 2})
    assert template_json(store.read_sync(get_template, "t"))["cancel_grace_s"] == template.cancel_grace_s == 2
    bare = make(store, "bare")
    by_template = make(store, "by-template", template="t")
    own = make(store, "own", template="t", cancel_grace_s=0)
    assert schedule_json(seen(store, "own"))["cancel_grace_s"] == 0
    clock.advance(60)
    assert fire_all(store) == 3
    graces = [jobs_of(store, schedule)[0].cancel_grace_s for schedule in (bare, by_template, own)]
    assert graces == [DEFAULT_CANCEL_GRACE_S, 2, 0]
    assert store.write_sync(trigger_schedule, "own")[1].cancel_grace_s == 0


@pytest.mark.rule("CAN-03")
def test_it_can_be_changed_and_taken_back(store: PersistenceAdapter) -> None:
    make(store, cancel_grace_s=5)
    assert store.write_sync(patch_schedule, "s", {"cancel_grace_s": 7.5}).cancel_grace_s == 7.5
    assert store.write_sync(patch_schedule, "s", {"cancel_grace_s": None}).cancel_grace_s is None
    store.write_sync(create_template, {"name": "t", "type": "noop"})
    assert store.write_sync(patch_template, "t", {"cancel_grace_s": 4}).cancel_grace_s == 4
    assert store.write_sync(patch_template, "t", {"cancel_grace_s": None}).cancel_grace_s is None
    for wrong in (-1, "soon", float("inf")):
        with pytest.raises(Invalid) as refusal:
            store.write_sync(patch_schedule, "s", {"cancel_grace_s": wrong})
        assert refusal.value.field == "cancel_grace_s"
    with pytest.raises(Invalid) as refusal:
        make_endpoint(store, cancel_grace_s=5)
    assert refusal.value.field == "cancel_grace_s"
