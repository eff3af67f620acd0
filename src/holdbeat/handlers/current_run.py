"""The run whose handler the current code belongs to, and what happens to its lines in the log of the process.

Async handlers, the tasks they start, thread handlers and `asyncio.to_thread` know their run by a context variable. A
`threading.Thread` that a handler starts by itself does not.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from holdbeat.domain.run import ErrorKind, Outcome, RunStatus

if TYPE_CHECKING:
    from holdbeat.handlers.context import Context

current_run: ContextVar[Context | None] = ContextVar("holdbeat_run", default=None)
in_hook: ContextVar[bool] = ContextVar("holdbeat_hook", default=False)
"""Whether the current code is a startup or shutdown function of an App."""

log = logging.getLogger("holdbeat.run")

_NO_FAULT: Final = frozenset({ErrorKind.CANCELLED, ErrorKind.INTERRUPTED, ErrorKind.THROTTLED})


def log_output(ctx: Context, source: str, text: str, level: int = logging.INFO) -> None:
    """Writes what a handler printed or logged to the log of the process, with the ids of job and run."""
    if log.isEnabledFor(level):
        for line in text.splitlines():
            log.log(level, "%s", line, extra={**_ids(ctx), "source": source})


def log_failure(ctx: Context, outcome: Outcome) -> None:
    """One line for a run that failed: type, title and error, and the traceback where debug lines are written."""
    if outcome.status is not RunStatus.FAILED:
        return
    level = logging.INFO if outcome.error_kind in _NO_FAULT else logging.WARNING
    if not log.isEnabledFor(level):
        return
    fields = {**_ids(ctx), "type": ctx.type, "title": ctx.title, "error_kind": str(outcome.error_kind)}
    name = ctx.type if ctx.title == ctx.type else f"{ctx.type} ({ctx.title})"
    words = (name, outcome.error)
    record = log.makeRecord(log.name, level, __file__, 0, "a run of %s failed: %s", words, None, extra=fields)
    if ctx.traceback and log.isEnabledFor(logging.DEBUG):
        record.exc_text = ctx.traceback
    log.handle(record)


def _ids(ctx: Context) -> dict[str, Any]:
    return {"job": ctx.job.id if ctx.job is not None else None, "run": ctx.run_id}


def record_text(record: logging.LogRecord) -> str:
    """A log record as a line of the run's log; the lines of its exception follow."""
    try:
        message = record.getMessage()
    except Exception:
        message = f"{record.msg} {record.args!r}"
    text = f"{record.levelname} {record.name}: {message}\n"
    if record.exc_info and record.exc_info[0] is not None:
        text += logging.Formatter().formatException(record.exc_info) + "\n"
    return text
