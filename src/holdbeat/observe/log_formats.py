"""The two forms of a log line: one JSON object or one line of text for each record, whatever the record contains.

Guards F12 and SEC-07: no text of others can begin a second line or send the terminal a command, and nothing that looks
like a secret is written.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from holdbeat.domain.clock import iso
from holdbeat.domain.log_text import one_line
from holdbeat.domain.redaction import may_have_secrets, without_secrets

if TYPE_CHECKING:
    from holdbeat.store.event_lines import Lines

FIELDS: Final = (
    "event", "job", "run", "worker", "fence", "group", "schedule", "type", "title", "error_kind", "source", "data",
)  # fmt: skip
"""What our records carry beside their message."""


class JsonFormatter(logging.Formatter):
    """One JSON object in one line of ASCII: at, level, logger, message, the known fields, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(_message(record)),
        }
        line.update((name, _clean(value)) for name, value in _fields(record))
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
            words += [f"{name}={one_line(str(_clean(value)))}" for name, value in _fields(record)]
        lines = [" ".join(words)]
        exception = _exception(self, record)
        if exception:
            lines += [f"    {one_line(line)}" for line in without_secrets(exception).splitlines()]
        return "\n".join(lines)

    def format_together(self, base: logging.LogRecord, lines: Lines) -> list[str]:
        """The lines of one commit, without a record for each of them: a tenth of the time."""
        if lines.safe_texts is not None:
            begin = f"{_at(base)} {base.levelname:<7} {base.name} "
            return [begin + text for text in lines.safe_texts()]
        listed = list(lines.make())
        begins = {
            level: f"{_at(base)} {logging.getLevelName(level):<7} {base.name} "
            for level in {line[0] for line in listed}
        }
        texts = [text for _, text, _ in listed]
        if may_have_secrets("\n".join(texts)):
            texts = [without_secrets(text) for text in texts]
        return [
            begins[line[0]] + (text if text.isprintable() else one_line(text))
            for line, text in zip(listed, texts, strict=True)
        ]

    def _text(self, record: logging.LogRecord) -> str:
        text = without_secrets(_message(record))
        # Event lines are escaped already; escaping them again would double their backslashes.
        return text if hasattr(record, "event") and text.isprintable() else one_line(text)


@lru_cache(maxsize=4)
def _iso(created: float) -> str:
    return iso(datetime.fromtimestamp(created, UTC))


def _fields(record: logging.LogRecord) -> list[tuple[str, Any]]:
    """The known fields of a record; those of a handler's own records have the names that `handler_output` gave them."""
    values = record.__dict__
    pairs = [(name, values.get(f"holdbeat_{name}", values.get(name))) for name in FIELDS]
    return [(name, value) for name, value in pairs if value is not None]


def _at(record: logging.LogRecord) -> str:
    """When it was logged. The lines of one commit have the same instant."""
    return _iso(record.created)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # A record whose arguments do not fit its message is logged nevertheless.
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
            return {str(key): _clean(member) for key, member in value.items()}
        case list() | tuple():
            return [_clean(member) for member in value]
        case int() | float() | None:
            return value
    return without_secrets(str(value))
