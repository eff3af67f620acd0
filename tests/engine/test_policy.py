"""A program's own Policy: it declares limits, and has a say in what may start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from holdbeat import App, Policy, Work
from holdbeat.observe.explain import explain_job
from holdbeat.store.limits.in_force import limits_in_force

pytestmark = [pytest.mark.asyncio, pytest.mark.rule("LIM-03")]


class OneCustomerAtATime(Policy):
    """The jobs of one customer may run beside each other, those of two may not."""

    def limits(self) -> Mapping[str, Mapping[str, Any]]:
        return {"renders": {"type": "render", "slots": 2}}

    def may_start(self, job: Work, running: Sequence[Work], now: datetime) -> bool:
        return all(other.partition == job.partition for other in running if other.type == job.type)


def make_app(url: str, policy: Policy) -> tuple[App, list[tuple[str, ...]]]:
    app = App(url, slots=4, heartbeat_s=1, lease_s=10, concurrency="unlimited", policy=policy)
    running: list[str] = []
    seen: list[tuple[str, ...]] = []

    @app.job(partition="customer", retries=0)
    async def render(customer: str) -> None:
        running.append(customer)
        seen.append(tuple(running))
        await asyncio.sleep(0.05)
        running.remove(customer)

    return app, seen


async def test_a_policy_declares_limits_and_decides_what_may_start_beside_what(store_url: str) -> None:
    app, seen = make_app(store_url, OneCustomerAtATime())
    handles = [await app.enqueue("render", customer=customer) for customer in "xyxyxy"]
    async with app.running():
        assert {limit.name: limit.slots for limit in await app.store.read(limits_in_force)} == {"renders": 2}
        assert [(await handle.wait("20s")).status for handle in handles] == ["COMPLETED"] * 6
    app.close()
    assert all(len(set(together)) == 1 for together in seen), seen
    assert max(map(len, seen)) == 2


async def test_explain_names_the_policy_and_one_that_fails_lets_nothing_start(store_url: str) -> None:
    asked = threading.Event()

    class Broken(Policy):
        def may_start(self, job: Work, running: Sequence[Work], now: datetime) -> bool:
            asked.set()
            raise RuntimeError("a mistake")

    app, seen = make_app(store_url, Broken())
    async with app.running():
        job = await app.enqueue("render", customer="x")
        assert await asyncio.to_thread(asked.wait, 20)
        reasons = (await app.store.read(explain_job, job.id))["reasons"]
    app.close()
    assert not seen
    assert (reasons[0]["code"], reasons[0]["policy"]) == ("policy", "Broken")
