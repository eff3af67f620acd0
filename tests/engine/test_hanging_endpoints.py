"""Endpoints that hang, beside one that answers, in an App with the settings of a new installation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from holdbeat import App
from holdbeat.store.schedules.schedules import create_schedule
from tests.engine.acting import until, value
from tests.engine.raw_server import http, serving

pytestmark = [pytest.mark.asyncio, pytest.mark.rule("LIM-14")]

HUNG = 100
TIMEOUT_S = 120
"""Of calls that hang: longer than a test takes."""
ANSWER = http(b"fine")


@dataclass(slots=True)
class Target:
    """A server that answers /fine and never answers anything else."""

    url: Callable[[str], str] = str
    requests: list[bytes] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return sum(request.startswith(b"GET /fine ") for request in self.requests)

    @property
    def hung(self) -> int:
        return len(self.requests) - self.answered


@contextlib.asynccontextmanager
async def target(host: str = "127.0.0.1") -> AsyncIterator[Target]:
    made = Target()

    async def respond(writer: asyncio.StreamWriter) -> None:
        if made.requests[-1].startswith(b"GET /fine "):
            writer.write(ANSWER)
        else:
            await asyncio.Event().wait()

    async with serving(respond, host=host) as server:
        made.url, made.requests = server.url, server.requests
        yield made


def make_app(url: str) -> App:
    return App(url, shutdown_grace_s=0)


async def hang_beside(app: App, hanging: list[Target], fine: Target) -> None:
    """A hundred calls hang, and the endpoint that answers is called again and again."""
    for number in range(HUNG):
        url = hanging[number % len(hanging)].url(f"/hang/{number}")
        call = {"name": f"hangs {number}", "url": url, "interval_s": 1, "timeout_s": TIMEOUT_S}
        await app.store.write(create_schedule, {**call, "max_execution_s": TIMEOUT_S}, endpoint=True)
    healthy = {"name": "fine", "url": fine.url("/fine"), "interval_s": 1}
    await app.store.write(create_schedule, healthy, endpoint=True)
    await until(lambda: sum(one.hung for one in hanging) == HUNG)
    seen = fine.answered
    await until(lambda: fine.answered >= seen + 3)
    assert value(app.store, "SELECT count(*) FROM jobs WHERE status = 'FAILED'") == 0, "every call still hangs"


async def test_a_hundred_endpoints_of_a_hundred_hosts_that_hang_delay_no_other(store_url: str) -> None:
    app = make_app(store_url)
    async with contextlib.AsyncExitStack() as stack:
        hanging = [await stack.enter_async_context(target(f"127.0.1.{number + 1}")) for number in range(HUNG)]
        fine = await stack.enter_async_context(target())
        await stack.enter_async_context(app.running())
        await hang_beside(app, hanging, fine)
    app.close()


@pytest.mark.parametrize("is_same", [False, True], ids=["another server", "the same server"])
async def test_a_hundred_endpoints_of_one_host_that_hang_delay_no_other(store_url: str, is_same: bool) -> None:
    app = make_app(store_url)
    async with target() as hanging, target() as fine, app.running():
        await hang_beside(app, [hanging], hanging if is_same else fine)
    app.close()
