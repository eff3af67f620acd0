"""The output of verbs: tables for people, JSON for programs, one escaped line for names that others gave.

Rich is loaded only to draw on a terminal, where a table fits its width. In a pipe nothing is cut or folded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
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
    "CONTINUED": "cyan",
    "PARTIAL": "yellow",
    "CANCELLED": "magenta",
    "ok": "green",
    "warning": "yellow",
    "wrong": "red",
}

LEFT_OUT = (
    "finished", "attempt", "aliases", "version", "resource", "priority", "failures", "last run", "created", "heartbeat",
)  # fmt: skip
"""Columns that a narrow terminal does without, the first to go first."""
FOLDED = 24
NARROWEST = 10
"""What a last column should have, and what it must have not to be left out."""
SHORTEST = 10
SHORTEST_ID = 13


def print_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # JSON escapes most control characters; on a terminal none of the others may remain.
    click.echo(escaped_json(text) if sys.stdout.isatty() else text)


def escaped_json(text: str) -> str:
    """JSON in which every character that could control a terminal is escaped."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(sign if sign == "\n" or sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def shown(value: Any) -> str:
    """A foreign value as one line of plain characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        return f"{value:g}"
    return one_line(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list) else str(value)


def without_controls(text: str) -> str:
    """Text of several lines as it is, without what would control the terminal."""
    return "\n".join(shown(line) if not line.replace("\t", "").isprintable() else line for line in text.split("\n"))


def instant(text: str | None) -> str:
    """An instant without its milliseconds."""
    return "" if text is None else f"{text[:19].replace('T', ' ')}Z"


def span(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return ""
    seconds_left = round(seconds)
    if seconds_left < 60:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds_left} s"
    for size, name, part, part_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds_left >= size:
            return f"{seconds_left // size} {name} {seconds_left % size // part} {part_name}"
    return ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values, drawn when it is known where to."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: Sequence[str] = ("id",)
    """Columns that are shortened last, because people paste them."""
    has_header: bool = True
    leaves: Sequence[str] = LEFT_OUT
    """Columns that a narrow terminal does without, the first to go first."""
    styles: Mapping[str, str] = field(default_factory=dict)
    """Colours of columns by their names, for terminals."""

    def fitted(self, width: int, *, in_one_line: bool = False) -> Table:
        """The table for a terminal of this width: no cell but the last of a row is ever folded.

        What is empty goes first, then what matters least, then the last column; what is still too long ends in "…".
        """
        from rich.cells import cell_len

        lengths = [
            max([cell_len(name), *(cell_len(row[index]) for row in self.rows)])
            for index, name in enumerate(self.columns)
        ]
        kept = list(range(len(self.columns)))
        last = kept[-1]

        def is_too_wide(last_length: int = FOLDED) -> bool:
            fixed = sum(lengths[index] for index in kept if index != last)
            return fixed + (min(lengths[last], last_length) if last in kept else 0) + 2 * (len(kept) - 1) > width

        def leave(index: int) -> None:
            if len(kept) > 2 and index in kept:
                kept.remove(index)

        for index in list(kept):
            if is_too_wide() and self.rows and not any(row[index] for row in self.rows):
                leave(index)
        for name in self.leaves:
            if is_too_wide() and name in self.columns:
                leave(list(self.columns).index(name))
        if is_too_wide(NARROWEST):
            leave(last)
        lengths = _shortened(lengths, kept, [self.columns[index] in self.whole for index in kept], width)

        def cell(row: Sequence[str], index: int) -> str:
            may_fold = index == kept[-1] and not in_one_line
            return row[index] if may_fold else _cut(row[index], lengths[index], self.columns[index].endswith("id"))

        rows = [[cell(row, index) for index in kept] for row in self.rows]
        return Table([_cut(self.columns[index], lengths[index]) for index in kept], rows, self.whole, self.has_header,
                     styles=self.styles)  # fmt: skip


def _shortened(lengths: list[int], kept: Sequence[int], is_whole: Sequence[bool], width: int) -> list[int]:
    """Lengths that fit: the last column gives way first, ids last."""
    shortened = list(lengths)
    others = [index for index, whole in zip(kept, is_whole, strict=True) if not whole and index != kept[-1]]
    ids = [index for index, whole in zip(kept, is_whole, strict=True) if whole and index != kept[-1]]
    steps = [([kept[-1]], NARROWEST), (others, SHORTEST), (ids, SHORTEST_ID), (list(kept), 1)]
    for columns, shortest in steps:
        while True:
            excess = sum(shortened[index] for index in kept) + 2 * (len(kept) - 1) - width
            longest = max(columns, key=lambda index: shortened[index], default=None)
            if excess <= 0 or longest is None or shortened[longest] <= shortest:
                break
            shortened[longest] -= 1
    return shortened


def _cut(text: str, length: int, is_id: bool = False) -> str:
    """Cuts a text to fit. An id keeps its end: its beginning is a time, which the ids of one moment share."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= length:
        return text
    return f"…{text[len(text) - length + 1 :]}" if is_id else set_cell_size(text, length - 1).rstrip() + "…"


