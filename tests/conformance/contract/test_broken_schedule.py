"""A Schedule whose timetable cannot be read, such as in a zone that is gone, stops nobody and is not forgotten."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.schedule import Schedule
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.observe.explain import explain_schedule
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.upcoming import drifted, realign
from holdbeat.store.reads.needs_attention import next_schedules, troubled_schedules, unknown_zones
from holdbeat.store.schedules.schedules import (
    disable_schedule,
    enable_schedule,
    patch_schedule,
    pause_schedule,
    resume_schedules,
    set_hints,
)
from tests.conformance.acts import change, claim_one, complete, count, enqueue_one, look, rows
from tests.conformance.schedule_acts import (
    assert_each_due_time_once,
    fire,
    jobs_of,
    make,
    make_adaptive,
    occurrences,
    seen,
    verdicts,
    wake_at,
)

MINUTELY = {"cron": "* * * * *", "timezone": "Europe/Berlin"}


def spoil(store: PersistenceAdapter, schedule: Schedule) -> None:
    """As if the zone had gone with an update of the machine."""
    change(store, "UPDATE schedules SET timezone = 'Mars/Phobos' WHERE id = :id", id=schedule.id)


def heal(store: PersistenceAdapter, schedule: Schedule) -> None:
    change(store, "UPDATE schedules SET timezone = 'Europe/Berlin' WHERE id = :id", id=schedule.id)


def changes_of(store: PersistenceAdapter, schedule: Schedule) -> list[str]:
    records = rows(
        store,
        "SELECT data FROM events WHERE name = 'schedule.changed' AND schedule_id = :id ORDER BY id",
        id=schedule.id,
    )
    return [row[0] for row in records]


@pytest.mark.rule("TIME-05", "REC-05")
@pytest.mark.asyncio
async def test_one_broken_schedule_stops_no_other(store: PersistenceAdapter, clock: ManualClock) -> None:
    bad, good = make(store, "bad", **MINUTELY), make(store, "good", **MINUTELY)
    spoil(store, bad)
    clock.advance(60)
    trigger = ScheduleTrigger(store)
    assert await trigger.step() == 2
    assert len(jobs_of(store, good)) == 1 and jobs_of(store, bad) == []
    after = seen(store, "bad")
    assert after.trouble is not None and "Mars/Phobos" in after.trouble
    # Its due time is still to be judged, and it is looked at again before long.
    assert after.next_run_at == bad.next_run_at and occurrences(store, bad) == []
    assert wake_at(store, bad) == clock.now() + timedelta(seconds=60)
    assert await trigger.step() == 0
    clock.advance(60)
    assert await trigger.step() == 2
    assert len(jobs_of(store, good)) == 2
    assert sum("in trouble" in change for change in changes_of(store, bad)) == 1


@pytest.mark.rule("TIME-02", "TIME-03")
def test_it_goes_on_by_itself_when_its_zone_is_known_again(store: PersistenceAdapter, clock: ManualClock) -> None:
    bad = make(store, "bad", **MINUTELY)
    spoil(store, bad)
    clock.advance(60)
    fire(store)
    heal(store, bad)
    clock.advance(210)
    assert fire(store).fired == 1
    # As after a downtime: every due time has its verdict, the newest has the job.
    assert [status for _, status in verdicts(store, bad)] == ["coalesced"] * 3 + ["fired"]
    assert_each_due_time_once(store)
    after = seen(store, "bad")
    assert after.trouble is None and after.next_run_at == clock.now() + timedelta(seconds=30)
    assert "out of trouble" in changes_of(store, bad)[-1]


@pytest.mark.rule("DEC-010", "GOV-08")
def test_an_edit_of_its_zone_mends_it_at_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    for bad in (make(store, "plain", **MINUTELY), make_adaptive(store, "adaptive", **MINUTELY)):
        spoil(store, bad)
    clock.advance(3600)
    fire(store)
    for name in ("plain", "adaptive"):
        mended = store.write_sync(patch_schedule, name, {"timezone": "UTC"})
        assert mended.trouble is None
    plain = seen(store, "plain")
    assert plain.next_run_at == clock.now() + timedelta(seconds=60) == wake_at(store, plain)


@pytest.mark.rule("GOV-08", "TIME-10")
def test_it_can_be_changed_while_it_is_broken(store: PersistenceAdapter, clock: ManualClock) -> None:
    plain, adaptive = make(store, "plain", **MINUTELY), make_adaptive(store, "adaptive", **MINUTELY)
    spoil(store, plain)
    spoil(store, adaptive)
    clock.advance(60)
    fire(store)
    assert store.write_sync(set_hints, "adaptive", interval_s=30).version == 2
    for name in ("plain", "adaptive"):
        assert store.write_sync(patch_schedule, name, {"priority": 7}).priority == 7
        assert store.write_sync(pause_schedule, name).paused_until is not None
    resumed = store.write_sync(resume_schedules)
    assert [item.paused_until for item in resumed] == [None, None]
    for name in ("plain", "adaptive"):
        assert store.write_sync(disable_schedule, name).trouble is None
        with pytest.raises(Invalid, match="Mars/Phobos") as refusal:
            store.write_sync(enable_schedule, name)
        assert refusal.value.field == "timezone"


@pytest.mark.rule("GOV-09", "REC-05")
def test_the_end_of_its_job_is_recorded_although_it_cannot_be_planned(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    bad = make_adaptive(store, "bad", **MINUTELY)
    clock.advance(60)
    fire(store)
    taken = claim_one(store)
    spoil(store, bad)
    complete(store, taken)
    assert taken.job is not None and look(store, taken.job.id).status == "COMPLETED"
    after = seen(store, "bad")
    assert after.trouble is not None and after.next_run_at is None
    assert after.last_run_at == clock.now() and "cannot be planned" in (after.last_decision or {})["sentence"]
    assert wake_at(store, bad) == clock.now() + timedelta(seconds=60)
    plans = count(store, "events", "name = 'plan.decided'")
    clock.advance(60)
    assert fire(store).judged == 1
    assert count(store, "events", "name = 'plan.decided'") == plans
    heal(store, bad)
    clock.advance(61)
    fire(store)
    assert seen(store, "bad").trouble is None and fire(store).fired == 1
    assert len(jobs_of(store, bad)) == 2


@pytest.mark.rule("REC-05", "GOV-09")
@pytest.mark.asyncio
async def test_recovery_of_others_goes_on_beside_a_schedule_that_cannot_be_planned(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    bad = make_adaptive(store, "bad", **MINUTELY)
    spoil(store, bad)
    change(store, "UPDATE schedules SET next_run_at = NULL, wake_at = NULL WHERE id = :id", id=bad.id)
    job = enqueue_one(store)
    claim_one(store, worker="dead")
    clock.advance(4000)
    recovery = ZombieRecovery(store, LeaseTerms(), 5)
    for _ in range(3):
        await recovery.step()
        clock.advance(60)
    assert look(store, job.id).status == "FAILED"
    assert seen(store, "bad").trouble is not None
    assert await recovery.step() == 0


@pytest.mark.rule("TIME-07", "DEC-010")
@pytest.mark.asyncio
async def test_it_is_found_before_it_is_due(store: PersistenceAdapter, clock: ManualClock) -> None:
    bad = make(store, "bad", cron="0 12 * * *", timezone="Europe/Berlin")
    good = make(store, "good", cron="0 12 * * *", timezone="Europe/Berlin")
    spoil(store, bad)
    assert store.read_sync(drifted) == (True, None)
    await ScheduleTrigger(store).step()
    assert seen(store, "bad").trouble is not None and seen(store, "bad").next_run_at == bad.next_run_at
    assert seen(store, "good") == good
    # Neither another look nor a clock that went back trips over it.
    assert store.read_sync(drifted) == (False, None)
    assert store.write_sync(realign) is None
    heal(store, bad)
    clock.advance(60)
    fire(store)
    assert seen(store, "bad").trouble is None and wake_at(store, bad) == bad.next_run_at


@pytest.mark.rule("TIME-05")
def test_a_row_that_nobody_can_read_stops_no_other(store: PersistenceAdapter, clock: ManualClock) -> None:
    make(store, "bad")
    make(store, "good")
    change(store, "UPDATE schedules SET params = '[1]', endpoint = '{\"adress\": 1}' WHERE name = 'bad'")
    clock.advance(60)
    assert fire(store).fired == 1
    assert rows(store, "SELECT count(*) FROM schedules WHERE trouble IS NOT NULL")[0][0] == 1
    change(store, "UPDATE schedules SET params = NULL, endpoint = NULL WHERE name = 'bad'")
    clock.advance(90)
    assert fire(store).fired == 2
    assert rows(store, "SELECT count(*) FROM schedules WHERE trouble IS NOT NULL")[0][0] == 0


@pytest.mark.rule("API-06", "OPS-01")
def test_people_are_told_what_is_broken_and_what_helps(store: PersistenceAdapter, clock: ManualClock) -> None:
    bad = make(store, "bad", **MINUTELY)
    make(store, "good", **MINUTELY)
    assert store.read_sync(troubled_schedules) == [] and store.read_sync(unknown_zones) == {}
    spoil(store, bad)
    assert list(store.read_sync(unknown_zones)) == ["Mars/Phobos"]
    clock.advance(60)
    fire(store)
    answer = store.read_sync(explain_schedule, "bad")
    assert (answer["state"], answer["estimated_start"]) == ("broken", None)
    assert "cannot be planned" in answer["summary"] and "Mars/Phobos" in answer["summary"]
    assert answer["reasons"][0]["pending"] == iso(clock.now())
    assert [schedule.name for schedule in store.read_sync(troubled_schedules)] == ["bad"]
    assert [schedule.name for schedule in store.read_sync(next_schedules)] == ["good"]


@pytest.mark.rule("DEC-010")
def test_a_zone_that_appears_while_the_process_runs_is_known(tmp_path: Path) -> None:
    import zoneinfo

    from holdbeat.domain.cron import zone_of

    (tmp_path / "New").mkdir()
    before = zoneinfo.TZPATH
    try:
        zoneinfo.reset_tzpath([str(tmp_path), *before])
        with pytest.raises(Invalid):
            zone_of("New/Zone")
        source = next(Path(folder) / "Europe/Berlin" for folder in before if (Path(folder) / "Europe/Berlin").exists())
        (tmp_path / "New" / "Zone").write_bytes(source.read_bytes())
        assert zone_of("New/Zone").key == "New/Zone"
        for name in ("localtime", "posixrules", "Factory"):
            with pytest.raises(Invalid):
                zone_of(name)
    finally:
        zoneinfo.reset_tzpath(list(before))
