"""The Dispatcher keeps slots filled, never overfills them, and lets go of no result."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.clock import ManualClock, OffsetClock
from holdbeat.domain.job import JobStatus, NewJob
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.handlers.context import Context
from holdbeat.handlers.stop import StopSignal
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.recovery.recover_leases import recover_lease
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.transaction import Transaction
from holdbeat.testing import stage
from tests.conformance.fault_proxy import FaultProxy
from tests.engine.acting import Outage, event_names, fail_writes, job, rows, stop_failing_writes, until, value

pytestmark = pytest.mark.asyncio

ROOMY: dict[str, Any] = {"slots": 3, "concurrency": "unlimited"}


def gated(gate: asyncio.Event, **options: Any) -> App:
    """An App whose one job type waits at the gate."""
    app = App(**ROOMY)
    app.at_once = app.most = 0  # type: ignore[attr-defined]

    @app.job(retries=0, **options)
    async def wait(number: int = 0) -> int:
        app.at_once += 1  # type: ignore[attr-defined]
        app.most = max(app.most, app.at_once)  # type: ignore[attr-defined]
        await gate.wait()
        app.at_once -= 1  # type: ignore[attr-defined]
        return number

    return app


@pytest.mark.rule("INV-003", "CAP-01")
async def test_a_worker_never_runs_more_than_it_has_slots(store_url: str, tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = gated(gate)
    async with stage(app, tmp_path, store=store_url) as on_stage:
        await app.enqueue_many([app.call("wait", number=number) for number in range(10)])
        dispatcher = on_stage.supervisor.dispatcher
        assert [len(await dispatcher.step()) for _ in range(3)] == [3, 0, 0]
        assert value(app.store, "SELECT count(*) FROM leases") == 3
        await until(lambda: app.at_once == 3)  # type: ignore[attr-defined]
        gate.set()
        await on_stage.drain()
        assert value(app.store, "SELECT count(*) FROM jobs WHERE status = 'COMPLETED'") == 10
        assert app.most == 3  # type: ignore[attr-defined]


@pytest.mark.rule("RET-03", "INV-003")
async def test_what_ended_is_settled_and_its_slot_filled_again_in_one_commit(store_url: str, tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = gated(gate)
    gate.set()
    async with stage(app, tmp_path, store=store_url, slots=1) as on_stage:
        commits: list[list[str]] = []
        app.store.on_commit(lambda events: commits.append([row[0] for row in events]))
        await app.enqueue_many([app.call("wait"), app.call("wait")])
        dispatcher = on_stage.supervisor.dispatcher
        await dispatcher.step()
        await until(lambda: not dispatcher.running)
        await dispatcher.step()
        # Witnesses hear of a commit beside those who waited for it.
        await until(lambda: any({"run.ended", "job.claimed"} <= set(names) for names in commits))
        await on_stage.drain()


@pytest.mark.rule("DEC-008", "LEASE-07")
async def test_a_result_is_offered_again_until_the_store_takes_it(
    store_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    app = gated(gate)
    app.settings = app.settings.with_changes(store=store_url, heartbeat_s=5)
    async with app.running():
        outage = Outage(app.store, request, monkeypatch)
        first = await app.enqueue("wait", number=7)
        supervisor = app._supervisor
        assert supervisor is not None
        await until(lambda: app.at_once == 1)  # type: ignore[attr-defined]
        with outage.during():
            gate.set()
            # Offered, refused, and kept.
            await until(lambda: supervisor.dispatcher.backoff.is_paused)
            await until(lambda: len(supervisor.dispatcher.results))
            await until(lambda: "the store is not available (results that wait: 1)" in caplog.text)
        done = await first.wait(30)
        assert (done.status, done.run and done.run.result) == (JobStatus.COMPLETED, 7)
        assert value(app.store, "SELECT count(*) FROM job_runs") == 1
        assert "lease.stale_result" not in event_names(app.store)
        # And it goes on.
        assert (await (await app.enqueue("wait", number=8)).wait(30)).status is JobStatus.COMPLETED
    app.close()


@pytest.mark.rule("LEASE-03")
async def test_a_late_result_is_kept_as_evidence_and_changes_nothing(
    store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    app = gated(gate)
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        late = await app.enqueue("wait", number=42)
        dispatcher = on_stage.supervisor.dispatcher
        (claim,) = await dispatcher.step()
        await until(lambda: bool(gate._waiters))  # the handler has begun; one whose lease is over would not
        clock.advance(361)
        terms = app.settings.lease_terms
        app.store.write_sync(recover_lease, claim.lease.id, ErrorKind.LOST, claim.lease.heartbeat_at, terms)
        before = rows(app.store, "SELECT * FROM job_runs")
        gate.set()
        await until(lambda: not dispatcher.running)
        await dispatcher.settle_all()
        assert f"the result of run {claim.lease.id} came too late and was refused" in caplog.text
        assert rows(app.store, "SELECT * FROM job_runs") == before
        ended = job(app.store, late.id)
        assert (ended.status, ended.run and ended.run.error_kind) == (JobStatus.FAILED, "lost")
        assert event_names(app.store, late.id)[-1] == "lease.stale_result"
        evidence = value(app.store, "SELECT data FROM events WHERE name = 'lease.stale_result'")
        assert "42" in str(evidence)
        # The slot is free again all the same.
        assert sorted(slot for slot in dispatcher.slots.free if slot >= 0) == [0, 1, 2]


async def test_free_slots_for_http_calls_alone_start_no_cycle_beside_another(postgres_url: str) -> None:
    app = App(store=postgres_url, slots=4, concurrency="unlimited")
    async with app.running():
        supervisor = app._supervisor
        assert supervisor is not None
        dispatcher = supervisor.dispatcher
        await until(lambda: not dispatcher._cycle_tasks)
        ordinary, http = dispatcher.slots.take_all()
        assert len(http) >= dispatcher._batch
        dispatcher._cycles_in_flight += 1  # one that holds all ordinary slots
        dispatcher.slots.give_back(http)
        dispatcher.wake()
        assert not dispatcher._cycle_tasks
        # As many ordinary slots are worth one.
        dispatcher.slots.give_back(ordinary)
        dispatcher.wake()
        assert dispatcher._cycle_tasks
        dispatcher._cycles_in_flight -= 1
    app.close()


class Unstorable:
    """A handler whose result no database takes."""

    async def run(self, ctx: Context, params: Any, stop: StopSignal) -> Outcome:
        return Outcome.completed(object() if params.get("bad") else "fine")


@pytest.mark.rule("EXE-02")
async def test_a_result_that_cannot_be_stored_fails_its_own_run_and_holds_up_no_other(store_url: str) -> None:
    app = App(store_url, **ROOMY)

    @app.job(retries=0)
    async def plain(bad: bool = False) -> str:
        return "fine"

    app._types["odd"] = dataclasses.replace(app._types["plain"], name="odd", handler=Unstorable())
    handles = await app.enqueue_many([app.call("odd", bad=number == 1) for number in range(3)])
    async with app.running():
        ended = [await handle.wait(30) for handle in handles]
    assert [one.status for one in ended] == [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.COMPLETED]
    assert ended[1].run is not None and ended[1].run.error is not None
    assert "could not be stored" in ended[1].run.error
    assert value(app.store, "SELECT count(*) FROM leases") == 0
    app.close()


class CutLine(FaultProxy):
    """After the cut nobody gets through until the line is mended."""

    is_cut = False

    def _cuts_here(self, data: bytes, is_request: bool) -> bool:
        cuts = super()._cuts_here(data, is_request)
        self.is_cut = self.is_cut or cuts
        return cuts

    def _pump(self, source: Any, target: Any, is_request: bool) -> None:
        if self.is_cut:
            source.close()
            target.close()
            return
        super()._pump(source, target, is_request)


@pytest.mark.rule("LEASE-01", "DEC-001", "CAP-01")
async def test_a_claim_whose_answer_was_lost_is_taken_up_by_the_worker_that_made_it(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit happened, its answer did not come, and the database stayed away until the worker gave up asking."""
    gate = asyncio.Event()
    gate.set()
    app = gated(gate)
    line = CutLine(postgres_url)
    real: Any = OffsetClock()
    async with stage(app, tmp_path, real, store=line.url, slots=1) as on_stage:
        handle = await app.enqueue("wait", number=5)
        monkeypatch.setattr(app.store, "reconnect_s", 0.1)
        dispatcher = on_stage.supervisor.dispatcher
        line.arm("after the commit is done")
        with pytest.raises(Exception, match="not known whether it was stored"):
            await dispatcher.step()
        assert not dispatcher.running
        line.is_cut = False
        await on_stage.step()
        done = job(app.store, handle.id)
        assert (done.status, done.run and done.run.result) == (JobStatus.COMPLETED, 5)
        assert value(app.store, "SELECT count(*) FROM job_runs") == 1
        # The slot was counted once: the next job finds it free.
        again = await app.enqueue("wait", number=6)
        await on_stage.drain()
        assert job(app.store, again.id).status is JobStatus.COMPLETED
    line.close()


