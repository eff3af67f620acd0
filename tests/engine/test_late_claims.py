"""A worker that stood still after it had claimed starts nothing under a lease that somebody else ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import JobStatus
from holdbeat.store.running.settle_and_claim import settle_and_claim
from holdbeat.testing import stage

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("LEASE-04")
@pytest.mark.parametrize("is_recovered", [False, True])
async def test_a_run_whose_lease_was_over_before_it_began_starts_only_if_it_can_be_renewed(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recovered: bool
) -> None:
    begun: list[int] = []
    app = App()

    @app.job(retries=0)
    async def work() -> None:
        begun.append(1)

    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        job = await app.enqueue(work)
        store, start_write = app.store, app.store.start_write

        async def stand_still(answer: Any) -> Any:
            result = await answer
            if result.claims:
                clock.advance(app.settings.lease_s + 1)
                if is_recovered:
                    await store.write(lambda tx: tx.execute("DELETE FROM leases"))
            return result

        def write_and_stand_still(verb: Any, *args: Any, **kwargs: Any) -> Any:
            answer = start_write(verb, *args, **kwargs)
            return stand_still(answer) if verb is settle_and_claim else answer

        monkeypatch.setattr(store, "start_write", write_and_stand_still)
        await on_stage.step()
        ended = await on_stage.job(job.id)
    assert len(begun) == (not is_recovered)
    assert ended.status == (JobStatus.RUNNING if is_recovered else JobStatus.COMPLETED)
