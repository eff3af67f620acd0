"""`ctx.emit` in every kind of handler, and its cap."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdbeat import App, Context
from holdbeat.domain.errors import Invalid
from holdbeat.handlers.context import MAX_LOG_BYTES, TRUNCATED
from holdbeat.store.running.run_output import read_logs
from holdbeat.testing import stage
from tests.engine.acting import job, value
from tests.engine.engine_jobs import talk_in_process


def make_app() -> App:
    app = App()

    @app.job
    async def in_loop(ctx: Context) -> None:
        ctx.emit("once ")
        ctx.emit({"n": 1})

    @app.job
    def in_thread(ctx: Context) -> None:
        ctx.emit("once ")
        ctx.emit({"n": 1})

    @app.job
    async def silent(ctx: Context) -> None:
        ctx.log("nothing to emit")

    @app.job
    async def much(ctx: Context) -> None:
        for _ in range(6):
            ctx.emit("x" * (MAX_LOG_BYTES // 4))
        ctx.log("the log has room of its own")

    @app.job
    async def odd(ctx: Context) -> None:
        with pytest.raises(Invalid, match="emit takes text"):
            ctx.emit(object())
        ctx.emit("refused")

    app.job(isolation="process", name="in_process")(talk_in_process)
    return app


def output_of(app: App, job_id: str, *, emitted: bool = True) -> list[tuple[str, str]]:
    run = job(app.store, job_id).run
    assert run is not None
    lines = app.store.read_sync(lambda tx: read_logs(tx, run.id, emitted=emitted))
    return [(line.stream, line.text) for line in lines]


@pytest.mark.rule("STR-01")
@pytest.mark.asyncio
@pytest.mark.parametrize("type_", ["in_loop", "in_thread", "in_process"])
async def test_every_kind_of_handler_emits_text_and_json_in_order(store_url: str, tmp_path: Path, type_: str) -> None:
    app = make_app()
    async with stage(app, tmp_path, store=store_url) as on_stage:
        handle = await app.enqueue(type_)
        await on_stage.drain()
        assert output_of(app, handle.id) == [("chunk", "once "), ("chunk.json", '{"n":1}')]


@pytest.mark.rule("STR-01")
@pytest.mark.asyncio
async def test_chunks_end_with_a_mark_after_a_megabyte_and_the_log_is_counted_apart(
    store_url: str, tmp_path: Path
) -> None:
    app = make_app()
    async with stage(app, tmp_path, store=store_url) as on_stage:
        much, silent, odd = [await app.enqueue(type_) for type_ in ("much", "silent", "odd")]
        await on_stage.drain()
        chunks = output_of(app, much.id)
        assert [len(text) for _, text in chunks[:-1]] == [MAX_LOG_BYTES // 4] * 4
        assert chunks[-1] == ("chunk", TRUNCATED)
        assert output_of(app, much.id, emitted=False) == [("log", "the log has room of its own\n")]
        assert (output_of(app, silent.id), output_of(app, odd.id)) == ([], [("chunk", "refused")])
        assert value(app.store, "SELECT count(*) FROM run_logs") == 8
