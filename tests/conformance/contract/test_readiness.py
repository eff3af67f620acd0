"""Readiness is proved by doing: a write, a trial claim, a look at the trigger and the dispatcher."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.observe.readiness import Readiness
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.trial_claim import write_and_claim
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import OpenStore, claim_all, count, enqueue_one, look, rows
from tests.conformance.schedule_acts import make

pytestmark = pytest.mark.rule("API-05")


def probe(
    store: PersistenceAdapter,
    *,
    behind: Callable[[], float | None] = lambda: None,
    stopping: bool = False,
    within_s: float = 10,
) -> dict[str, bool]:
    """{check: ok}, with `ready` among them."""
    readiness = Readiness(store, dispatcher_beat=behind, is_stopping=lambda: stopping, within_s=within_s)
    answer = asyncio.run(readiness.probe())
    assert all(check["detail"].endswith(".") for check in answer["checks"].values())
    return {"ready": answer["ready"], **{name: check["ok"] for name, check in answer["checks"].items()}}


def test_a_server_that_can_work_is_ready(store: PersistenceAdapter) -> None:
    result = probe(store, behind=lambda: 0.2)
    assert result == dict.fromkeys(("ready", "server", "store", "trigger", "dispatcher"), True)


def test_a_closed_store_is_not_ready_and_says_nothing_about_itself(open_store: OpenStore) -> None:
    store = open_store()
    store.close()
    answer = asyncio.run(Readiness(store).probe())
    assert not answer["ready"]
    assert answer["checks"]["store"]["detail"] == "A write and a trial claim failed: store_closed."


def test_a_store_that_does_not_answer_in_time_is_not_ready(store: PersistenceAdapter) -> None:
    inside, going_on = threading.Event(), threading.Event()

    def block(tx: Transaction) -> None:
        tx.lock_pools(["limit:default"])
        tx.rows("SELECT 1")
        inside.set()
        going_on.wait(30)

    async def meanwhile() -> dict[str, bool]:
        blocked = asyncio.create_task(store.write(block))
        assert await asyncio.to_thread(inside.wait, 10)
        readiness = Readiness(store, within_s=0.3)
        answer = await readiness.probe()
        going_on.set()
        await blocked
        return {"ready": answer["ready"], "store": answer["checks"]["store"]["ok"]}

    assert asyncio.run(meanwhile()) == {"ready": False, "store": False}


def test_a_late_trigger_a_stuck_dispatcher_and_a_shutdown_are_not_ready(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    assert not probe(store, behind=lambda: 11.0)["dispatcher"]
    assert not probe(store, stopping=True)["server"]
    make(store, interval_s=60)
    clock.advance(60)
    assert probe(store)["ready"]
    clock.advance(61)
    result = probe(store)
    assert not result["trigger"] and not result["ready"]


def test_probing_takes_no_job_and_grows_nothing(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    store.write_sync(write_and_claim)
    before = (count(store, "meta"), count(store, "events"), count(store, "leases"), count(store, "workers"))
    for _ in range(5):
        clock.advance(1)
        assert store.write_sync(write_and_claim) == 0
    assert (count(store, "meta"), count(store, "events"), count(store, "leases"), count(store, "workers")) == before
    assert look(store, job.id).status == "QUEUED"
    assert len(rows(store, "SELECT value FROM meta WHERE key = 'readiness'")) == 1
    assert len(claim_all(store)) == 1


def test_many_who_ask_at_once_share_one_probe(store: PersistenceAdapter) -> None:
    asked = 0

    def behind() -> float:
        nonlocal asked
        asked += 1
        return 0.0

    async def ask() -> None:
        readiness = Readiness(store, dispatcher_beat=behind)
        answers = await asyncio.gather(*(readiness.probe() for _ in range(20)))
        assert all(answer["ready"] for answer in answers)

    asyncio.run(ask())
    assert asked == 1
