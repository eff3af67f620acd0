"""ScheduleTrigger: every due time once, never early, whatever the clocks and other processes do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdbeat.domain.clock import ManualClock, SystemClock, iso
from holdbeat.domain.cron import Cron, Dst, zone_of
from holdbeat.domain.errors import StoreDown
from holdbeat.domain.schedule import Schedule
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.fire_due import Firing
from holdbeat.store.schedules.schedules import patch_schedule, pause_schedule, resume_schedule, set_hints
from tests.conformance.acts import OpenStore, change, claim_all, complete, count, open_at, rows
from tests.conformance.schedule_acts import (
    assert_each_due_time_once,
    jobs_of,
    make,
    make_adaptive,
    occurrences,
    seen,
    verdicts,
)
from tests.engine.acting import until

START = datetime(2026, 1, 1, tzinfo=UTC)
DST_DAYS = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
    "America/Sao_Paulo": ("2018-11-04", "2018-02-18"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),
    "Asia/Beirut": ("2026-03-29", "2026-10-25"),
    "America/Santiago": ("2026-09-06", "2026-04-05"),
    "Europe/London": ("2026-03-29", "2026-10-25"),
    "Pacific/Auckland": ("2026-09-27", "2026-04-05"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(store_url: str, clock: ManualClock) -> Iterator[OpenStore]:
    opener = OpenStore(store_url, clock)
    yield opener
    opener.close()


@pytest.fixture
def store(open_store: OpenStore) -> PersistenceAdapter:
    return open_store()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.rule("TIME-04")
def test_a_step_fires_what_is_due_and_nothing_early(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store)

    async def scene() -> None:
        trigger = ScheduleTrigger.for_settings(store, Settings())
        assert await trigger.step() == 0
        clock.advance(59.999)
        assert await trigger.step() == 0
        clock.advance(0.001)
        assert trigger.lag_s == 0 and await trigger.step() == 1
        assert await trigger.step() == 0

    asyncio.run(scene())
    assert [occurrence.due_at for occurrence in occurrences(store, schedule)] == [at(60)]


@pytest.mark.rule("TIME-04")
def test_more_than_one_look_can_hold_and_more_than_one_batch_are_fired_in_one_step(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    for number in range(45):
        make(store, f"s{number}", interval_s=60 + number % 9)
    seen_by_trigger: list[Firing] = []

    async def scene() -> None:
        trigger = ScheduleTrigger(store, batch=7, on_fired=seen_by_trigger.append)
        clock.advance(70)
        assert await trigger.step() == 45

    asyncio.run(scene())
    assert sum(firing.fired for firing in seen_by_trigger) == 45 and len(seen_by_trigger) == 7
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-01", "TIME-02", "DEC-003")
@pytest.mark.parametrize("which", [0, 1], ids=["spring", "autumn"])
def test_days_on_which_the_clocks_change_fire_what_the_timetable_says_once(
    store: PersistenceAdapter, clock: ManualClock, which: int
) -> None:
    made: dict[str, tuple[Schedule, list[str]]] = {}
    spans = []
    for zone, days in DST_DAYS.items():
        midnight = datetime.fromisoformat(f"{days[which]}T00:00:00").replace(tzinfo=zone_of(zone))
        begin = midnight.astimezone(UTC) - timedelta(hours=1)
        spans.append((begin, zone))
    for begin, zone in sorted(spans):
        clock.jump((begin - clock.now()).total_seconds())
        names = []
        for number, (cron, dst) in enumerate(
            [("30 2 * * *", "vixie"), ("30 0 * * *", "vixie"), ("*/30 * * * *", "vixie"), ("15 2 * * *", "shift")]
        ):
            name = f"{zone}-{number}"
            schedule = make(store, name, cron=cron, timezone=zone, dst=dst, interval_s=None)
            expected = []
            for fire in Cron.parse(cron).fires(clock.now(), zone_of(zone), Dst(dst)):
                if fire.at > begin + timedelta(hours=27):
                    break
                expected.append(iso(fire.at))
            made[name] = (schedule, expected)
            names.append(name)

        async def day() -> None:
            trigger = ScheduleTrigger(store)
            for _ in range(27 * 2):
                clock.advance(1800)
                await trigger.step()

        asyncio.run(day())
        for name in names:
            schedule, expected = made[name]
            assert verdicts(store, schedule) == [(due, "fired") for due in expected], name
            store.write_sync(patch_schedule, name, {"enabled": False})
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-02", "TIME-07")
@pytest.mark.parametrize("hours", [-1, -24, -72])
def test_a_clock_that_goes_back_fires_nothing_twice_and_nothing_stalls(
    store: PersistenceAdapter, clock: ManualClock, hours: int
) -> None:
    cron = make(store, "cron", cron="*/5 * * * *", interval_s=None)
    grid = make(store, "grid", interval_s=300)
    adaptive = make_adaptive(store, "adaptive", interval_s=300)
    adaptive_cron = make_adaptive(store, "adaptive cron", cron="*/5 * * * *", interval_s=None)

    async def scene() -> None:
        trigger = ScheduleTrigger(store)

        async def minutes(amount: int) -> None:
            for _ in range(amount):
                clock.advance(60)
                await trigger.step()
                for taken in claim_all(store):
                    complete(store, taken)

        await minutes(20)
        clock.jump(hours * 3600)
        await minutes(20)

    asyncio.run(scene())
    assert_each_due_time_once(store)
    for schedule in (cron, grid, adaptive, adaptive_cron):
        before = [occurrence for occurrence in occurrences(store, schedule) if occurrence.due_at < START]
        assert 3 <= len(before) <= 5, f"{schedule.name} stalled, or ran away"
    assert count(store, "events", "name = 'clock.jumped'") == 1


@pytest.mark.rule("TIME-02")
def test_a_clock_that_goes_back_over_what_has_fired_refuses_it_and_goes_on_behind_it(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, interval_s=60)
    refused = 0

    def note(firing: Firing) -> None:
        nonlocal refused
        refused += firing.refused

    async def scene() -> None:
        trigger = ScheduleTrigger(store, on_fired=note)
        for _ in range(10):
            clock.advance(60)
            await trigger.step()
        clock.jump(-300)
        for _ in range(10):
            clock.advance(60)
            await trigger.step()

    asyncio.run(scene())
    assert [occurrence.due_at for occurrence in occurrences(store, schedule)] == [at(60 * n) for n in range(1, 16)]
    assert refused == 5, "those from 360 to 600"
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-03", "TIME-07")
def test_a_clock_that_ran_ahead_for_three_days_and_came_back_leaves_no_hole(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, cron="*/5 * * * *", interval_s=None)

    async def scene() -> None:
        trigger = ScheduleTrigger(store)
        clock.advance(300)
        await trigger.step()
        clock.jump(3 * 86400)
        await trigger.step()
        clock.jump(-3 * 86400)
        for _ in range(6):
            clock.advance(150)
            await trigger.step()

    asyncio.run(scene())
    fired = [occurrence.due_at for occurrence in occurrences(store, schedule) if occurrence.status == "fired"]
    assert fired == [at(300), at(600), at(900), at(1200), at(3 * 86400 + 300)]
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-07")
def test_a_clock_that_went_back_while_nobody_ran_is_noticed_at_the_start(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    make(store, cron="*/5 * * * *", interval_s=None)

    async def scene() -> None:
        clock.advance(300)
        await ScheduleTrigger(store).step()
        clock.jump(-86400)
        await ScheduleTrigger(store).step()

    asyncio.run(scene())
    assert seen(store, "s").next_run_at == at(600 - 86400)


@pytest.mark.rule("TIME-02")
def test_a_clock_that_is_nudged_to_and_fro_around_the_instant_fires_once(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    """As a leap second, or a correction by half a second, does it."""
    schedule = make(store, cron="* * * * *", interval_s=None)
    dice = random.Random(3)

    async def scene() -> None:
        trigger = ScheduleTrigger(store)
        for _ in range(400):
            clock.advance(0.5)
            clock.jump(dice.choice([-0.5, -0.25, 0, 0, 0, 0.25, 0.5, 1, -1]))
            await trigger.step()

    asyncio.run(scene())
    due = [occurrence.due_at for occurrence in occurrences(store, schedule)]
    assert due == [at(60 * n) for n in range(1, len(due) + 1)] and len(due) >= 2
    assert_each_due_time_once(store)


@pytest.mark.rule("DEC-010")
def test_plans_from_before_a_change_of_a_zones_rules_are_made_anew_at_the_start(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    good = make(store, "good", cron="0 9 * * *", timezone="Europe/Berlin", interval_s=None)
    moved = make(store, "moved", cron="0 9 * * *", timezone="Africa/Cairo", interval_s=None)
    adaptive = make_adaptive(store, "adaptive", cron="0 9 * * *", timezone="Africa/Cairo", interval_s=None)
    right = seen(store, "moved").next_run_at
    assert right is not None
    # As the older rules had it: an hour later.
    for schedule in (moved, adaptive):
        change(
            store,
            "UPDATE schedules SET next_run_at = :at, wake_at = :at WHERE id = :id",
            at=right + timedelta(hours=1),
            id=schedule.id,
        )
    before = seen(store, "good")
    asyncio.run(ScheduleTrigger(store).step())
    assert seen(store, "moved").next_run_at == seen(store, "adaptive").next_run_at == right
    assert seen(store, good.id) == before
    assert clock.now() < right


@pytest.mark.rule("TIME-06")
def test_a_thousand_edits_at_the_instant_of_firing(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, cron="* * * * *", interval_s=None, priority=1)
    dice = random.Random(7)

    async def scene() -> None:
        trigger = ScheduleTrigger(store)
        for number in range(1000):
            clock.advance(60)
            edit = {"priority": number % 100, "timezone": dice.choice(["UTC", "Asia/Kolkata", "Europe/Berlin"])}
            acts = [trigger.step(), store.write(patch_schedule, "s", edit)]
            dice.shuffle(acts)
            await asyncio.gather(*acts)
            await trigger.step()

    asyncio.run(scene())
    assert count(store, "occurrences", "status = 'fired'") == 1000 == count(store, "jobs")
    assert_each_due_time_once(store)
    allowed = {(n, p) for n in range(1000) for p in (n % 100, (n - 1) % 100 if n else 1)}
    records = rows(store, "SELECT scheduled_for, priority FROM jobs ORDER BY scheduled_for")
    assert all((n, row[1]) in allowed for n, row in enumerate(records)), "the old or the new, nothing else"
    assert schedule.priority == 1


@pytest.mark.rule("TIME-06")
def test_pausing_and_disabling_at_the_instant_of_firing(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, interval_s=60)
    dice = random.Random(11)

    async def scene() -> None:
        trigger = ScheduleTrigger(store)
        for _ in range(60):
            clock.advance(60)
            for change_it in (
                store.write(pause_schedule, "s", None, None),
                store.write(resume_schedule, "s"),
                store.write(patch_schedule, "s", {"enabled": False}),
                store.write(patch_schedule, "s", {"enabled": True}),
            ):
                acts: list[Any] = [trigger.step(), change_it]
                dice.shuffle(acts)
                await asyncio.gather(*acts)

    asyncio.run(scene())
    assert_each_due_time_once(store)
    assert len(occurrences(store, schedule)) <= 60


@pytest.mark.rule("TIME-02", "TIME-05", "OPS-06")
@pytest.mark.parametrize("triggers", [2, 4])
def test_several_triggers_at_once_fire_each_due_time_once(
    open_store: OpenStore, clock: ManualClock, triggers: int
) -> None:
    stores = [open_store() for _ in range(triggers)]
    for number in range(60):
        kind = make_adaptive if number % 3 == 0 else make
        kind(stores[0], f"s{number}", interval_s=60)

    async def scene() -> None:
        crowd = [ScheduleTrigger(store, batch=9) for store in stores]
        for _ in range(6):
            clock.advance(60)
            await asyncio.gather(*(trigger.step() for trigger in crowd))
            await asyncio.gather(*(trigger.step() for trigger in crowd))
            for taken in claim_all(stores[0]):
                complete(stores[0], taken)

    asyncio.run(scene())
    assert_each_due_time_once(stores[0])
    assert count(stores[0], "jobs") == 360


# --- as a running service, on the real clock -----------------------------------------------------------------


class CountingTrigger(ScheduleTrigger):
    """Counts its rests between two steps."""

    rests = 0

    async def _rest(self, pause_s: float) -> None:
        self.rests += 1
        await super()._rest(pause_s)


@pytest.mark.rule("TIME-04", "GOV-08")
def test_a_running_trigger_fires_at_the_instant_and_is_woken_by_changes(open_store: OpenStore) -> None:
    store = open_store(clock=SystemClock())
    far = make_adaptive(store, "far", interval_s=3600)

    async def scene() -> None:
        firings: asyncio.Queue[Firing] = asyncio.Queue()
        trigger = CountingTrigger(store, on_fired=firings.put_nowait)
        await trigger.start()
        await until(lambda: trigger.rests)
        due = store.clock.now() + timedelta(seconds=0.3)
        make(store, "soon", start_at=due, interval_s=3600)
        firing = await asyncio.wait_for(firings.get(), 10)
        assert firing.at >= due and firing.latest_s < 5
        await store.write(set_hints, "far", next_run_at=store.clock.now())
        assert (await asyncio.wait_for(firings.get(), 5)).fired == 1
        await trigger.stop()
        await trigger.stop()

    asyncio.run(scene())
    assert len(jobs_of(store, far)) == 1
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-04")
def test_a_trigger_whose_store_is_down_waits_between_its_attempts(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(store)

    async def scene() -> int:
        attempts = 0
        trigger = CountingTrigger(store)
        await trigger.step()

        async def down(*args: Any) -> Any:
            nonlocal attempts
            attempts += 1
            raise StoreDown("The database is away.")

        monkeypatch.setattr(store, "read", down)
        monkeypatch.setattr("holdbeat.engine.service.FAILED_PAUSE_S", 600)
        trigger._read_at = float("-inf")
        await trigger.start()
        await until(lambda: trigger.rests)
        for _ in range(100):
            await asyncio.sleep(0)
        await trigger.stop()
        return attempts

    assert asyncio.run(scene()) == 1


@pytest.mark.rule("TIME-04")
def test_a_schedule_that_somebody_holds_at_its_instant_is_fired_as_soon_as_it_is_free(postgres_url: str) -> None:
    store = open_at(postgres_url)
    due = SystemClock().now() + timedelta(seconds=0.3)
    make(store, start_at=due, interval_s=3600)

    async def scene() -> None:
        firings: asyncio.Queue[Firing] = asyncio.Queue()
        trigger = CountingTrigger(store, horizon_s=600, on_fired=firings.put_nowait)
        with psycopg.connect(postgres_url) as holder:
            holder.execute("SELECT id FROM schedules FOR UPDATE")
            await trigger.start()
            await until(lambda: store.clock.now() > due)
            rests = trigger.rests
            await until(lambda: trigger.rests > rests + 2)
            assert firings.empty() and trigger.lag_s < 1
        freed = store.clock.now()
        firing = await asyncio.wait_for(firings.get(), 5)
        assert firing.fired == 1 and (firing.at - freed).total_seconds() < 5
        await trigger.stop()

    asyncio.run(scene())
    store.close()
