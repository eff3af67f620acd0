"""Templates and the words and marks that they share.

Guards SEC-03 on the way out: everything that was not written here is escaped, and nothing needs an inline script or
style. A state is always an icon and a word, never a colour alone.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.schedule import INDEFINITE
from holdbeat.domain.timetable import clock_change
from holdbeat.observe.wording import counted, span
from holdbeat.web.charts import slot_name

LONGEST_JSON = 200_000
_SECONDS = re.compile(r"\b([1-9][0-9]{2,}(?:\.[0-9]+)?) s\b")
_TOLD = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)(?P<distance> \((?:in [^()]{1,20}|[^()]{1,20} ago|now)\))?"
    r"|(?<=the question )(?P<question>[0-9a-f]{8}-[0-9a-f-]{27}, )"
    r"|(?P<noun>\b[Jj]ob |\b[Dd]irect request )(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})"
)


def environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("holdbeat.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "span": _span,
        "brief": _brief,
        "spans": _spans,
        "zip_self": lambda values: [(value, value) for value in values],
        "pretty": _pretty,
        "shell": shlex.quote,
        "clock_change": clock_change,
        "short": short,
        "headline": headline,
        "bytes": _bytes,
        "clock": _clock,
        "exact": exact,
        "percent": lambda fraction: f"{100 * fraction:.0f}",
        "number": lambda amount: f"{amount:,}",
        "labels": lambda labels: ", ".join(f"{name}={value}" for name, value in labels.items()),
        "minute": _minute,
        "clock_s": lambda at: _instant(at).timestamp(),
        "iso": lambda at: iso(_instant(at)),
    }
    jinja.globals |= {
        "when": when,
        "running_for": running_for,
        "told": told,
        "counted": counted,
        "slot_name": slot_name,
        "short": short,
        "curl": curl,
    }
    return jinja


def short(id_: str | None) -> str:
    """The end of an id, which tells ids of one moment apart."""
    return "" if id_ is None else id_[-8:]


def headline(text: str) -> str:
    """The first line of a text that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _instant(at: datetime | str) -> datetime:
    return from_iso(at) if isinstance(at, str) else at


@pass_context
def _minute(context: Context, at: datetime | str | None) -> str:
    """An instant in the reader's zone as an input of type datetime-local takes it; nothing for none."""
    return "" if at is None else _instant(at).astimezone(context["zone"]).strftime("%Y-%m-%dT%H:%M")


def _span(amount_s: float | None) -> str:
    if amount_s is None:
        return "–"
    return f"{1000 * amount_s:.0f} ms" if 0.0005 <= amount_s < 0.1 else span(amount_s)


def _distance(amount_s: float) -> str:
    """How far an instant is, as `times.js` has it: no seconds beside minutes, and beyond ten of a unit that alone."""
    amount_s = abs(amount_s)
    if amount_s < 59.5:
        return f"{int(amount_s + 0.5)} s"
    minutes = int(amount_s / 60 + 0.5)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 600:
        return f"{minutes // 60} h {minutes % 60} min".removesuffix(" 0 min")
    hours = int(minutes / 60 + 0.5)
    if hours < 24:
        return f"{hours} h"
    return f"{hours // 24} d {hours % 24} h".removesuffix(" 0 h") if hours < 240 else f"{int(hours / 24 + 0.5)} d"


def _spans(text: str) -> str:
    """A sentence with its long numbers of seconds in larger units."""
    return _SECONDS.sub(lambda match: span(float(match[1])), text)


def _brief(amount_s: float) -> str:
    """A duration in one unit, for the end of an axis."""
    if amount_s < 1:
        return f"{1000 * amount_s:g} ms"
    if amount_s < 120:
        return f"{amount_s:g} s"
    return f"{amount_s / 60:.0f} min" if amount_s < 7200 else f"{amount_s / 3600:.0f} h"


