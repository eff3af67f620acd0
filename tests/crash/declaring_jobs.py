"""A program that uses its store while it is imported, and in the process of a handler.

`holdbeat worker tests.crash.declaring_jobs:app`; PROGRAM_STORE is the store that its code names.
"""

from __future__ import annotations

import os

from holdbeat import App

app = App(os.environ.get("PROGRAM_STORE"))


@app.job
def page() -> None: ...


@app.job(retries=0, isolation="process")
def crawl() -> str:
    return app.enqueue_sync(page).id


app.schedule_sync("nightly", crawl, every="1d")
