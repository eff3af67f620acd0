"""What verbs print: tables for people, JSON for programs, one escaped line for whatever others have named.

Rich is loaded only to draw. On a terminal a table fits its width; in a pipe nothing is cut or folded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdbeat.domain.log_text import one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

COLOURS = {
    "QUEUED": "cyan",
    "RUNNING": "blue",
    "COMPLETED": "green",
    "DELIVERED": "green",
    "FAILED": "red",
    "SKIPPED": "yellow",
    "PARTIAL": "yellow",
    "CANCELLED": "magenta",
    "ok": "green",
    "warning": "yellow",
    "wrong": "red",
}
PIPE_WIDTH = 100_000


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def shown(value: Any) -> str:
    """A value of somebody else as one line of plain characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        return f"{value:g}"
    return one_line(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list) else str(value)


def instant(text: str | None) -> str:
    """An instant without its milliseconds."""
    return "" if text is None else f"{text[:19].replace('T', ' ')}Z"


def span(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g} s" if seconds < 10 else f"{whole} s"
    for size, name, part, part_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // part} {part_name}"
    return ""


def console() -> Console:
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        width=None if is_terminal else PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not is_terminal,
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, whole: Sequence[str] = ("id",)) -> RenderableType:
    """A table of values; the columns in `whole` are never folded, because people paste them."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        drawn.add_column(name, no_wrap=name in whole, overflow="fold")
    for row in rows:
        cells = [shown(value) for value in row]
        drawn.add_row(*[Text(cell, style=COLOURS.get(cell, "")) for cell in cells])
    return drawn


def fields(values: Mapping[str, Any]) -> RenderableType:
    """One thing, a field to a line; those that are empty are left out."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_header=False, show_edge=False)
    drawn.add_column(no_wrap=True, style="bold")
    drawn.add_column(overflow="fold")
    for name, value in values.items():
        cell = shown(value)
        if cell not in ("", "{}", "[]"):
            drawn.add_row(name, Text(cell, style=COLOURS.get(cell, "")))
    return drawn


def say(*drawn: RenderableType) -> None:
    """Prints tables, and text as it is."""
    from rich.text import Text

    to = console()
    for each in drawn:
        to.print(Text(each) if isinstance(each, str) else each)


def show(value: Any, draw: Callable[[Any], Sequence[RenderableType]], *, as_json: bool) -> None:
    """One answer, for a person or for a program."""
    if as_json:
        print_json(value)
    else:
        say(*draw(value))


def show_list(
    fetch: Callable[[], Any],
    draw: Callable[[Any], Sequence[RenderableType]],
    *,
    as_json: bool,
    watch: float | None = None,
) -> None:
    """A list once, or again and again; with `--json` each time one line."""
    if watch is None:
        page = fetch()
        show(page, draw, as_json=as_json)
        if not as_json and page.get("next_cursor"):
            click.echo(f"There are more: --cursor {page['next_cursor']}", err=True)
        return
    while True:
        page = fetch()
        if as_json:
            click.echo(json.dumps(page, ensure_ascii=False))
        else:
            if sys.stdout.isatty():
                click.clear()
            say(*draw(page))
        sys.stdout.flush()
        time.sleep(watch)


def confirm(sentence: str, *, yes: bool) -> None:
    """Asks before something that cannot be undone; who cannot be asked must have said `--yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{sentence} Say --yes to do it.")
    click.confirm(f"{sentence} Go on?", abort=True, err=True)