Drawn = str | Table


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    whole: Sequence[str] = ("id",),
    leaves: Sequence[str] = LEFT_OUT,
) -> Table:
    """A table of values of others, each on one line."""
    return Table(columns, [[shown(value) for value in row] for row in rows], whole, leaves=leaves)


Columns = Sequence[str | tuple[str, str | Callable[[Any], Any]]]
"""Headings, each with a field of the item, or what a function makes of the item; a heading alone names its field."""


def rows_of(
    items: Iterable[Any], columns: Columns, *, whole: Sequence[str] = ("id",), leaves: Sequence[str] = LEFT_OUT
) -> Table:
    """A table with a row for each item."""
    headings, sources = zip(*((name, name) if isinstance(name, str) else name for name in columns), strict=True)
    cells = [itemgetter(source) if isinstance(source, str) else source for source in sources]
    return table(headings, [[cell(item) for cell in cells] for item in items], whole=whole, leaves=leaves)


def items_table(
    columns: Columns, *, whole: Sequence[str] = ("id",), leaves: Sequence[str] = LEFT_OUT
) -> Callable[[Any], list[Table]]:
    """Draws a page of a list."""
    return lambda page: [rows_of(page["items"], columns, whole=whole, leaves=leaves)]


def at(name: str) -> Callable[[Any], str]:
    """A column of instants."""
    return lambda item: instant(item[name])


def fields(values: Mapping[str, Any]) -> Table:
    """One thing, a field to a line; those that are empty are left out."""
    rows = [(name, shown(value)) for name, value in values.items()]
    return Table(("", " "), [row for row in rows if row[1] not in ("", "{}", "[]")], whole=("",), has_header=False)


def its_fields(answer: Mapping[str, Any]) -> list[Drawn]:
    return [fields(answer)]


def its_id(answer: Mapping[str, Any]) -> list[Drawn]:
    return [answer["id"]]


def say(*drawn: Drawn) -> None:
    """Prints tables, and text as it is: coloured and folded on a terminal, plain and whole in a pipe."""
    if sys.stdout.isatty():
        to = console()
        for part in drawn:
            to.print(rich_form(part if isinstance(part, str) or not part.has_header else part.fitted(to.width)))
        return
    for part in drawn:
        click.echo(part if isinstance(part, str) else plain_form(part))


