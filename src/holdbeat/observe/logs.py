"""Log lines: one JSON object or one line of text for each record, whatever the record contains.

Guards F12 and SEC-07: no text of others can begin a second line or send the terminal a command, and nothing that looks
like a secret is written. Only the logger `holdbeat` is touched; the root belongs to the program around us.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import SettingsError
from holdbeat.domain.log_text import one_line
from holdbeat.domain.redaction import without_secrets

FIELDS: Final = ("event", "job", "run", "worker", "fence", "group", "schedule", "data")
"""What our records carry beside their message."""
LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


class JsonFormatter(logging.Formatter):
    """One JSON object in one line of ASCII: at, level, logger, message, the known fields, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(_message(record)),
        }
        given = record.__dict__
        line.update((name, _clean(given[name])) for name in FIELDS if given.get(name) is not None)
        exception = _exception(self, record)
        if exception:
            line["exception"] = without_secrets(exception)
        # Whatever is not ASCII is escaped by JSON; the one control character within ASCII above space is DEL.
        return json.dumps(line, default=repr, separators=(",", ":")).replace("\x7f", "\\u007f")


class TextFormatter(logging.Formatter):
    """One line for people: time, level, logger, message; the lines of an exception follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_at(record), f"{record.levelname:<7}", record.name, self._text(record)]
        # An event's message has its fields in it already.
        if not hasattr(record, "event"):
            words += [
                f"{name}={one_line(str(_clean(record.__dict__[name])))}"
                for name in FIELDS
                if record.__dict__.get(name) is not None
            ]
        lines = [" ".join(words)]
        exception = _exception(self, record)
        if exception:
            lines += [f"    {one_line(line)}" for line in without_secrets(exception).splitlines()]
        return "\n".join(lines)

    def _text(self, record: logging.LogRecord) -> str:
        text = without_secrets(_message(record))
        # Event lines come escaped; to escape them again would double their backslashes.
        return text if hasattr(record, "event") and text.isprintable() else one_line(text)


def configure(level: str = "info", format: str = "text", stream: TextIO | None = None) -> logging.Handler:
    """Sends the logger `holdbeat` and all below it to `stream` (standard error), and nowhere else.

    Called again, it replaces what it set before.
    """
    if level not in LEVELS:
        raise SettingsError(f"log_level {level!r} is not known; choose {', '.join(LEVELS)}.", field="log_level")
    if format not in FORMATS:
        raise SettingsError(f"log_format {format!r} is not known; choose {', '.join(FORMATS)}.", field="log_format")
    ours = logging.getLogger("holdbeat")
    for old in [handler for handler in ours.handlers if isinstance(handler, _OurHandler)]:
        ours.removeHandler(old)
    handler = _OurHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    ours.addHandler(handler)
    ours.setLevel(level.upper())
    ours.propagate = False
    return handler


class _OurHandler(logging.StreamHandler[TextIO]):
    """The handler that `configure` sets, so that it can be told from a program's own."""


def _at(record: logging.LogRecord) -> str:
    return iso(datetime.fromtimestamp(record.created, UTC))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # Arguments that do not fit their message must not cost us the line.
        return f"{record.msg} {record.args!r}"


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _clean(value: Any) -> Any:
    """A field's value with the secrets in its texts replaced."""
    match value:
        case str():
            return without_secrets(value)
        case dict():
            return {str(key): _clean(each) for key, each in value.items()}
        case list() | tuple():
            return [_clean(each) for each in value]
        case int() | float() | None:
            return value
    return without_secrets(str(value))
