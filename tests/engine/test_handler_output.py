"""A program that embeds Holdbeat keeps its own streams and log while handlers' words are kept with their runs."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from holdbeat import App
from tests.engine.acting import rows


@pytest.mark.rule("LOG-01")
@pytest.mark.asyncio
async def test_an_embedding_program_keeps_its_streams_and_its_log(store_url: str, capsys: Any, caplog: Any) -> None:
    app = App(store_url)
    log = logging.getLogger("program")

    @app.job(retries=0)
    async def speak() -> None:
        print("from the handler")
        log.warning("careful")

    before = (sys.stdout, sys.stderr, logging.getLogRecordFactory(), list(logging.getLogger().handlers))
    async with app.running():
        print("from the program")
        job = await (await app.enqueue(speak)).wait(30)
    after = (sys.stdout, sys.stderr, logging.getLogRecordFactory(), list(logging.getLogger().handlers))
    assert after == before
    assert job.run is not None
    texts = [row[0] for row in rows(app.store, "SELECT text FROM run_logs ORDER BY sequence")]
    assert texts == ["from the handler\n", "WARNING program: careful\n"]
    assert capsys.readouterr().out == "from the program\nfrom the handler\n"
    (record,) = [one for one in caplog.records if one.name == "program"]
    assert (record.holdbeat_run, record.holdbeat_job) == (job.run.id, job.id)
    app.close()
