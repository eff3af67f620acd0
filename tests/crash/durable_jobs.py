"""The durable example of the docs, in an App for real worker processes that are killed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from holdbeat import App, Context, RetryPolicy
from tests.crash.jobs import note

app = App()


def hang_at(diary: str, place: str) -> None:
    """Stays at a place, once, until the worker is killed there."""
    mark = Path(f"{diary}.{place}")
    if mark.exists():
        mark.unlink()
        note(diary, "hangs", place)
        threading.Event().wait()


def crawl(diary: str, url: str) -> list[str]:
    note(diary, "crawl")
    return [f"{url}/1", f"{url}/2"]


def embed(diary: str, pages: list[str]) -> list[int]:
    note(diary, "embed")
    return [len(page) for page in pages]


def publish(diary: str, vectors: list[int]) -> dict[str, Any]:
    note(diary, "publish")
    return {"vectors": len(vectors)}


@app.job(retries=RetryPolicy(max_attempts=20, base_delay_s=0))
async def ingest(ctx: Context, diary: str, url: str) -> Any:
    hang_at(diary, "start")
    pages = await ctx.step("crawl", crawl, diary, url)
    hang_at(diary, "crawled")
    vectors = await ctx.step("embed", embed, diary, pages)
    hang_at(diary, "embedded")
    await ctx.sleep(0.3)
    hang_at(diary, "slept")
    approval = await ctx.wait_for("approved", timeout="2d")
    hang_at(diary, "approved")
    published = await ctx.step("publish", publish, diary, vectors)
    hang_at(diary, "published")
    return [published, approval]
