"""The client for programs without an event loop: the methods of AsyncClient, each run to its end by the caller.

A coroutine of AsyncClient waits for nothing but its HTTP client and its pauses. Here both block, so each coroutine ends
the first time that it is run, and needs no event loop.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx2

from holdbeat.client.async_client import AsyncClient
from holdbeat.client.job_methods import JobMethods
from holdbeat.client.method import Caller
from holdbeat.client.schedule_methods import EndpointMethods, ScheduleMethods
from holdbeat.client.system_methods import SystemMethods
from holdbeat.schemas.schedules import Schedule

P = ParamSpec("P")
T = TypeVar("T")


# --- coroutines that do not wait ----------------------------------------------------------------------------


def _ended(work: Awaitable[T]) -> T:
    """The result of a coroutine that never waits for an event loop."""
    try:
        work.__await__().send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine of the blocking client waits for an event loop")


def _yielded(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """What an async generator yields that never waits for an event loop."""
    try:
        while True:
            try:
                item = _ended(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        _ended(items.aclose())


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    """A coroutine function of AsyncClient as a plain method of Client."""

    def blocking(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _ended(method(self._awaited, *args, **kwargs))

    return _shown_as(method, blocking)


def _stream(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:
    """An async generator function of AsyncClient as a plain method of Client."""

    def stream(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return _yielded(method(self._awaited, *args, **kwargs))

    return _shown_as(method, stream)


def _shown_as(method: Any, function: Any) -> Any:
    """The function with the name, the docstring and the parameters of a method of AsyncClient."""
    functools.update_wrapper(function, method)
    del function.__wrapped__  # what unwraps functions, such as the docs, would take it for a coroutine function
    signature = inspect.signature(method)
    function.__signature__ = signature.replace(return_annotation=signature.return_annotation.removeprefix("Async"))
    return function


class _Response:
    """A response whose body is read as that of a response of httpx2.AsyncClient."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.status_code = response.status_code

    async def aread(self) -> bytes:
        return self._response.read()

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        for part in self._response.iter_raw():
            yield part


class _BlockingHttp:
    """httpx2.Client with the methods of httpx2.AsyncClient."""

    def __init__(self, **options: Any) -> None:
        self._http = httpx2.Client(**options)

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self._http.request(method, path, **options)

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncIterator[_Response]:
        with self._http.stream(method, path, **options) as response:
            yield _Response(response)

    async def aclose(self) -> None:
        self._http.close()


class _AwaitedClient(AsyncClient):
    """The methods of AsyncClient over what blocks."""

    def _connected(self, **options: Any) -> Any:
        return _BlockingHttp(**options)

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop waits here


# --- the client ---------------------------------------------------------------------------------------------


class Schedules(ScheduleMethods[Schedule], Caller):
    """`client.schedules`."""


class Endpoints(EndpointMethods, Caller):
    """`client.endpoints`."""


class Client(JobMethods, SystemMethods, Caller):
    """The API of a server as methods. `url` and `key` default to HOLDBEAT_SERVER and HOLDBEAT_KEY.

    Answers are dictionaries as the API sends them. A refusal raises ProblemError, a server that cannot be reached
    Unavailable.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        retries: int = 3,
        traceparent: str | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`traceparent` is sent by a caller that is in no span of OpenTelemetry."""
        options: dict[str, Any] = {"timeout_s": timeout_s, "retries": retries, "transport": transport}
        self._awaited = _AwaitedClient(url, key=key, traceparent=traceparent, **options)
        self.url = self._awaited.url
        self._key = self._awaited._key

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def schedules(self) -> Schedules:
        """The methods for schedules."""
        return Schedules(self)

    @property
    def endpoints(self) -> Endpoints:
        """The methods for endpoints: HTTP calls with a schedule."""
        return Endpoints(self)

    close = _blocking(AsyncClient.close)
    call = _call = _blocking(AsyncClient.call)
    fetch = _blocking(AsyncClient.fetch)
    messages = _stream(AsyncClient.messages)
    one_stream = _stream(AsyncClient.one_stream)
    wait_job = _blocking(AsyncClient.wait_job)
    follow_logs = _stream(AsyncClient.follow_logs)
    follow_chunks = _stream(AsyncClient.follow_chunks)
    stream_direct = _stream(AsyncClient.stream_direct)
    follow_reservation_chunks = _stream(AsyncClient.follow_reservation_chunks)
    events = _stream(AsyncClient.events)
    metrics = _blocking(AsyncClient.metrics)
