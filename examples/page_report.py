"""Fan-out and fan-in: every page of a folder is a job, and a report is written when all of them have ended.

    python -m examples.page_report docs

The pages and the report are stored in one transaction. The report costs the workers nothing until the last page has
ended, and then reads the results from where they are stored. Killed half-way and started again, the program goes on
with the pages that are left: `holdbeat worker examples.page_report:app`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from holdbeat import App, Context, JobHandle

app = App(concurrency="resources:default=16,http=256", slots=16)


@app.job(retries=3)
def count_words(path: str) -> dict[str, int]:
    """Counts the ten words that are the most frequent on a page."""
    words = re.findall(r"[a-z]{4,}", Path(path).read_text(encoding="utf-8").lower())
    return dict(Counter(words).most_common(10))


@app.job
async def report(ctx: Context) -> dict[str, Any]:
    """Adds up what the pages say."""
    total = Counter[str]()
    for words in ctx.upstream.values():
        total.update(words)
    return {"pages": len(ctx.upstream), "words": dict(total.most_common(10))}


async def report_on(paths: list[Path]) -> JobHandle:
    """Submits a job for each page, and the report that waits for all of them."""
    pages = [app.call(count_words, path=str(path)) for path in paths]
    handles = await app.enqueue_many([*pages, app.with_options(after=pages).call(report)])
    return handles[-1]


async def main(paths: list[Path]) -> None:
    async with app.running():
        handle = await report_on(paths)
        job = await handle.wait("10m")
    print(json.dumps(job.run.result if job.run else None))


if __name__ == "__main__":
    asyncio.run(main(sorted(Path(sys.argv[1]).rglob("*.md"))))
