"""Configures where log lines go, and in which form.

`configure` touches only the logger `holdbeat`, because the root belongs to the program around us; `configure_process`
is for processes that are Holdbeat's own.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

from holdbeat.domain.errors import SettingsError
from holdbeat.observe.log_formats import JsonFormatter, TextFormatter
from holdbeat.observe.log_writer import QueuedHandler
from holdbeat.observe.process_output import capture_output, release_output

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


def configure(level: str = "info", format: str = "text", stream: TextIO | None = None) -> logging.Handler:
    """Sends the logger `holdbeat` and all below it to `stream` (standard error), and nowhere else.

    Lines are written by a thread of the handler's own; `flush` writes what waits. Called again, it replaces what it set
    before.
    """
    if level not in LEVELS:
        raise SettingsError(f"log_level {level!r} is not known; choose {', '.join(LEVELS)}.", field="log_level")
    if format not in FORMATS:
        raise SettingsError(f"log_format {format!r} is not known; choose {', '.join(FORMATS)}.", field="log_format")
    logger = logging.getLogger("holdbeat")
    for old in [handler for handler in logger.handlers if isinstance(handler, QueuedHandler)]:
        logger.removeHandler(old)
        old.flush()
    handler = QueuedHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


def configure_process(level: str = "info", format: str = "text") -> None:
    """`configure` for a process of Holdbeat's own, where the log is also that of handlers and libraries.

    Their records are written in the same format: all of a run and of a startup or shutdown function, and warnings of
    anybody. A program that has set up its own handlers keeps them. With the format json nothing else reaches the
    stream: what anything writes to standard output or standard error becomes a record.
    """
    if format == "json":
        stream = capture_output()
    else:
        release_output()
        stream = sys.__stderr__
    logger = configure(level, format, stream)
    assert isinstance(logger, QueuedHandler)
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, QueuedHandler) or (format == "json" and _writes_to_terminal(handler)):
            root.removeHandler(handler)
    if not root.handlers:
        handler = QueuedHandler(logger.stream)
        handler.setFormatter(logger.formatter)
        handler.addFilter(lambda record: hasattr(record, "holdbeat_run") or record.levelno >= logging.WARNING)
        root.addHandler(handler)
        root.setLevel(min(logging.WARNING, logging.getLevelName(level.upper())))


def _writes_to_terminal(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (
        sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__,
    )  # fmt: skip