def _claimed_unheard(tx: Transaction, worker_id: str) -> str:
    """A job and its claim, as if the claim's commit had come through after the worker had ceased to ask for it."""
    enqueue(tx, [NewJob("wait", params={"number": 5})])
    (claimed,) = claim(tx, Vacancy(worker_id, [0], (), ["wait"]))
    assert claimed.job is not None
    return claimed.job.id


@pytest.mark.rule("LEASE-01", "LEASE-02")
async def test_a_claim_that_was_committed_after_the_worker_had_looked_is_taken_up_by_the_second_beat(
    store_url: str,
) -> None:
    gate = asyncio.Event()
    gate.set()
    app = gated(gate)
    app.settings = app.settings.with_changes(store=store_url, lease_s=60, heartbeat_s=0.2, slots=1)
    async with app.running():
        assert app._supervisor is not None
        late = app.store.write_sync(_claimed_unheard, app._supervisor.worker.id)
        await until(lambda: job(app.store, late).finished_at)
        done = job(app.store, late)
        assert (done.status, done.run and done.run.result) == (JobStatus.COMPLETED, 5)
        assert value(app.store, "SELECT count(*) FROM job_runs") == 1
    assert value(app.store, "SELECT count(*) FROM leases") == 0
    app.close()


@pytest.mark.rule("LEASE-01", "INV-003")
async def test_a_slot_that_only_the_store_knows_to_be_taken_holds_up_nothing(store_url: str) -> None:
    gate = asyncio.Event()
    gate.set()
    app = gated(gate)
    app.settings = app.settings.with_changes(store=store_url, slots=1)
    async with app.running():
        assert app._supervisor is not None
        late = app.store.write_sync(_claimed_unheard, app._supervisor.worker.id)
        # No beat comes in this time: the refusal of the slot is what tells.
        following = await app.enqueue("wait", number=6)
        assert (await following.wait(30)).status is JobStatus.COMPLETED
        assert job(app.store, late).status is JobStatus.COMPLETED
    app.close()


@pytest.mark.rule("DEC-008", "DEC-001")
async def test_a_success_stays_one_however_often_the_engine_fails_to_store_it(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    app = gated(gate)
    app.settings = app.settings.with_changes(store=store_url)

    def tries() -> int:
        return sum(1 for record in caplog.records if "a cycle failed" in record.message)

    async with app.running():
        first = await app.with_options(retries=3).enqueue("wait", number=1)
        await until(lambda: app.at_once == 1)  # type: ignore[attr-defined]
        fail_writes(app.store, "job_runs", f"NEW.job_id = '{first.id}'")
        gate.set()
        await until(lambda: tries() >= 4)
        # Others are claimed and settled meanwhile.
        other = await app.enqueue("wait", number=2)
        assert (await other.wait(30)).status is JobStatus.COMPLETED
        assert job(app.store, first.id).status is JobStatus.RUNNING
        stop_failing_writes(app.store, "job_runs")
        done = await first.wait(30)
    assert (done.status, done.run and done.run.result, done.retried_by) == (JobStatus.COMPLETED, 1, None)
    assert value(app.store, "SELECT count(*) FROM jobs") == 2
    app.close()
