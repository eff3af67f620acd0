"""WebhookService: sends the deliveries of the outbox at least once, and lets no receiver slow another.

Guards DEC-009 and WEB-03. Deliveries are locked for a while. Many are sent at once, but few to one host. Their outcomes
are stored in batches. A crash after sending means that the same message is sent again, under the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections import Counter
from typing import ClassVar, Self

from holdbeat.domain.errors import Invalid
from holdbeat.domain.webhook import (
    ATTEMPT_DEADLINE_S,
    CircuitBreaker,
    DeliveryStatus,
    encode_payload,
    judge_attempt,
    signed_headers,
)
from holdbeat.engine.service import Service
from holdbeat.engine.watched_outbound import WatchedOutbound
from holdbeat.handlers.outbound import Outbound, OutboundFailure
from holdbeat.observe.recorder import SILENT, Recorder
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.topics import Topic
from holdbeat.store.webhooks.deliveries import (
    PER_HOST,
    DeliveryResult,
    TakenDelivery,
    finish_deliveries,
    take_deliveries,
)

log = logging.getLogger("holdbeat.engine")

POLL_S = 0.5
AT_ONCE = 256
LOCK_S = 60.0
"""Longer than an attempt can take, so that nobody else takes a delivery that is on its way."""
ANSWER_MAX = 16 * 1024
_RECORDED_AS = {
    DeliveryStatus.DELIVERED: "delivered",
    DeliveryStatus.PENDING: "retry",
    DeliveryStatus.FAILED: "failed",
}


class WebhookService(Service):
    name: ClassVar[str] = "webhooks"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.DELIVERIES})

    def __init__(self, store: PersistenceAdapter, outbound: Outbound, *, recorder: Recorder = SILENT) -> None:
        super().__init__(store, POLL_S)
        self._recorder = recorder
        self._outbound = outbound
        self._me = f"webhooks-{secrets.token_hex(4)}"
        self._breaker = CircuitBreaker()
        self._on_their_way: dict[asyncio.Task[None], str] = {}
        self._results: list[DeliveryResult] = []
        self._random = random.Random()

    @classmethod
    def for_settings(cls, store: PersistenceAdapter, settings: Settings, *, recorder: Recorder = SILENT) -> Self:
        return cls(store, WatchedOutbound(settings, lambda: store), recorder=recorder)

    async def step(self) -> int:
        """Writes down what has come back and sends what is due. Returns how many were sent off."""
        await self._write_results()
        places = AT_ONCE - len(self._on_their_way)
        if places <= 0 or self._stopping:
            return 0
        busy = Counter(self._on_their_way.values())
        full = {host for host, count in busy.items() if count >= PER_HOST}
        deliveries = await self.store.write(take_deliveries, self._me, places, LOCK_S, except_hosts=full)
        now = self.store.clock.now()
        sent = 0
        for entry in deliveries:
            until = self._breaker.wait_until(entry.delivery.url, now=now)
            if until is not None:
                self._results.append(DeliveryResult(entry.delivery.id, self._me, postponed_until=until))
                self._recorder.webhook_attempted("postponed")
                continue
            task = asyncio.create_task(self._attempt(entry))
            self._on_their_way[task] = entry.host
            task.add_done_callback(self._came_back)
            sent += 1
        await self._write_results()
        return sent

    async def stop(self) -> None:
        """Waits a moment for the deliveries that are being sent; another process sends the rest again."""
        await super().stop()
        if self._on_their_way:
            await asyncio.wait(set(self._on_their_way), timeout=2.0)
        unfinished = list(self._on_their_way)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._write_results()
        await self._outbound.aclose()

    def _came_back(self, task: asyncio.Task[None]) -> None:
        self._on_their_way.pop(task, None)
        self.wake()

    async def _write_results(self) -> None:
        if not self._results:
            return
        results, self._results = self._results, []
        try:
            await self.store.write(finish_deliveries, results)
        except Exception as error:
            # An attempt that was made is counted, or its message would be sent again as if it were the first time.
            if not isinstance(error, self.store.faults_of_data):
                self._results = results + self._results
            raise

    async def _attempt(self, entry: TakenDelivery) -> None:
        delivery = entry.delivery
        body = encode_payload(delivery.payload)
        headers = {
            "content-type": "application/json",
            "user-agent": "holdbeat",
            **signed_headers(entry.secrets, message_id=delivery.id, now=self.store.clock.now(), body=body),
        }
        status_code: int | None = None
        error: str | None = None
        retry_after: str | None = None
        is_forbidden = False
        try:
            answer = await self._outbound.call(
                "POST",
                delivery.url,
                headers=headers,
                content=body,
                deadline_s=ATTEMPT_DEADLINE_S,
                max_body_bytes=ANSWER_MAX,
            )
            status_code = answer.status_code
            retry_after = next((v for k, v in answer.headers.items() if k.lower() == "retry-after"), None)
        except OutboundFailure as failure:
            error = str(failure)
            is_forbidden = failure.kind == "refused_target"
        except Invalid as refusal:
            error, is_forbidden = refusal.detail, True
        except Exception as broken:
            error = f"{type(broken).__name__}: {broken}"
        now = self.store.clock.now()
        verdict = judge_attempt(
            attempts=delivery.attempts + 1,
            now=now,
            jitter=self._random.uniform(0.8, 1.2),
            status_code=status_code,
            error=error,
            retry_after=retry_after,
            is_forbidden=is_forbidden,
        )
        self._breaker.record(delivery.url, failed=verdict.blames_receiver, now=now)
        self._recorder.webhook_attempted(_RECORDED_AS[verdict.status])
        if verdict.status is DeliveryStatus.FAILED:
            log.warning("webhook delivery %s to %s failed for good: %s", delivery.id, entry.host, verdict.error)
        self._results.append(DeliveryResult(delivery.id, self._me, verdict, status_code))
