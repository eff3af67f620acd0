"""An App with middleware whose jobs have processes of their own, and so must be importable."""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdbeat import App, Context

app = App()
steps: list[str] = []


@app.middleware
def outer(ctx: Context) -> Iterator[None]:
    steps.append(f"outer begins in {'the child' if os.environ.get('HOLDBEAT_RUN_ID') == ctx.run_id else 'the worker'}")
    yield


@app.job(retries=0, isolation="process")
def plain() -> list[str]:
    return steps


@app.job(retries=0, isolation="process")
async def coroutine() -> list[str]:
    return steps
