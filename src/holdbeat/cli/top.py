"""top: one screen of slots, queue, direct requests, workers and schedules, drawn every second."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.job_tables import queue_table, running_table
from holdbeat.cli.limits import limits_table
from holdbeat.cli.options import JSON, example, reaching
from holdbeat.cli.output import Drawn, console, print_json, rich_form, say
from holdbeat.cli.reservations import reservations_table
from holdbeat.cli.schedule_verbs import schedules_table
from holdbeat.cli.system import resources_table, workers_table
from holdbeat.domain.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

RUNNING_SHOWN = 20
QUEUE_SHOWN = 10
DIRECT_SHOWN = 10
SCHEDULES_SHOWN = 8


@click.command(epilog=example("holdbeat top", "holdbeat top --server http://127.0.0.1:7450"))
@click.option("--every", type=click.FloatRange(0.1, 60), default=1.0, help="Seconds between updates (1).")
@click.option("--once", is_flag=True, help="Print it once and exit.")
@JSON
@reaching
def top(backend: Backend, every: float, once: bool, as_json: bool) -> None:
    """Show slots, queue, direct requests, workers and schedules, live; q or Ctrl-C ends it."""
    if as_json:
        print_json(_look(backend))
        return
    if once or not sys.stdout.isatty() or not sys.stdin.isatty():
        say(*_parts(_look(backend), backend.url))
        return
    from rich.live import Live

    to = console()

    def screen() -> Group:
        return fitted_screen(_look(backend), backend.url, to.width, to.height)

    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed, Live(screen(), console=to, screen=True) as live:
        while pressed(every) not in ("q", "Q", "\x03"):
            with contextlib.suppress(Unavailable):
                live.update(screen())


def _look(backend: Backend) -> dict[str, Any]:
    return {
        "stats": backend.stats(),
        "running": backend.list_jobs(status=["RUNNING"], limit=RUNNING_SHOWN)["items"],
        "queue": backend.get_queue(limit=QUEUE_SHOWN),
        "direct": backend.list_reservations(status="ACTIVE", limit=DIRECT_SHOWN)["items"],
        "workers": backend.workers()["items"],
        "schedules": _next(backend),
        "limits": backend.list_limits()["items"],
    }


def _next(backend: Backend) -> list[Any]:
    """The schedules and endpoints that run next."""
    schedules: list[Any] = []
    for kind in (backend.schedules, backend.endpoints):
        schedules += kind.list(order="next_run", limit=SCHEDULES_SHOWN)["items"]
    return sorted(schedules, key=lambda schedule: str(schedule["fires_at"]))[:SCHEDULES_SHOWN]


def _counts(look: dict[str, Any]) -> str:
    return "   ".join(f"{name} {amount}" for name, amount in look["stats"]["jobs"].items())


def _sections(look: dict[str, Any]) -> list[tuple[str, list[Drawn], int]]:
    """Each with its title, what is drawn, and how many there are: lists are read in parts."""
    stats = look["stats"]
    # Where work waits comes first, because that is what a short screen must show.
    slots = sorted(stats["resources"].items(), key=lambda item: (-item[1]["waiting"], -item[1]["used"], item[0]))
    # Most of the time there is no direct request, and then no line is spent on them.
    direct = look["direct"]
    direct_section = [("DIRECT REQUESTS", [reservations_table(direct)], len(direct))] if direct else []
    # Limits by resource alone stand among the slots already.
    limits = [limit for limit in look["limits"] if _is_told(limit)]
    limit_section = [("LIMITS", [limits_table(limits)], len(limits))] if limits else []
    return [
        ("SLOTS", [resources_table(dict(slots))], len(slots)),
        *limit_section,
        ("RUNNING", [running_table(look["running"])], stats["jobs"].get("RUNNING", 0)),
        ("QUEUE", queue_table(look["queue"]), stats["jobs"].get("QUEUED", 0)),
        *direct_section,
        ("WORKERS", [workers_table(look["workers"])], len(look["workers"])),
        ("NEXT RUNS", [schedules_table(look["schedules"])], stats["schedules"]),
    ]


def _is_told(limit: Any) -> bool:
    """Whether a limit says more than how many slots a resource has."""
    return bool(limit["type"] or limit["rate"] or limit["per_partition"] or limit["throttled"] or not limit["resource"])


def _parts(look: dict[str, Any], url: str) -> list[Drawn]:
    parts: list[Drawn] = [f"holdbeat   {url}", _counts(look), ""]
    for title, drawn, _ in _sections(look):
        parts += [title, *drawn, ""]
    return parts


def fitted_screen(look: dict[str, Any], url: str, width: int, height: int) -> Group:
    """One screen on which every section is seen: lists that are too long for it end in how many more there are."""
    from rich.console import Group
    from rich.text import Text

    sections = _sections(look)
    # A title to each section, and a header to each that has rows; pauses stand above the queue.
    lines = 2 + sum(len(drawn) + (1 if _rows(drawn) else 0) for _, drawn, _ in sections)
    room = _shared(height - lines, [(_rows(drawn), total) for _, drawn, total in sections])
    taken = sum(
        min(_rows(drawn) + (total > _rows(drawn)), lines_given)
        for (_, drawn, total), lines_given in zip(sections, room, strict=True)
    )
    is_airy = lines + taken + len(sections) <= height
    parts: list[RenderableType] = [_line(f"holdbeat   {url}", width), _line(_counts(look), width)]
    for (title, drawn, total), lines_given in zip(sections, room, strict=True):
        if is_airy:
            parts.append(Text(""))
        rows = _rows(drawn)
        parts.append(Text(title if rows else f"{title}  none", style="bold"))
        for part in drawn:
            if isinstance(part, str):
                parts.append(_line(part, width))
            elif rows:
                rows_shown = rows if max(rows, total) <= lines_given else max(0, min(rows, lines_given - 1))
                cut = dataclasses.replace(part, rows=part.rows[:rows_shown])
                parts.append(rich_form(cut.fitted(width, in_one_line=True)))
                if max(rows, total) > rows_shown:
                    parts.append(Text(f"… {max(rows, total) - rows_shown} more", style="dim"))
    return Group(*parts)


def _rows(drawn: list[Drawn]) -> int:
    return sum(len(part.rows) for part in drawn if not isinstance(part, str))


def _shared(lines: int, sections: list[tuple[int, int]]) -> list[int]:
    """Lines for the rows of each section, dealt out one by one to those that can use one more."""
    uses = [rows + (total > rows) for rows, total in sections]
    shares = [0] * len(sections)
    while lines > 0 and any(has < use for has, use in zip(shares, uses, strict=True)):
        for index, use in enumerate(uses):
            if shares[index] < use and lines > 0:
                shares[index] += 1
                lines -= 1
    return shares


def _line(text: str, width: int) -> Text:
    from rich.text import Text

    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line


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
