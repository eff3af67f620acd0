"""`holdbeat demo`: everything at once, alive within seconds, gone without a trace.

Leaves nothing behind: the store is a temporary file, the endpoint's page is served by this process
itself, nothing leaves the machine, and the end removes all of it. What is shown is real work of a real engine; only
the work itself is sleep.
"""

from __future__ import annotations

import asyncio
import http.server
import logging
import os
import random
import shlex
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from holdbeat import Context, PermanentFailure, Skip
from holdbeat.app import App
from holdbeat.settings import Settings
from holdbeat.store.reads.queue_view import queue
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.store.webhooks.subscriptions import create_webhook

CONCURRENCY = "resources:default=2,gpu=1,mail=2,desk=1,http=4"
SUBJECTS = ("a fox", "the sea", "an old clock", "two rivers", "a lighthouse", "the last train", "a paper boat")
FLAKY_EVERY = 4
"""The demo's own page fails once in so many calls."""
DESK_S = 6.0
SENTENCE = "Chapter {number}: once there was {prompt}, and nobody who passed by knew how the day would end."
STORIES_WAITING = 6
"""So many stories wait for the gpu after each visit of the editor: enough to reorder, and never more."""


def make_app(settings: Settings, *, pace: float = 1.0, chance: random.Random | None = None) -> App:
    """An App with job types of several lengths and tempers. `pace` stretches how long they take."""
    app = App(settings=settings)
    rng = chance or random.Random()

    async def work(ctx: Context, seconds: float, steps: list[str]) -> None:
        for number, step in enumerate(steps):
            ctx.log(step)
            for part in range(5):
                ctx.progress((number + part / 5) / len(steps), step)
                await asyncio.sleep(seconds * pace / len(steps) / 5)
        ctx.progress(1.0, "done")

    _add_stories(app, work, pace)
    _add_work(app, work, rng)
    _add_durable_work(app, work, pace)
    _add_editor(app, rng)
    return app


Work = Callable[[Context, float, list[str]], Awaitable[None]]


def _add_stories(app: App, work: Work, pace: float) -> None:
    @app.job(resource="gpu", timeout="10m", retries=2, title="Story: {prompt}")
    async def story(ctx: Context, prompt: str, chapters: int = 4) -> dict[str, Any]:
        """Write a story, chapter by chapter. Takes the only gpu."""
        for number in range(chapters):
            ctx.log(f"chapter {number + 1} of {chapters}")
            words = SENTENCE.format(prompt=prompt, number=number + 1).split(" ")
            for place, word in enumerate(words):
                ctx.progress((number + place / len(words)) / chapters, f"chapter {number + 1} of {chapters}")
                ctx.emit(word + (" " if place < len(words) - 1 else "\n"))
                await asyncio.sleep(3.0 * pace / len(words))
        ctx.progress(1.0, "done")
        return {"title": f"The tale of {prompt}", "words": 900 * chapters}

    @app.job(resource="gpu", title="Title for {prompt}")
    async def title(ctx: Context, prompt: str) -> str:
        """Find a title: short, made for direct requests."""
        await work(ctx, 1.2, ["thinking"])
        return f"What {prompt} knew"


def _add_work(app: App, work: Work, rng: random.Random) -> None:
    @app.job(title="Crawl {site}")
    async def crawl(ctx: Context, site: str) -> dict[str, Any]:
        """Fetch the pages of a site."""
        pages = rng.randint(8, 40)
        await work(ctx, 2.5, ["robots.txt", "front page", f"{pages} pages"])
        return {"site": site, "pages": pages}

    @app.job(title="Embed {site}")
    async def embed(ctx: Context, site: str) -> dict[str, Any]:
        """Turn pages into vectors."""
        await work(ctx, 4.0, ["chunk", "embed", "upsert"])
        return {"site": site, "vectors": rng.randint(100, 900)}

    @app.job(resource="mail", retries=3, title="Newsletter {issue}")
    async def newsletter(ctx: Context, issue: int) -> str:
        """Send an issue; the mail server is moody, so some attempts fail and are tried again."""
        await work(ctx, 1.5, ["render", "send"])
        if rng.random() < 0.45:
            raise ConnectionError("421 4.7.0 the mail server asked us to come back later")
        return f"issue {issue} is out"

    @app.job(retries=0, title="Close {month}")
    async def ledger(ctx: Context, month: str) -> None:
        """Close a month; some months cannot be closed, and say so for good."""
        await work(ctx, 1.0, ["add up"])
        match rng.randrange(3):
            case 0:
                raise PermanentFailure(f"the books of {month} do not balance: 3.50 are missing")
            case 1:
                raise Skip(f"{month} is closed already")


