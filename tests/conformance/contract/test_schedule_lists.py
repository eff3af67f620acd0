"""Lists of schedules and endpoints as pages show them: counts by state, what fails first, the last runs of each."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.find_schedules import Found, find_schedules, past_runs
from holdbeat.store.schedules.schedules import disable_schedule, pause_schedule
from tests.conformance.acts import change, claim_one, complete, enqueue_one, fail
from tests.conformance.plans import plans_of
from tests.conformance.schedule_acts import make, make_endpoint


def listed(
    store: PersistenceAdapter, state: str | None = None, *, text: str | None = None, order: str = "name"
) -> Found:
    return store.read_sync(find_schedules, endpoint=False, text=text, state=state, order=order, limit=50, offset=0)


def names(found: Found) -> list[str]:
    return [schedule.name for schedule in found.schedules]


@pytest.mark.rule("FND-01")
def test_each_state_is_counted_and_listed_alike_with_and_without_a_text(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    for name in ("a1", "a2", "broken", "failing", "off", "paused", "was paused"):
        make(store, name, interval_s=60)
    make_endpoint(store, "an endpoint")
    store.write_sync(disable_schedule, "off")
    store.write_sync(pause_schedule, "paused", clock.now() + timedelta(hours=2), None)
    store.write_sync(pause_schedule, "was paused", clock.now() + timedelta(seconds=1), None)
    change(store, "UPDATE schedules SET failure_count = 3 WHERE name IN :names", names=["failing", "off"])
    change(store, "UPDATE schedules SET trouble = 'no such zone' WHERE name = 'broken'")
    clock.advance(2)
    wanted = {
        "active": ["a1", "a2", "was paused"],
        "failing": ["broken", "failing"],
        "paused": ["paused"],
        "disabled": ["off"],
    }
    counts = {state: len(those) for state, those in wanted.items()} | {"": 7}
    for text in (None, "noop"):
        for state, those in wanted.items():
            page = listed(store, state, text=text)
            assert (names(page), page.total, page.by_state) == (those, len(those), counts)
    assert names(listed(store, order="failing"))[:2] == ["failing", "off"]


@pytest.mark.rule("FND-01")
def test_the_last_runs_of_each_schedule_are_read_in_one_statement(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    often, once, never = (make(store, name, interval_s=60) for name in ("often", "once", "never"))
    for schedule in (once, often, often, often):
        clock.advance(60)
        job = enqueue_one(store)
        change(store, "UPDATE jobs SET schedule_id = :schedule WHERE id = :id", schedule=schedule.id, id=job.id)
        complete(store, claim_one(store))
    clock.advance(60)
    job = enqueue_one(store)
    change(store, "UPDATE jobs SET schedule_id = :schedule WHERE id = :id", schedule=often.id, id=job.id)
    fail(store, claim_one(store))
    runs = store.read_sync(past_runs, [often.id, once.id, never.id], 3)
    assert [run.status for run in runs[often.id]] == ["COMPLETED", "FAILED", "QUEUED"]
    started = [clock.now() - timedelta(minutes=1), clock.now(), None]
    assert [run.started_at for run in runs[often.id]] == started
    assert [run.status for run in runs[once.id]] == ["COMPLETED"]
    assert runs[never.id] == []
    change(
        store,
        "INSERT INTO jobs (id, type, position, created_at, status, schedule_id) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
        "SELECT 'j' || i, 'noop', i, :now, 'COMPLETED', 's' || (i % 100) FROM n",
        now=clock.now(),
    )
    change(store, "ANALYZE")
    (plan,) = plans_of(store, past_runs, [often.id, once.id], 3)
    assert "jobs_schedule" in plan.indexes


@pytest.mark.rule("FND-01")
def test_ten_thousand_schedules_are_listed_and_counted_along_indexes(store: PersistenceAdapter) -> None:
    for kind in ("NULL", '\'{"url": "http://127.0.0.1/"}\''):
        change(
            store,
            "INSERT INTO schedules (id, name, type, interval_s, created_at, endpoint, failure_count) "
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
            f"SELECT :kind || i, :kind || ' ' || i, 'noop', 60, :now, {kind}, CASE WHEN i % 50 = 0 THEN 3 ELSE 0 END "
            "FROM n",
            kind="s" if kind == "NULL" else "e",
            now=store.read_sync(lambda tx: tx.now),
        )
    change(store, "ANALYZE")
    for endpoint, index in ((False, "schedules_listed"), (True, "endpoints_listed")):

        def plans(state: str | None, *, text: str | None = None, endpoint: bool = endpoint) -> list[frozenset[str]]:
            shown = plans_of(
                store, find_schedules, endpoint=endpoint, text=text, state=state, order="failing", limit=50, offset=0
            )
            return [plan.indexes for plan in shown]

        _, failing, paused, disabled, page, *_ = plans(None)
        assert "schedules_in_need" in failing
        assert "schedules_held" in paused & disabled
        assert index in page
        for state, its_index in (("failing", "schedules_in_need"), ("paused", "schedules_held")):
            assert its_index in plans(state)[4]
        if store.read_sync(lambda tx: tx.dialect) == "sqlite":
            assert plans(None, text="team=shop")[0] == {index.replace("listed", "searched")}
