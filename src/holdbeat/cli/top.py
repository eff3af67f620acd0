"""top: one screen of slots, queue, workers and schedules, drawn again and again."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.figures import resources_table, workers_table
from holdbeat.cli.job_tables import jobs_table, queue_table
from holdbeat.cli.output import Drawn, console, print_json, rich_form, say
from holdbeat.cli.schedule_verbs import schedules_table
from holdbeat.cli.verb import JSON, example, reaching
from holdbeat.domain.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import Group

RUNNING_SHOWN = 20
QUEUE_SHOWN = 10
SCHEDULES_SHOWN = 8


@click.command(epilog=example("holdbeat top", "holdbeat top --server http://127.0.0.1:7450"))
@click.option("--every", type=click.FloatRange(0.1, 60), default=1.0, help="Seconds between looks (1).")
@click.option("--once", is_flag=True, help="Print it once and end.")
@JSON
@reaching
def top(backend: Backend, every: float, once: bool, as_json: bool) -> None:
    """Show slots, queue, workers and schedules live; q or Ctrl-C ends it."""
    if as_json:
        print_json(_look(backend))
        return
    if once or not sys.stdout.isatty() or not sys.stdin.isatty():
        say(*_parts(_look(backend), backend.url))
        return
    from rich.live import Live

    screen = _screen(_parts(_look(backend), backend.url))
    to = console()
    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed, Live(screen, console=to, screen=True) as live:
        while pressed(every) not in ("q", "Q", "\x03"):
            with contextlib.suppress(Unavailable):
                live.update(_screen(_parts(_look(backend), backend.url)))


def _look(backend: Backend) -> dict[str, Any]:
    return {
        "stats": backend.stats(),
        "running": backend.list_jobs(status=["RUNNING"], limit=RUNNING_SHOWN)["items"],
        "queue": backend.get_queue(limit=QUEUE_SHOWN),
        "workers": backend.workers()["items"],
        "schedules": _next(backend),
    }


def _next(backend: Backend) -> list[Any]:
    """The schedules and endpoints that run next."""
    found: list[Any] = []
    for kind in (backend.schedules, backend.endpoints):
        found += kind.list(order="next_run", limit=SCHEDULES_SHOWN)["items"]
    return sorted(found, key=lambda each: str(each["next_run_at"]))[:SCHEDULES_SHOWN]


def _parts(look: dict[str, Any], url: str) -> list[Drawn]:
    counts = "   ".join(f"{name} {amount}" for name, amount in look["stats"]["jobs"].items())
    parts: list[Drawn] = [f"holdbeat   {url}", counts, ""]
    for title, drawn in (
        ("SLOTS", [resources_table(look["stats"]["resources"])]),
        ("RUNNING", [jobs_table(look["running"])]),
        ("QUEUE", queue_table(look["queue"])),
        ("WORKERS", [workers_table(look["workers"])]),
        ("NEXT RUNS", [schedules_table(look["schedules"])]),
    ):
        parts += [title, *drawn, ""]
    return parts


def _screen(parts: list[Drawn]) -> Group:
    from rich.console import Group

    return Group(*[rich_form(part) for part in parts])


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Lets single keys be read without Enter; gives a function that waits so many seconds for one."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(wait_s: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        return sys.stdin.read(1) if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
