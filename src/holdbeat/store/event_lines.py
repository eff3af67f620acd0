"""Events as log lines: what was committed, told once more to whoever reads logs (OPS-04).

Guards the commit: a line is written only after it, and nothing that goes wrong with the line reaches the store. Where
nobody listens at this level, a commit costs one look at the logger.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from holdbeat.domain import events
from holdbeat.domain.log_text import one_line
from holdbeat.store.event_batches import EVENT_COLUMNS
from holdbeat.store.transaction import Row

log = logging.getLogger("holdbeat.events")

LEVELS: Final = {
    events.JOB_QUEUED: logging.DEBUG,
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
    events.SCHEDULE_WARNED: logging.WARNING,
    events.CLOCK_JUMPED: logging.WARNING,
    events.WEBHOOK_FAILED: logging.WARNING,
    events.WEBHOOK_DISABLED: logging.WARNING,
}
"""All others are told at INFO."""
_LOUD = frozenset(name for name, level in LEVELS.items() if level >= logging.WARNING)
_IDS = ("job", "run", "worker", "group", "schedule")
assert tuple(f"{name}_id" for name in _IDS) == EVENT_COLUMNS[2:7]


def log_events(committed: Sequence[Row]) -> None:
    """One line for each Event, with the ids of job, run, worker and fence as fields of the record."""
    if not log.isEnabledFor(logging.INFO) and (
        not log.isEnabledFor(logging.WARNING) or _LOUD.isdisjoint([row[0] for row in committed])
    ):
        return
    for row in committed:
        level = LEVELS.get(row[0], logging.INFO)
        if log.isEnabledFor(level):
            _log(level, row)


def _log(level: int, row: Row) -> None:
    name = row[0]
    fields: dict[str, Any] = {"event": name}
    fields.update((key, value) for key, value in zip(_IDS, row[2:7], strict=True) if value is not None)
    data = row[7]
    if data:
        known = json.loads(data)
        fence = known.pop("fence", None)
        if fence is not None:
            fields["fence"] = fence
        if known:
            fields["data"] = known
    words = [f"{key}={value}" for key, value in fields.items() if key not in ("event", "data")]
    words += [f"{key}={_word(value)}" for key, value in fields.get("data", {}).items()]
    # Made by hand: the logger would look for its caller on the stack, which takes as long as all the rest.
    text = one_line(" ".join([name, *words]))
    log.handle(log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None, "log_events", fields))


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value, ensure_ascii=False)
