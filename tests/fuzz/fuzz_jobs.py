"""Job types for the server under fuzz."""

from __future__ import annotations

from typing import Any

from holdbeat import App, Context
from holdbeat.handlers.context import Skip

app = App()


@app.job(aliases=("parrot",))
async def echo(x: int = 1, text: str | None = None) -> dict[str, Any]:
    return {"x": x, "text": text}


@app.job
async def anything(ctx: Context, **params: Any) -> dict[str, Any]:
    ctx.log(params)
    return params


@app.job(retries=0)
async def fail(message: str = "no") -> None:
    raise RuntimeError(message)


@app.job
async def skip() -> None:
    raise Skip("nothing to do")


@app.job(retries=0)
async def asks(ctx: Context) -> str:
    answer: str = await ctx.ask("Send it?", choices=["yes", "no"])
    return answer
