"""Reads typed arguments into values that the API takes: params, labels, instants, durations.

Guards literalness: nothing is evaluated. A value is JSON if it is JSON, and otherwise the text that it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdbeat.domain.bounds import duration_s
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.params import dumps

if TYPE_CHECKING:
    from holdbeat.cli.backend import Backend

T = TypeVar("T")


def typed(text: str) -> Any:
    """`3` is a number, `true` a truth value, `"3"` and `fox` are texts, `[1,2]` a list."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> Any:
    raise ValueError(name)


def untyped(value: Any) -> str:
    """What `typed` reads as the value: a text is put in quotes only if it would be taken for something else."""
    return value if isinstance(value, str) and typed(value) == value else dumps(value)


def pairs(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words as an object with typed values."""
    values: dict[str, Any] = {}
    for name, value in _named(words, "Write params as key=value, e.g. words=500."):
        if name in values:
            raise click.UsageError(f"{name} is given twice. Give it once.")
        values[name] = typed(value)
    return values


def labels(words: Sequence[str]) -> dict[str, str]:
    """`name=value` words as labels, which are always texts."""
    return dict(_named(words, "Write a label as name=value."))


def headers(words: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` words as headers of a call."""
    return dict(_named(words, "Write a header as NAME=VALUE, e.g. Accept=text/plain."))


def _named(words: Sequence[str], advice: str) -> Iterator[tuple[str, str]]:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{word!r} is not understood. {advice}")
        yield name, value


def json_text(source: str, *, what: str) -> Any:
    """JSON from the word itself, from a file (`@file`), or from the input (`-`)."""
    if source == "-":
        text = sys.stdin.read()
    elif source.startswith("@"):
        try:
            text = Path(source[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise click.UsageError(f"{source[1:]} cannot be read: {reason}.") from error
    else:
        text = source
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON ({error}). Write JSON, @file, or - for the input.") from error


def json_object(source: str, *, what: str) -> dict[str, Any]:
    value = json_text(source, what=what)
    if not isinstance(value, dict):
        raise click.UsageError(f"{what} must be a JSON object such as {{}}.")
    return value


def params_of(words: Sequence[str], source: str | None) -> dict[str, Any]:
    """Params from `--params` with the single ones over them."""
    return {**(json_object(source, what="--params") if source else {}), **pairs(words)}


class Duration(click.ParamType[float]):
    """Seconds, or text such as 90s, 10m, 1h30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return duration_s(str(value))
        except Invalid:
            self.fail(f"{value!r} is no duration. Write seconds, or a text such as 90s, 10m or 1h30m.", param, ctx)


DURATION = Duration()


class Instant(click.ParamType[str]):
    """An instant; one without a zone is local time, and is sent in UTC."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            at = datetime.fromisoformat(text)
            if at.tzinfo is not None:
                return text
            meant = iso(at.astimezone(UTC))
        except (ValueError, OverflowError):
            # What is no instant is refused where instants are checked, in the same words for everybody.
            return text
        click.echo(f"{text} is taken as local time: {meant[:19].replace('T', ' ')}Z.", err=True)
        return meant


INSTANT = Instant()


def without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


def send_as_meant(
    backend: Backend,
    words: Sequence[str],
    request: Mapping[str, Any],
    send: Callable[[Mapping[str, Any]], T],
    *,
    field: str = "params",
) -> T:
    """Sends a request; if its params are refused, once more with texts for what fits as a text alone.

    A value that looks like JSON is taken as JSON wherever that fits, and as the text that was typed only where nothing
    else does: `prompt=5` is the text 5 if the job type takes texts alone. So a type that takes both gets the number.
    """
    try:
        return send(request)
    except HoldbeatError as refused:
        if not (refused.field or "").startswith(f"{field}."):
            raise
        meant = {**request[field], **_texts(_schema(backend, request), words)}
        if meant == request[field]:
            raise
    return send({**request, field: meant})


def _schema(backend: Backend, request: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the job type that a request names, itself or by its template."""
    type_name = request.get("type")
    if type_name is None:
        template = request.get("template") or request.get("template_id")
        type_name = None if template is None else backend.get_template(template)["type"]
    for item in backend.job_types()["items"]:
        if type_name in (item["name"], *item["aliases"]):
            return dict(item["schema"])
    return {}


def _texts(schema: dict[str, Any], words: Sequence[str]) -> dict[str, str]:
    from holdbeat.domain.schema import matches

    texts = {}
    properties = schema.get("properties", {})
    for word in words:
        name, _, text = word.partition("=")
        part = properties.get(name)
        value = typed(text)
        if part is None or isinstance(value, str) or matches(part, value, root=schema):
            continue
        if matches(part, text, root=schema):
            texts[name] = text
    return texts
