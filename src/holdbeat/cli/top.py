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
from holdbeat.cli.limits import limits_table
from holdbeat.cli.options import JSON, example, reaching
from holdbeat.cli.output import COLOURS, Drawn, console, print_json, rich_form, say
from holdbeat.cli.system import resources_table
from holdbeat.cli.top_tables import direct_table, queue_table, running_table, schedules_table, workers_table
from holdbeat.domain.clock import SystemClock, from_iso, iso
from holdbeat.domain.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

RUNNING_SHOWN = 20
QUEUE_SHOWN = 10
DIRECT_SHOWN = 10
SCHEDULES_SHOWN = 8


KEYS = "q quit   space hold   + faster   - slower   w workers   n next runs   l limits"
FASTEST_S, SLOWEST_S = 0.25, 60.0
_QUIT = ("q", "Q", "\x03", "\x1b")
_FOLDED = {"w": "WORKERS", "n": "NEXT RUNS", "l": "LIMITS"}


@dataclasses.dataclass(slots=True)
class View:
    """The state that keys change: how often the screen is drawn, whether it is held, which sections are hidden."""

    every_s: float = 1.0
    is_held: bool = False
    hidden: set[str] = dataclasses.field(default_factory=set)

    def press(self, key: str) -> None:
        if key == " ":
            self.is_held = not self.is_held
        elif key in ("+", "="):
            self.every_s = max(FASTEST_S, self.every_s / 2)
        elif key == "-":
            self.every_s = min(SLOWEST_S, self.every_s * 2)
        elif key.lower() in _FOLDED:
            self.hidden ^= {_FOLDED[key.lower()]}


@click.command(epilog=example("holdbeat top", "holdbeat top --server http://127.0.0.1:7450"))
@click.option("--every", type=click.FloatRange(0.1, 60), default=1.0, help="Seconds between updates (1).")
@click.option("--once", is_flag=True, help="Print it once and exit.")
@JSON
@reaching
def top(backend: Backend, every: float, once: bool, as_json: bool) -> None:
    """Show slots, queue, direct requests, workers and schedules, live.

    Keys: q quits, space pauses the display, + and - change how often it is updated, w, n and l hide and show workers,
    next runs and limits. Ids are shortened: every verb takes the end of an id.
    """
    if as_json:
        print_json(_read(backend))
        return
    if once or not sys.stdout.isatty() or not sys.stdin.isatty():
        say(*_parts(_read(backend), backend.url))
        return
    from rich.live import Live

    to = console()
    view = View(every)
    snapshot = _read(backend)

    def screen() -> Group:
        return fitted_screen(snapshot, backend.url, to.width, to.height, view)

    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed, Live(screen(), console=to, screen=True) as live:
        while (key := pressed(view.every_s)) not in _QUIT:
            view.press(key)
            with contextlib.suppress(Unavailable):
                snapshot = snapshot if view.is_held else _read(backend)
            live.update(screen(), refresh=True)


def _read(backend: Backend) -> dict[str, Any]:
    return {
        "at": iso(SystemClock().now()),
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


def _coloured_counts(snapshot: dict[str, Any], width: int) -> Text:
    """The counts, each in the colour of its status."""
    from rich.text import Text

    line = Text()
    for name, amount in snapshot["stats"]["jobs"].items():
        line.append(f"{name} ", style="dim").append(f"{amount}   ", style=f"bold {COLOURS.get(name, '')}".strip())
    line.truncate(width, overflow="ellipsis")
    return line


def _sections(snapshot: dict[str, Any]) -> list[tuple[str, list[Drawn], int]]:
    """Each with its title, what is drawn, and how many there are: lists are read in parts."""
    stats = snapshot["stats"]
    now = from_iso(snapshot["at"])
    # Where work waits comes first, because that is what a short screen must show.
    slots = sorted(stats["resources"].items(), key=lambda item: (-item[1]["waiting"], -item[1]["used"], item[0]))
    # Most of the time there is no direct request, and then no line is spent on them.
    direct = snapshot["direct"]
    direct_section = [("DIRECT REQUESTS", [direct_table(direct, now)], len(direct))] if direct else []
    # Limits by resource alone stand among the slots already.
    limits = [limit for limit in snapshot["limits"] if _is_told(limit)]
    limit_section = [("LIMITS", [limits_table(limits)], len(limits))] if limits else []
    return [
        ("SLOTS", [resources_table(dict(slots))], len(slots)),
        *limit_section,
        ("RUNNING", [running_table(snapshot["running"], now)], stats["jobs"].get("RUNNING", 0)),
        ("QUEUE", queue_table(snapshot["queue"], now), stats["jobs"].get("QUEUED", 0)),
        *direct_section,
        ("WORKERS", [workers_table(snapshot["workers"], now)], len(snapshot["workers"])),
        ("NEXT RUNS", [schedules_table(snapshot["schedules"], now)], stats["schedules"]),
    ]


def _is_told(limit: Any) -> bool:
    """Whether a limit says more than how many slots a resource has."""
    further = ("type", "rate", "per_partition", "fair", "throttled")
    return not limit["resource"] or any(limit[name] for name in further)


def _parts(snapshot: dict[str, Any], url: str) -> list[Drawn]:
    counts = "   ".join(f"{name} {amount}" for name, amount in snapshot["stats"]["jobs"].items())
    parts: list[Drawn] = [f"holdbeat   {url}", counts, ""]
    for title, drawn, _ in _sections(snapshot):
        parts += [title, *drawn, ""]
    return parts


def fitted_screen(snapshot: dict[str, Any], url: str, width: int, height: int, view: View | None = None) -> Group:
    """One screen on which every section is seen: lists that are too long for it end in how many more there are."""
    from rich.console import Group
    from rich.text import Text

    view = view or View()
    sections = [section for section in _sections(snapshot) if section[0] not in view.hidden]
    # A title to each section, and a header to each that has rows; pauses stand above the queue; the keys at the foot.
    lines = 3 + sum(len(drawn) + (1 if _rows(drawn) else 0) for _, drawn, _ in sections)
    room = _shared(height - lines, [(_rows(drawn), total) for _, drawn, total in sections])
    taken = sum(
        min(_rows(drawn) + (total > _rows(drawn)), lines_given)
        for (_, drawn, total), lines_given in zip(sections, room, strict=True)
    )
    is_airy = lines + taken + len(sections) <= height
    pace = "held" if view.is_held else f"every {view.every_s:g} s"
    parts: list[RenderableType] = [_line(f"holdbeat   {url}   {pace}", width), _coloured_counts(snapshot, width)]
    for (title, drawn, total), lines_given in zip(sections, room, strict=True):
        if is_airy:
            parts.append(Text(""))
        rows = _rows(drawn)
        parts.append(Text(title, style="bold blue") if rows else Text(f"{title}  none", style="dim"))
        for part in drawn:
            if isinstance(part, str):
                parts.append(_line(part, width))
            elif rows:
                rows_shown = rows if max(rows, total) <= lines_given else max(0, min(rows, lines_given - 1))
                cut = dataclasses.replace(part, rows=part.rows[:rows_shown])
                parts.append(rich_form(cut.fitted(width, in_one_line=True)))
                if max(rows, total) > rows_shown:
                    parts.append(Text(f"… {max(rows, total) - rows_shown} more", style="dim"))
    keys = _line(KEYS, width)
    keys.stylize("dim")
    return Group(*parts, keys)


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