def plain_form(drawn: Table) -> str:
    """A table in columns of plain text, nothing cut."""
    lines = [list(drawn.columns)] * drawn.has_header + [list(row) for row in drawn.rows]
    widths = [max((len(line[index]) for line in lines), default=0) for index in range(len(drawn.columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def rich_form(drawn: Drawn) -> RenderableType:
    """The table as it is drawn on a terminal."""
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(drawn, str):
        return Text(drawn)
    rich_table = RichTable(box=None, pad_edge=False, header_style="bold", show_edge=False, show_header=drawn.has_header)
    for index, name in enumerate(drawn.columns):
        is_name = not drawn.has_header and index == 0
        is_last = index == len(drawn.columns) - 1
        style = "bold" if is_name else drawn.styles.get(name, "")
        rich_table.add_column(name, no_wrap=not is_last, overflow="fold", style=style)
    for row in drawn.rows:
        rich_table.add_row(*[Text(cell, style=COLOURS.get(cell, "")) for cell in row])
    return rich_table


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def show(value: Any, draw: Callable[[Any], Sequence[Drawn]], *, as_json: bool) -> None:
    """One answer, for a person or for a program."""
    if as_json:
        print_json(value)
    else:
        say(*draw(value))


def show_list(
    fetch: Callable[[], Any],
    draw: Callable[[Any], Sequence[Drawn]],
    *,
    as_json: bool,
    watch: float | None = None,
) -> None:
    """A list once, or again and again; with `--json` each time one line."""
    if watch is None:
        page = fetch()
        show(page, draw, as_json=as_json)
        if not as_json:
            if page.get("next_cursor"):
                click.echo(f"There are more: --cursor {page['next_cursor']}", err=True)
            if page.get("items") == []:
                say_what_next()
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


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere; gives a function that takes the amount done and the total."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=1000, label=title, file=sys.stderr) as drawn:

        def told(done: int, total: int) -> None:
            drawn.update(min(1000, int(1000 * done / max(1, total))) - drawn.pos)

        yield told


NEXT = {
    "jobs": "No jobs yet. Submit one: holdbeat submit TYPE KEY=VALUE (holdbeat types lists the types).",
    "queue": "Nothing waits. Submit a job: holdbeat submit TYPE KEY=VALUE.",
    "groups": "No groups yet. Make one: holdbeat groups create @group.json.",
    "templates": "No templates yet. Make one: holdbeat templates create NAME TYPE KEY=VALUE.",
    "schedules": "No schedules yet. Make one: holdbeat schedules create NAME TYPE --cron '0 3 * * *'.",
    "endpoints": "No endpoints yet. Make one: holdbeat endpoints create NAME URL --interval 5m.",
    "occurrences": "It has not been due yet.",
    "webhooks": "Nobody is told yet. Subscribe: holdbeat webhooks create URL.",
    "deliveries": "No messages yet. They are sent when jobs end, to subscribers: holdbeat webhooks create URL.",
    "reservations": "No reservations yet. Make one: holdbeat direct TYPE, or holdbeat slot RESOURCE -- COMMAND.",
    "workers": "No worker is alive. Start one: holdbeat serve module:app, or holdbeat worker module:app.",
    "types": "No job types yet. Apps announce theirs when they start: holdbeat serve module:app.",
    "attention": "Nothing needs your attention.",
    "keys": "No API keys yet. Make one: holdbeat keys create --name NAME --scope write.",
}
"""What to do about an empty list, by its noun."""
_NO_FILTERS = ("store", "server", "key", "as_json", "watch", "limit", "every")


def say_what_next() -> None:
    """After an empty list one line, beside the output: what to do next, or that the filters found nothing."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    from_command_line = click.core.ParameterSource.COMMANDLINE
    options = [param.name for param in context.command.params if isinstance(param, click.Option)]
    if any(
        context.get_parameter_source(name) is from_command_line for name in options if name and name not in _NO_FILTERS
    ):
        hint = "Nothing fits these filters."
    else:
        noun = next((word for word in reversed(context.command_path.split()) if word in NEXT), "")
        hint = NEXT.get(noun, "There is nothing yet.")
    click.secho(hint, err=True, dim=True)


def confirm(sentence: str, *, yes: bool) -> None:
    """Asks before something that cannot be undone; without a terminal `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{sentence} Say --yes to do it.")
    try:
        click.confirm(f"{sentence} Go on?", abort=True, err=True)
    except click.Abort as no:
        if isinstance(no.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
