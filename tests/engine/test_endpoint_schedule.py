"""Endpoints against a real server: backoff, hints, pauses and test calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import NotFound
from holdbeat.domain.run import RunStatus
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.handlers.http import HttpHandler
from holdbeat.handlers.outbound import Outbound
from holdbeat.handlers.stop import StopSignal
from holdbeat.operations.endpoint_test import try_endpoint
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.endpoints import endpoint_health
from holdbeat.store.schedules.schedules import clear_hints, pause_schedule, resume_schedule, set_hints
from tests.conformance.acts import OpenStore, claim_all, count, rows, settle_as
from tests.conformance.schedule_acts import (
    assert_each_due_time_once,
    make,
    make_adaptive,
    make_endpoint,
    occurrences,
    seen,
)
from tests.engine.calling import LOCAL
from tests.engine.raw_server import http, serving

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[PersistenceAdapter]:
    opener = OpenStore(store_url, clock)
    yield opener()
    opener.close()


class Scene:
    """A trigger and a worker of one store, moved by hand; the calls really go out."""

    def __init__(self, store: PersistenceAdapter, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.trigger = ScheduleTrigger(store)
        self._handler = HttpHandler(Outbound(LOCAL))

    async def work(self) -> list[RunStatus]:
        """Fires what is due, makes the calls, settles them."""
        await self.trigger.step()
        ends = []
        for claim in claim_all(self.store):
            assert claim.job is not None
            context: Any = None
            outcome = await self._handler.run(context, claim.job.params, StopSignal())
            settle_as(self.store, claim, outcome)
            ends.append(outcome.status)
        return ends

    async def next_run(self, name: str = "e") -> tuple[float, list[RunStatus]]:
        """Lets time pass until the next planned run, and makes it; how long that was, and how it ended."""
        due = seen(self.store, name).next_run_at
        assert due is not None
        wait = (due - self.clock.now()).total_seconds()
        if wait > 0:
            self.clock.advance(wait - 0.001)
            assert await self.work() == [], "not before its time"
            self.clock.advance(0.001)
        return wait, await self.work()


class Moody:
    """A server whose answer the test can change."""

    answer = http(b"no", status="500 Internal Server Error")

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.answer)


@pytest.mark.rule("GOV-01", "GOV-10", "GOV-12")
def test_a_failing_endpoint_is_called_after_2_4_8_times_its_interval_and_recovers_at_once(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    async def play() -> None:
        moody = Moody()
        async with serving(moody) as server:
            endpoint = make_endpoint(store, url=server.url("/health"), interval_s=1, timeout_s=5)
            scene = Scene(store, clock)
            waits = []
            for _ in range(8):
                wait, ends = await scene.next_run()
                assert ends == [RunStatus.FAILED]
                waits.append(wait)
            assert waits == [1, 2, 4, 8, 16, 32, 32, 32]
            moody.answer = http(b"ok")
            wait, ends = await scene.next_run()
            assert (wait, ends) == (32, [RunStatus.COMPLETED])
            assert (await scene.next_run())[0] == 1, "the first success is back to normal"
            assert len(server.requests) == 10 == len(occurrences(store, endpoint))

    asyncio.run(play())
    result = store.read_sync(endpoint_health, "e")
    assert result["windows"]["1h"]["failures"] == 8 and result["streak"] == {"status": "COMPLETED", "length": 2}
    assert count(store, "jobs", "retry_of IS NOT NULL") == 0, "the backoff is its retry"
    assert_each_due_time_once(store)


@pytest.mark.rule("GOV-10")
@pytest.mark.parametrize("status", ["301 Moved Permanently", "404 Not Found", "503 Service Unavailable"])
def test_only_2xx_is_a_success(store: PersistenceAdapter, clock: ManualClock, status: str) -> None:
    async def play() -> None:
        async with serving(http(b"", None, status, "Location: /elsewhere")) as server:
            make_endpoint(store, url=server.url(), interval_s=10)
            assert (await Scene(store, clock).next_run())[1] == [RunStatus.FAILED]
            assert len(server.requests) == 1, "a redirect is not followed"

    asyncio.run(play())
    assert seen(store, "e").failure_count == 1


@pytest.mark.rule("GOV-03", "GOV-04", "GOV-07", "GOV-08")
def test_hints_pause_and_resume_act_at_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    async def play() -> None:
        async with serving(http(b"fine")) as server:
            make_endpoint(store, url=server.url(), interval_s=3600, min_interval_s=5)
            scene = Scene(store, clock)
            await scene.next_run()
            store.write_sync(set_hints, "e", interval_s=10, ttl_s=35, reason="an incident")
            assert [await _wait(scene) for _ in range(3)] == [10, 10, 10]
            clock.advance(5)
            assert await scene.work() == [], "the hint is over: back to its own pace"
            assert (seen(store, "e").next_run_at or START) - clock.now() == timedelta(seconds=3595)
            store.write_sync(set_hints, "e", next_run_at=clock.now())
            assert await scene.work() == [RunStatus.COMPLETED]
            assert await scene.work() == [], "a run-now hint is used up"
            store.write_sync(set_hints, "e", interval_s=10)
            store.write_sync(pause_schedule, "e", None, "maintenance")
            clock.advance(600)
            assert await scene.work() == []
            store.write_sync(resume_schedule, "e")
            assert await scene.work() == [RunStatus.COMPLETED], "at once, not at the old time"
            store.write_sync(clear_hints, "e")
            assert await _wait(scene) == 3600
            assert len(server.requests) == 7

    asyncio.run(play())
    assert_each_due_time_once(store)


async def _wait(scene: Scene) -> float:
    return (await scene.next_run())[0]


def _picture(store: PersistenceAdapter) -> list[Any]:
    return [rows(store, f"SELECT * FROM {table}") for table in ("schedules", "jobs", "occurrences", "events")]


@pytest.mark.rule("GOV-11")
def test_a_test_call_answers_and_changes_nothing(store: PersistenceAdapter) -> None:
    """A pitfall: test runs counted in the health figures."""

    async def play() -> None:
        moody = Moody()
        async with serving(moody) as server:
            make_endpoint(
                store, url=server.url("/x"), method="POST", body={"a": 1}, headers={"Authorization": "Bearer s"}
            )
            before = _picture(store)
            failed = await try_endpoint(store, Outbound(LOCAL), "e")
            moody.answer = http(b'{"fine": true}', "application/json")
            good = await try_endpoint(store, Outbound(LOCAL), "e")
            assert _picture(store) == before
            assert failed["ok"] is False and failed["result"]["status_code"] == 500 and failed["error"]
            assert good["ok"] is True and good["result"]["body"] == {"fine": True}
            assert b"Bearer s" in server.requests[0] and server.requests[0].startswith(b"POST /x")
            assert "Bearer s" not in str(good) + str(failed)

    asyncio.run(play())


@pytest.mark.rule("GOV-11", "SEC-04")
def test_a_test_call_of_what_may_not_be_called_or_is_not_there(store: PersistenceAdapter) -> None:
    async def play() -> None:
        make_endpoint(store, url="http://169.254.169.254/latest")
        refused = await try_endpoint(store, Outbound(LOCAL), "e")
        assert refused["ok"] is False and refused["error_kind"] == "rejected" and refused["result"] is None
        make(store, "plain")
        make_adaptive(store, "adaptive")
        for name in ("plain", "adaptive", "nobody"):
            with pytest.raises(NotFound):
                await try_endpoint(store, Outbound(LOCAL), name)

    asyncio.run(play())
