"""Webhooks leave the outbox at least once, signed, under one id; no receiver slows another."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier

from holdbeat import App
from holdbeat.domain.clock import ManualClock, SystemClock
from holdbeat.domain.views import delivery_json
from holdbeat.domain.webhook import LEFT_ALONE, DeliveryStatus
from holdbeat.engine.webhook_service import WebhookService
from holdbeat.store.webhooks.deliveries import list_deliveries
from holdbeat.store.webhooks.subscriptions import create_webhook
from holdbeat.testing import Stage, stage
from tests.engine.acting import fail_writes, rows, stop_failing_writes, until, value
from tests.engine.raw_server import http, serving

pytestmark = pytest.mark.asyncio

OK = http(b"ok")


class Post:
    """A stage whose jobs end and are told of, and the service that tells it."""

    def __init__(self, on_stage: Stage) -> None:
        self.stage = on_stage
        self.store = on_stage.app.store
        self.service = self.new_service()

    def new_service(self) -> WebhookService:
        return WebhookService.for_settings(self.store, self.stage.app.settings)

    async def end_a_job(self, **options: Any) -> str:
        handle = await self.stage.app.with_options(**options).enqueue("work")
        await self.stage.drain()
        return handle.id

    async def deliver(self) -> int:
        """Sends what is due, waits for the answers, and writes them down."""
        sent = await self.service.step()
        if self.service._on_their_way:
            await asyncio.wait(set(self.service._on_their_way))
        await self.service._write_results()
        return sent

    def standing(self) -> list[tuple[Any, ...]]:
        return rows(self.store, "SELECT status, attempts, last_status_code FROM deliveries ORDER BY id")


@contextlib.asynccontextmanager
async def post(url: str, folder: Path, clock: Any = None) -> AsyncIterator[Post]:
    app = App()

    @app.job(retries=0)
    async def work() -> str:
        return "done"

    async with stage(app, folder, clock or ManualClock(), store=url) as on_stage:
        made = Post(on_stage)
        try:
            yield made
        finally:
            await made.service.stop()


@pytest.mark.rule("DEC-009", "WEB-01", "WEB-02")
async def test_a_message_arrives_and_its_signature_verifies(store_url: str, tmp_path: Path) -> None:
    async with serving(OK) as receiver, post(store_url, tmp_path, SystemClock()) as office:
        webhook = office.store.write_sync(create_webhook, receiver.url("/hook"))
        job_id = await office.end_a_job()
        assert await office.deliver() == 1
        head, body = receiver.requests[0].split(b"\r\n\r\n", 1)
        headers = {
            name.strip().lower(): content.strip()
            for name, _, content in (line.partition(":") for line in head.decode().split("\r\n")[1:])
        }
        Verifier(webhook.secret).verify(body, headers)
        message = json.loads(body)
        assert message["type"] == "job.run.completed"
        assert (message["data"]["job"]["id"], message["data"]["run"]["result"]) == (job_id, "done")
        assert office.standing() == [("DELIVERED", 1, 200)]
        assert await office.deliver() == 0


@pytest.mark.rule("DEC-009", "WEB-03")
@pytest.mark.parametrize("status", ["500 Oh", "302 Found", "404 Not Found"])
async def test_a_failure_is_tried_three_times_more_and_then_visible(
    store_url: str, tmp_path: Path, status: str
) -> None:
    clock = ManualClock()
    async with serving(http(b"", None, status, "Location: /elsewhere")) as receiver:
        async with post(store_url, tmp_path, clock) as office:
            await office.end_a_job(webhook_url=receiver.url())
            for wait_s in (0, 1.3, 2.5, 5):
                clock.advance(wait_s)
                assert await office.deliver() == 1
                assert await office.deliver() == 0
            clock.advance(3600)
            assert await office.deliver() == 0
            assert office.standing() == [("FAILED", 4, int(status.split()[0]))]
        assert len(receiver.requests) == 4
        ids = {line for one in receiver.requests for line in one.split(b"\r\n") if line.startswith(b"webhook-id")}
        assert len(ids) == 1
        assert all(one.startswith(b"POST / ") for one in receiver.requests)


@pytest.mark.rule("WEB-03")
async def test_gone_ends_it_at_once_and_disables_the_subscription(store_url: str, tmp_path: Path) -> None:
    async with serving(http(b"", None, "410 Gone")) as receiver, post(store_url, tmp_path) as office:
        office.store.write_sync(create_webhook, receiver.url())
        await office.end_a_job()
        await office.deliver()
        assert office.standing() == [("FAILED", 1, 410)]
        await office.end_a_job()
        assert await office.deliver() == 0
        assert value(office.store, "SELECT count(*) FROM webhooks WHERE disabled_reason IS NOT NULL") == 1


@pytest.mark.rule("WEB-03")
@pytest.mark.parametrize(("asked", "waits_s"), [("120", 120), ("999999999", 3600)])
async def test_retry_after_is_honoured_up_to_an_hour(
    store_url: str, tmp_path: Path, asked: str, waits_s: float
) -> None:
    clock = ManualClock()
    answer = http(b"", None, "429 Slow", f"Retry-After: {asked}")
    async with serving(answer) as receiver, post(store_url, tmp_path, clock) as office:
        await office.end_a_job(webhook_url=receiver.url())
        await office.deliver()
        clock.advance(waits_s - 1)
        assert await office.deliver() == 0
        clock.advance(1.1)
        assert await office.deliver() == 1


@pytest.mark.rule("WEB-03")
async def test_five_failures_open_the_breaker_and_waiting_costs_no_attempt(store_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(http(b"", None, "500 Oh")) as receiver, post(store_url, tmp_path, clock) as office:
        for _ in range(8):
            await office.end_a_job(webhook_url=receiver.url())
        for _ in range(4):
            await office.deliver()
        tried = len(receiver.requests)
        assert 5 <= tried < 8 + 4
        clock.advance(10)
        await office.deliver()
        assert len(receiver.requests) == tried
        assert sum(row[1] for row in office.standing()) == tried
        clock.advance(25)
        await office.deliver()
        # One probe, no more.
        assert len(receiver.requests) == tried + 1


@pytest.mark.rule("WEB-03")
async def test_a_failing_url_holds_up_no_other_of_its_host_and_its_deliveries_say_why(
    store_url: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with serving(http(b"", None, "500 Oh")) as receiver, post(store_url, tmp_path, clock) as office:
        for _ in range(20):
            await office.end_a_job(webhook_url=receiver.url("/bad"))
        for _ in range(4):
            await office.deliver()
        clock.advance(10)
        await office.deliver()
        waiting = office.store.read_sync(list_deliveries, status=DeliveryStatus.PENDING).items
        views = [delivery_json(delivery) for delivery in waiting]
        assert any(delivery["waits_because"].startswith(LEFT_ALONE) for delivery in views)
        assert all(delivery["waits_until"] == delivery["next_attempt_at"] for delivery in views)
        tried = len(receiver.requests)
        await office.end_a_job(webhook_url=receiver.url("/good"))
        assert await office.deliver() == 1
        assert len(receiver.requests) == tried + 1


@pytest.mark.rule("DEC-009", "WEB-02")
async def test_a_crash_between_sending_and_recording_sends_the_same_id_again(store_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(OK) as receiver, post(store_url, tmp_path, clock) as office:
        await office.end_a_job(webhook_url=receiver.url())
        assert await office.service.step() == 1
        await until(lambda: office.service._results)
        # The process is gone before it wrote the answer down; nobody else takes the message at once.
        office.service._results.clear()
        office.service = office.new_service()
        assert await office.deliver() == 0
        clock.advance(61)
        assert await office.deliver() == 1
        assert office.standing() == [("DELIVERED", 1, 200)]
        ids = [
            line for one in receiver.requests for line in one.lower().split(b"\r\n") if line.startswith(b"webhook-id")
        ]
        assert len(ids) == 2
        assert len(set(ids)) == 1


@pytest.mark.rule("WEB-03")
async def test_two_hundred_receivers_that_hang_do_not_slow_a_good_one(tmp_path: Path) -> None:
    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with contextlib.AsyncExitStack() as stack:
        hanging = [await stack.enter_async_context(serving(hang)) for _ in range(200)]
        good = await stack.enter_async_context(serving(OK))
        office = await stack.enter_async_context(post(f"sqlite:///{tmp_path / 'x.db'}", tmp_path))
        app = office.stage.app
        calls = [app.with_options(webhook_url=receiver.url()).call("work") for receiver in hanging]
        await app.enqueue_many(calls)
        await office.stage.drain()
        await app.with_options(webhook_url=good.url()).enqueue("work")
        await office.stage.drain()
        assert await office.service.step() == 201
        await until(lambda: good.requests)
        await until(lambda: office.service._results)
        await office.service._write_results()
        assert value(office.store, "SELECT count(*) FROM deliveries WHERE status = 'DELIVERED'") == 1
        assert len(office.service._on_their_way) == 200
        for task in list(office.service._on_their_way):
            task.cancel()


@pytest.mark.rule("DEC-009")
async def test_an_attempt_is_counted_once_however_the_engine_fails_to_note_it(store_url: str, tmp_path: Path) -> None:
    async with serving(OK) as receiver, post(store_url, tmp_path) as office:
        await office.end_a_job(webhook_url=receiver.url())
        assert await office.service.step() == 1
        fail_writes(office.store, "deliveries")
        if office.service._on_their_way:
            await asyncio.wait(set(office.service._on_their_way))
        for _ in range(2):
            with pytest.raises(Exception, match="the engine fails"):
                await office.service._write_results()
        stop_failing_writes(office.store, "deliveries")
        await office.service._write_results()
        assert office.standing() == [("DELIVERED", 1, 200)]
        assert len(receiver.requests) == 1