def _add_durable_work(app: App, work: Work, pace: float) -> None:
    @app.job(title="Book: {subject}")
    async def book(ctx: Context, subject: str, ask: bool = True) -> dict[str, Any]:
        """Plan, draft and print a book. Its steps are kept; a person decides whether it is printed."""

        async def written(seconds: float, pages: int) -> int:
            await asyncio.sleep(seconds * pace)
            return pages

        outline = await ctx.step("outline", written, 0.4, 2)
        draft = await ctx.step("draft", written, 1.6, 48)
        pictures = await ctx.step("pictures", written, 0.8, 6)
        answer = (
            await ctx.ask(f"Print the book about {subject}?", choices=["print it", "not yet"]) if ask else "print it"
        )
        if answer != "print it":
            raise Skip(f"the answer was: {answer}")
        return {"subject": subject, "pages": outline + draft + await ctx.step("print", written, 0.5, pictures)}

    @app.job(title="Review {what}")
    async def review(ctx: Context, what: str) -> str:
        """Read what the jobs before it have made."""
        await work(ctx, 1.0, ["read", "compare"])
        return f"{what} is complete"


def _add_editor(app: App, rng: random.Random) -> None:
    @app.job(resource="desk", retries=0)
    async def editor(ctx: Context) -> None:
        """Bring a little more work, and now and then a direct request: this keeps the demo alive."""
        waiting = await app.store.read(queue, "gpu", limit=STORIES_WAITING)
        stories = [
            app.call("story", prompt=rng.choice(SUBJECTS), chapters=rng.randint(2, 5))
            for _ in range(STORIES_WAITING - len(waiting.items))
        ]
        await app.enqueue_many(
            [
                app.call(rng.choice(["crawl", "embed"]), site=f"site-{rng.randint(1, 9)}.example"),
                app.call("newsletter", issue=rng.randint(1, 99)),
                *stories,
            ]
        )
        if rng.random() < 0.15:
            await app.enqueue("ledger", month=rng.choice(["March", "April", "May"]))
        if rng.random() < 0.5:
            answer = await app.direct("title", prompt=rng.choice(SUBJECTS), wait_s=30)
            ctx.log(f"a person at the keyboard was told: {answer}")


