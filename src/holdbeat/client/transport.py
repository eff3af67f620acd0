"""Requests to a server: sent again where that is safe, refused with the server's own words.

Guards against doing a thing twice: a request whose answer was lost is sent again only if it changes nothing, or if the
server can recognise it by its idempotency key. One that never reached the server, or that the server put off with
Retry-After, may always be sent again; what the server refused because nobody is there to do it is not.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import httpx2

from holdbeat.client.http_forms import (
    headers_of,
    query_of,
    retry_after,
    server_url,
    trace_headers,
    trust_of,
    unreachable,
)
from holdbeat.client.messages import COMMENT, Message, MessageReader
from holdbeat.client.method import AsyncCaller
from holdbeat.client.problem import ProblemError
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import Unavailable

SILENCE_S = 45.0
"""A stream that is silent for this long is dead: the server shows itself every 15 s."""
LONGEST_PAUSE_S = 30.0
NOT_FOR_WAITING = frozenset({"no_worker", "interrupted"})
"""Codes of a 503 that waiting does not change."""


class AsyncTransport(AsyncCaller):
    """One server, one key, and the connections to it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        retries: int = 3,
        traceparent: str | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`traceparent` is sent by a caller that is in no span of OpenTelemetry."""
        self.url = server_url(url)
        self._key = key = key or os.environ.get("HOLDBEAT_KEY")
        self._retries = retries
        self._timeout_s = timeout_s
        self._traceparent = traceparent
        self._clock = SystemClock()
        try:
            self._http = self._connected(
                base_url=self.url,
                headers=headers_of(key),
                timeout=timeout_s,
                transport=transport,
                trust_env=False,
                verify=trust_of(self.url),
            )
        except httpx2.InvalidURL as error:
            raise Unavailable(f"{self.url!r} is no address of a server: {error}.", code="bad_url") from error

    def _connected(self, **options: Any) -> Any:
        return httpx2.AsyncClient(**options)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Closes the connections to the server."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool | None = None,
        timeout_s: float | None = -1.0,
    ) -> Any:
        """One request and its answer as JSON. A refusal is a ProblemError, a server out of reach Unavailable."""
        content = await self.fetch(
            method,
            path,
            query=query,
            body=body,
            headers=headers,
            is_repeatable=method in ("GET", "DELETE") if is_repeatable is None else is_repeatable,
            timeout_s=timeout_s,
        )
        return json.loads(content) if content else None

    _call = call
    """For declared methods: a part of the client has its own, under its path."""

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = True,
        timeout_s: float | None = -1.0,
    ) -> bytes:
        """The same with the answer as bytes."""
        all_headers = {**trace_headers(self._traceparent), **(headers or {})}
        content = None
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            all_headers["Content-Type"] = "application/json"
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self._http.request(
                    method,
                    path,
                    params=query_of(query or {}),
                    content=content,
                    headers=all_headers,
                    timeout=self._timeout_s if timeout_s == -1.0 else timeout_s,
                )
            except httpx2.TransportError as error:
                never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
                if attempt > self._retries or not (is_repeatable or never_sent):
                    raise unreachable(self.url, error) from error
                await self._pause(attempt)
                continue
            if response.status_code < 400:
                return response.content
            retry_after_s = retry_after(response.headers)
            problem = ProblemError.read(response.status_code, response.content)
            may_retry = problem.status == 503 and retry_after_s is not None and problem.code not in NOT_FOR_WAITING
            if not may_retry or attempt > self._retries:
                raise problem
            await self._pause(attempt, retry_after_s or 0.0)

    async def messages(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        last_id: str | None = None,
        until: float | None = None,
    ) -> AsyncGenerator[Message, None]:
        """A stream of messages, comments included, taken up where it was cut off (API-04).

        `until` is an instant of the monotonic clock, after which it is a TimeoutError.
        """
        failures = 0
        while True:
            headers = {"Accept": "text/event-stream"}
            if last_id is not None:
                headers["Last-Event-ID"] = last_id
            left_s = SILENCE_S if until is None else max(0.01, min(SILENCE_S, until - self._clock.monotonic()))
            timeout = httpx2.Timeout(self._timeout_s, read=left_s)
            try:
                async with self._http.stream(
                    "GET", path, params=query_of(query or {}), headers=headers, timeout=timeout
                ) as response:
                    if response.status_code >= 400:
                        raise ProblemError.read(response.status_code, await response.aread())
                    reader = MessageReader()
                    async for part in response.aiter_raw():
                        failures = 0
                        for message in reader.feed(part):
                            if message.id is not None:
                                last_id = message.id
                            yield message
                        self._check(until)
            except httpx2.TransportError as error:
                self._check(until)
                if failures >= self._retries:
                    raise unreachable(self.url, error) from error
            except ProblemError as error:
                if error.status != 503 or failures >= self._retries:
                    raise
            self._check(until)
            failures += 1
            await self._pause(failures)

    async def _follow(self, path: str, event: str, after: int) -> AsyncGenerator[Any, None]:
        """The data of the messages of this event, until the stream says that it has ended."""
        async with aclosing(self.messages(path, query={"follow": True, "after": after})) as messages:
            async for message in messages:
                if message.event == "end":
                    return
                if message.event == event:
                    yield message.data

    async def one_stream(self, path: str, body: Any) -> AsyncGenerator[Message, None]:
        """The messages of the answer to one request, which is not sent again; one that is a problem is raised."""
        headers = {
            **trace_headers(self._traceparent),
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
        }
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        timeout = httpx2.Timeout(self._timeout_s, read=SILENCE_S)
        try:
            async with self._http.stream("POST", path, content=content, headers=headers, timeout=timeout) as response:
                if response.status_code >= 400:
                    raise ProblemError.read(response.status_code, await response.aread())
                reader = MessageReader()
                async for part in response.aiter_raw():
                    for message in reader.feed(part):
                        if message.event == "problem":
                            raise ProblemError.read(message.data["status"], json.dumps(message.data).encode())
                        if message.event != COMMENT:
                            yield message
        except httpx2.TransportError as error:
            raise unreachable(self.url, error) from error

    def _deadline(self, timeout_s: float | None) -> float | None:
        """The instant of the monotonic clock at which a wait of so many seconds is over."""
        return None if timeout_s is None else self._clock.monotonic() + timeout_s

    def _check(self, until: float | None) -> None:
        if until is not None and self._clock.monotonic() >= until:
            raise TimeoutError("it did not happen in time")

    async def _pause(self, attempt: int, at_least_s: float = 0.0) -> None:
        pause_s = random.uniform(0.5, 1.0) * 0.2 * 2 ** (attempt - 1)
        await self._sleep(min(max(pause_s, at_least_s), LONGEST_PAUSE_S))
