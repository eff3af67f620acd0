"""Events as log lines: each committed Event is logged once, in the level that its name has (OPS-04).

Guards the commit: lines are written after it, and an error in a log handler never reaches the store. The committing
thread only selects the rows; their lines are formatted and written by the log's own thread where the log has one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdbeat.domain import events
from holdbeat.domain.log_text import one_line
from holdbeat.store.event_batches import EVENT_COLUMNS
from holdbeat.store.transaction import Row

log = logging.getLogger("holdbeat.events")

LEVELS: Final = {
    events.JOB_QUEUED: logging.DEBUG,
    events.JOB_CLAIMED: logging.DEBUG,
    events.RUN_ENDED: logging.DEBUG,
    events.JOB_CHANGED: logging.DEBUG,
    events.JOB_MOVED: logging.DEBUG,
    events.RUN_OVERDUE: logging.WARNING,
    events.RETRIES_EXHAUSTED: logging.WARNING,
    events.LEASE_EXPIRED: logging.WARNING,
    events.STALE_RESULT: logging.WARNING,
    events.ZOMBIE_FOUND: logging.WARNING,
    events.RECOVERY_ACTED: logging.WARNING,
    events.RESERVATION_EXPIRED: logging.WARNING,
    events.SCHEDULE_MISSED: logging.WARNING,
    events.DUPLICATE_REFUSED: logging.WARNING,
    events.SCHEDULE_WARNED: logging.WARNING,
    events.CLOCK_JUMPED: logging.WARNING,
    events.WEBHOOK_FAILED: logging.WARNING,
    events.WEBHOOK_DISABLED: logging.WARNING,
}
"""All others are logged at INFO. The worker that executed a run logs its end at INFO (engine/run_lines.py)."""
_IDS = ("job", "run", "worker", "group", "schedule")
assert tuple(f"{name}_id" for name in _IDS) == EVENT_COLUMNS[2:7]

Line = tuple[int, str, Callable[[], dict[str, Any]]]
"""Level, text, and what makes the fields of the record, where the log has fields."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The log lines of one commit. They are made by the thread that writes them."""

    level: int
    """The highest of theirs."""
    count: int
    make: Callable[[], Iterable[Line]]
    safe_texts: Callable[[], list[str]] | None = None
    """Their texts, where all lines have the same level and consist of ids, names and numbers alone: there is nothing
    in them to escape or to hide, so a text log can write them as they are."""


def log_events(committed: Sequence[Row]) -> None:
    """Logs one line for each Event, with the ids of job, run, worker and fence as fields of the record."""
    level_of = LEVELS.get
    lowest = log.getEffectiveLevel()
    rows = [row for row in committed if level_of(row[0], logging.INFO) >= lowest]
    if rows:
        highest = max(level_of(row[0], logging.INFO) for row in rows)
        log_together(log, Lines(highest, len(rows), lambda: [_line(row) for row in rows]))


def log_together(logger: logging.Logger, lines: Lines) -> None:
    """Logs the lines of one commit.

    A handler with `handle_later` takes all of them in one call and formats them in its own thread. For any other
    handler the records are made here.
    """
    if not logger.isEnabledFor(lines.level):
        return
    base = logger.makeRecord(logger.name, lines.level, __file__, 0, "", (), None, "log_together")
    handlers = _handlers_of(logger)
    handle_later = getattr(handlers[0], "handle_later", None) if len(handlers) == 1 else None
    if handle_later is not None and not logger.filters and not logger.disabled:
        handle_later(base, lines)
        return
    for record in records_of(base, lines.make()):
        logger.handle(record)


def records_of(base: logging.LogRecord, lines: Iterable[Line]) -> list[logging.LogRecord]:
    """A record for each line, as a copy of `base`: the constructor costs more than the rest of the line."""
    records = []
    for level, text, fields in lines:
        record = object.__new__(type(base))
        record.__dict__.update(base.__dict__, msg=text, **fields())
        if level != base.levelno:
            record.levelno, record.levelname = level, logging.getLevelName(level)
        records.append(record)
    return records


def _handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    current: logging.Logger | None = logger
    while current is not None:
        handlers += current.handlers
        current = current.parent if current.propagate else None
    return handlers


def _line(row: Row) -> Line:
    name = row[0]
    fields: dict[str, Any] = {"event": name}
    fields.update((key, value) for key, value in zip(_IDS, row[2:7], strict=True) if value is not None)
    if row[7]:
        data = json.loads(row[7])
        fence = data.pop("fence", None)
        if fence is not None:
            fields["fence"] = fence
        if data:
            fields["data"] = data
    words = [f"{key}={value}" for key, value in fields.items() if key not in ("event", "data")]
    words += [f"{key}={_word(value)}" for key, value in fields.get("data", {}).items()]
    return LEVELS.get(name, logging.INFO), one_line(" ".join([name, *words])), lambda: fields


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value, ensure_ascii=False)