def fill(app: App, page_url: str) -> None:
    """The first work, so that there is something to see from the first second on."""
    app.enqueue_many_sync(
        [app.call("story", prompt=subject) for subject in SUBJECTS[:4]]
        + [app.call("crawl", site=f"site-{number}.example") for number in range(6)]
        + [app.call("newsletter", issue=number) for number in (41, 42, 43)]
        + [app.call("ledger", month="January"), app.call("ledger", month="February")]
    )
    urgent = app.with_options(priority=5, labels={"who": "editor"})
    urgent.enqueue_sync("story", prompt="breaking news", chapters=2)
    app.with_options(delay="2m").enqueue_sync("newsletter", issue=44)
    site = "handbook.example"
    app.group_sync(
        [app.call("crawl", site=site), app.call("embed", site=site), app.call("newsletter", issue=100)],
        name="publish the handbook",
        mode="sequential",
    )
    book = app.call("book", subject="lighthouses", ask=False)
    pages = [app.call("embed", site=f"archive-{number}.example") for number in (1, 2)]
    check = app.with_options(after=[book, *pages]).call("review", what="the archive")
    then = app.with_options(after=[check]).call("newsletter", issue=7)
    app.enqueue_many_sync([app.call("book", subject="paper boats"), book, *pages, check, then])
    store = app.store
    store.write_sync(
        create_schedule, {"name": "editor at the desk", "interval_s": DESK_S, "type": "editor", "overlap": "skip"}
    )
    store.write_sync(
        create_schedule,
        {"name": "nightly books", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "type": "ledger",
         "params": {"month": "this month"}},
    )  # fmt: skip
    store.write_sync(
        create_schedule,
        {"name": "shop front", "url": page_url, "interval_s": 10, "min_interval_s": 5, "max_interval_s": 120},
        endpoint=True,
    )
    store.write_sync(create_webhook, page_url, ["job.permanently_failed", "group.finished", "job.run.skipped"])


class _FlakyPage(http.server.BaseHTTPRequestHandler):
    """A page that fails now and then."""

    calls = 0

    def do_GET(self) -> None:
        _FlakyPage.calls += 1
        is_down = _FlakyPage.calls % FLAKY_EVERY == 0
        body = b'{"open": false}' if is_down else b'{"open": true}'
        self.send_response(503 if is_down else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Takes the demo's own webhooks."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the dashboard shows these calls."""


@contextmanager
def flaky_page() -> Iterator[str]:
    """Serves the page on a free port of this machine; its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _FlakyPage)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="holdbeat-demo-page", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/shop"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def free_port(preferred: int) -> int:
    """The wanted port, or any free one if it is in use."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise click.ClickException("no port of this machine is free")


@click.command()
@click.option(
    "--port", type=int, default=7450, show_default=True, help="Port of the dashboard; another if it is taken."
)
@click.pass_obj
def demo(obj: Any, port: int) -> None:
    """Run a demonstration: server, worker and dashboard with example jobs, on a temporary store."""
    logging.basicConfig(level="ERROR")
    chosen = free_port(port)
    if port not in (0, chosen):
        click.echo(f"Port {port} is taken by another program, so this one takes {chosen}.", err=True)
    with tempfile.TemporaryDirectory(prefix="holdbeat-demo-") as folder, flaky_page() as page_url:
        settings = Settings.load(environ={}).with_changes(
            store=f"sqlite:///{Path(folder) / 'demo.db'}",
            port=chosen,
            slots=7,
            http_slots=4,
            concurrency=CONCURRENCY,
            lease_s=60,
            heartbeat_s=10,
            shutdown_grace_s=0.5,
        )
        app = make_app(settings)
        fill(app, page_url)
        address = f"http://127.0.0.1:{chosen}"
        styled = click.style(address, bold=True, fg="blue")
        click.echo(f"Holdbeat is running at {styled} (Ctrl-C ends it and leaves nothing behind)")
        click.echo("\nTry in another terminal:")
        for command in _commands(address):
            click.echo(f"  {command}")
        code = obj.serve(app)
    click.echo("\nEnded. The store is gone, and with it all that was in it.")
    if code:
        raise SystemExit(code)


def _commands(address: str) -> list[str]:
    program = program_words(Path(sys.argv[0]), shutil.which("holdbeat"), Path.cwd())
    return [
        f"{program} direct title prompt='a fox' --server {address}",
        f"{program} submit story prompt='you' --wait --server {address}",
        f"{program} top --server {address}",
    ]


def program_words(started: Path, on_path: str | None, here: Path) -> str:
    """How another terminal calls the program that runs here: by its name where that leads to it, else by its path."""
    if started.name != "holdbeat":
        return "holdbeat"
    path = started if started.is_absolute() else here / started
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(path):
        return "holdbeat"
    return shlex.quote(str(path.relative_to(here)) if path.is_relative_to(here) else str(path))