@pass_context
def _clock(context: Context, at: datetime | str | None) -> str:
    """A time of day in the reader's zone, with its date unless that is today."""
    if at is None:
        return "–"
    local = _instant(at).astimezone(context["zone"])
    is_today = local.date() == context["now"].astimezone(context["zone"]).date()
    return local.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


@pass_context
def exact(context: Context, at: datetime | str) -> str:
    """An instant to the millisecond in the reader's zone, which is named."""
    local = _instant(at).astimezone(context["zone"])
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d} {context['zone'].key}"


@pass_context
def when(context: Context, at: datetime | str | None, otherwise: str = "–") -> Markup | str:
    """An instant as its distance from now, the exact time beside it; the browser keeps the distance true."""
    if at is None:
        return otherwise
    instant = _instant(at)
    if instant >= INDEFINITE:
        return "until resumed"
    now: datetime = context["now"]
    distance_s = (instant - now).total_seconds()
    if abs(distance_s) < 1:
        words = "now"
    else:
        words = f"in {_distance(distance_s)}" if distance_s > 0 else f"{_distance(distance_s)} ago"
    return Markup('<time datetime="{}" title="{}" data-when>{}</time>').format(
        iso(instant), exact(context, instant), words
    )


@pass_context
def curl(context: Context, path: str, body: Any) -> str:
    """A command that does the action of a page through the API, ready to paste into a terminal."""
    key = ' -H "authorization: Bearer $HOLDBEAT_KEY"' if context["has_keys"] else ""
    return f"curl {context['address']}{path}{key} -H 'content-type: application/json' -d '{json.dumps(body)}'"


@pass_context
def running_for(context: Context, since: datetime | str | None) -> Markup | str:
    """How long something has lasted, counted on by the browser."""
    if since is None:
        return "–"
    instant = _instant(since)
    words = span(round(max(0.0, (context["now"] - instant).total_seconds())))
    return Markup('<time datetime="{}" title="since {}" data-since>{}</time>').format(
        iso(instant), exact(context, instant), words
    )


def ids_told(texts: Iterable[str]) -> set[str]:
    """The ids of the jobs and direct requests that explanations name."""
    return {match["id"] for text in texts for match in _TOLD.finditer(text) if match["id"]}


@pass_context
def told(
    context: Context, text: str, own_id: str | None = None, titles: Mapping[str | None, str] | None = None
) -> Markup:
    """An explanation for the eye: instants as times that stay true, jobs as links, this job by no number.

    `titles` are those of the jobs and direct requests that it names, if the page has none for all.
    """
    titles = context.get("titles", {}) if titles is None else titles
    parts: list[str | Markup] = []
    place = 0
    for match in _TOLD.finditer(text):
        parts.append(escape(text[place : match.start()]))
        place = match.end()
        if match["question"] is not None:
            # The question itself follows; its id is for the API.
            continue
        if match["id"] is None:
            parts.append(_moment(context, from_iso(match["at"]), match["distance"] is not None))
        elif match["id"] == own_id:
            parts.append({"Job ": "This job", "job ": "this job"}.get(match["noun"], "It"))
        else:
            place_of = "jobs" if match["noun"].lower() == "job " else "reservations"
            name = titles.get(match["id"]) or f"{match['noun']}{short(match['id'])}"
            link = Markup('<a href="/ui/{}/{}" title="{}">{}</a>')
            parts.append(link.format(place_of, match["id"], match["id"], name))
    return Markup("").join([*parts, escape(text[place:])])


def _moment(context: Context, at: datetime, has_distance: bool) -> Markup:
    title = exact(context, at)
    clock = Markup('<time datetime="{}" title="{}">{}</time>').format(iso(at), title, _clock(context, at))
    return clock + Markup(" ({})").format(when(context, at)) if has_distance else clock


def _pretty(value: Any) -> Markup:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(text) > LONGEST_JSON:
        text = text[:LONGEST_JSON] + "\n… cut here; the API has the whole."
    return escape(text)


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
