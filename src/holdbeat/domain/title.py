"""The title of a Job: one line that tells a person what it is about (TTL-01).

Guards what is shown in lists: no secret, no control character, never more than one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from holdbeat.domain.errors import Invalid
from holdbeat.domain.redaction import REDACTED, without_secrets

LONGEST_TITLE = 120
_LONGEST_VALUE = 60
_HOLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME = re.compile(
    r"(?i)pass(word|wd|phrase)|pwd|secret|token|api_?-?key|private_?key|auth(?!ors?(?:_|$))|credential|cookie|session"
)
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]+")


def job_title(
    type_: str,
    params: Mapping[str, Any],
    *,
    title: str | None = None,
    pattern: str | None = None,
    schedule_name: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> str:
    """The given title, else the type's pattern filled in, else the schedule's name, else a short form of the params."""
    if title is not None:
        text = title
    elif pattern is not None:
        text = _filled(pattern, params, schema or {})
    elif schedule_name is not None:
        text = schedule_name
    elif type_ == "http" and isinstance(params.get("url"), str):
        text = f"{params.get('method') or 'GET'} {_address(params['url'])}"
    else:
        text = _short_form(params)
    return one_line(text) or type_


def one_line(text: str) -> str:
    """Text of any origin as one visible line of at most 120 characters, without secrets."""
    text = text[: 4 * LONGEST_TITLE]
    if not text.isprintable():
        text = _INVISIBLE.sub(" ", text)
    line = without_secrets(" ".join(text.split()))
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


def check_pattern(pattern: Any, names: Iterable[str], *, takes_others: bool) -> str:
    """Refuses a title pattern that names a param which the type does not take."""
    if not isinstance(pattern, str) or not pattern.strip() or len(pattern) > LONGEST_TITLE:
        raise Invalid(
            f"title must be a text of 1 to {LONGEST_TITLE} characters, such as 'Story: {{prompt}}'.",
            code="bad_job_type",
            field="title",
        )
    params = list(names)
    for name in _HOLE.findall(pattern):
        if name not in params and not takes_others:
            raise Invalid(
                f"title names the param {name}, which this job type does not take; it takes "
                f"{', '.join(params) or 'none'}.",
                code="bad_job_type",
                field="title",
            )
    return pattern


def _filled(pattern: str, params: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties", {})

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in params:
            return _value(name, params[name], LONGEST_TITLE)
        return _value(name, properties.get(name, {}).get("default", ""), LONGEST_TITLE)

    return _HOLE.sub(value, pattern)


def _short_form(params: Mapping[str, Any]) -> str:
    parts: list[str] = []
    length = 0
    for name, value in params.items():
        text = _value(name, value, _LONGEST_VALUE)
        if text in ("", REDACTED):
            continue
        parts.append(f"{name}={text}")
        length += len(parts[-1])
        if length > LONGEST_TITLE:
            break
    return ", ".join(parts)


def _value(name: str, value: Any, longest: int) -> str:
    """One param in a few characters; of a list or an object only its size."""
    if type(value) is int:
        return str(value)[:longest]
    if isinstance(value, str) and value and _SECRET_NAME.search(name):
        return REDACTED
    if isinstance(value, str):
        text = _address(value) if "://" in value[:12] else value
        return text if len(text) <= longest else text[: longest - 1] + "…"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{len(value)}]"
    if isinstance(value, Mapping):
        return "{…}" if value else "{}"
    return "" if value is None else str(value)[:longest]


def _address(url: str) -> str:
    """A URL without its user, password, query and fragment, which may hold secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + ("?…" if parts.query else "")
