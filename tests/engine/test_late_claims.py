"""A worker that stood still after it had claimed starts nothing under a lease that is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.run import ErrorKind
from holdbeat.store.running.settle_and_claim import turn
from holdbeat.testing import stage

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("LEASE-04")
@pytest.mark.parametrize("beats", [False, True])
async def test_a_run_whose_lease_was_over_before_it_began_is_not_started(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    begun: list[int] = []
    app = App()

    @app.job(retries=0)
    async def work() -> None:
        begun.append(1)

    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        job = await app.enqueue(work)
        store, write = app.store, app.store.write

        async def write_and_stand_still(verb: Any, *args: Any, **kwargs: Any) -> Any:
            answer = await write(verb, *args, **kwargs)
            if verb is turn and answer.claims:
                clock.advance(app.settings.lease_s + 1)
                if beats:
                    on_stage.supervisor.heartbeat.last_beat_at = clock.monotonic() - 1
            return answer

        monkeypatch.setattr(store, "write", write_and_stand_still)
        await on_stage.step()
        ended = await on_stage.job(job.id)
    assert len(begun) == beats
    assert ended.run is not None
    assert ended.run.error_kind == (None if beats else ErrorKind.LOST)
