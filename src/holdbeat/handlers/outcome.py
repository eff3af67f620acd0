"""From what a handler returned or raised to the one Outcome of its run.

Guards EXE-02: there is no value and no exception, BaseException included, for which these functions raise.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from datetime import date
from enum import Enum
from typing import Any
from uuid import UUID

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import MAX_DEPTH, check_json, checked_text, storable_text
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.steps import MAX_STEP_BYTES
from holdbeat.handlers.context import Context, PermanentFailure, RateLimited, Skip
from holdbeat.handlers.to_json import simpler
from holdbeat.handlers.waits import Suspended

MAX_RESULT_BYTES = 10_485_760
MAX_ERROR_LENGTH = 4000
_TEXT = frozenset({str})
_PLAIN = frozenset({str, int, float, bool, type(None)})


def as_json(value: Any) -> Any:
    """A value of a handler as JSON: dataclasses, models, enums, times, sets and tuples are converted.

    Raises Invalid for what has no plain form, bytes above all: those belong into an artifact.
    """
    converted = _plain(value, "result", 0)
    check_json(converted, field="result", max_bytes=MAX_RESULT_BYTES)
    return converted


def step_value(name: str, value: Any) -> tuple[Any, str]:
    """The value of a step as JSON, and the text that the store keeps of it."""
    place = f"step {name!r}"
    converted = _plain(value, place, 0)
    return converted, checked_text(converted, place, MAX_STEP_BYTES)


def _plain(value: Any, place: str, depth: int) -> Any:
    if type(value) in _PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise Invalid(f"{place[:100]}… is nested deeper than {MAX_DEPTH} levels; flatten it.", code="too_deep")
    if type(value) is dict and _TEXT.issuperset(map(type, value)) and _PLAIN.issuperset(map(type, value.values())):
        return value.copy()
    further = simpler(value)
    if further is not value:
        return _plain(further, place, depth + 1)
    if isinstance(value, Mapping):
        return _object(value, place, depth)
    if isinstance(value, list | tuple):
        return [_plain(member, f"{place}[{index}]", depth + 1) for index, member in enumerate(value)]
    if isinstance(value, bytes | bytearray | memoryview):
        raise Invalid(
            f"{place} is bytes, which JSON cannot carry; keep it with ctx.artifact(name, data).",
            code="unserialisable_result",
        )
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise Invalid(
            f"{place} is a {type(value).__name__} that nobody awaited; declare the handler `async def`.",
            code="unserialisable_result",
        )
    raise Invalid(
        f"{place} is of the type {_type_name(type(value))}, which JSON cannot carry; return plain values, a dataclass "
        "or a model, or keep it with ctx.artifact(name, data).",
        code="unserialisable_result",
    )


def _object(value: Mapping[Any, Any], place: str, depth: int) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, member in value.items():
        text = _key(key, place)
        if text in converted:
            raise Invalid(f"{place} has two keys that are {text[:100]!r} in JSON.", code="unserialisable_result")
        converted[text] = _plain(member, f"{place}.{key}", depth + 1)
    return converted


def _key(key: Any, place: str) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int | float | bool | UUID | date) or key is None:
        return str(key)
    raise Invalid(
        f"{place} has a key of type {type(key).__name__}; keys of a JSON object are strings.",
        code="unserialisable_result",
    )


def outcome_of_value(ctx: Context, value: Any) -> Outcome:
    """COMPLETED with what the handler returned, or FAILED if that cannot be kept.

    A run that was suspended has not ended: `asyncio.gather(…, return_exceptions=True)` gives the suspension to its
    handler among the values.
    """
    if (waits := ctx.waits_of_suspension) is not None:
        return Outcome.continued(tuple(waits))
    try:
        return Outcome.completed(as_json(value))
    except Invalid as error:
        return Outcome.failed(ErrorKind.ERROR, storable_text(f"Unserialisable result: {error}", MAX_ERROR_LENGTH))
    except BaseException as error:  # a property or __iter__ of the value misbehaved
        return Outcome.failed(ErrorKind.ERROR, f"Unserialisable result: {describe(error)}")


def outcome_of_error(error: BaseException) -> Outcome:
    """How a run ends whose handler raised.

    An exception group counts as Skip, PermanentFailure or RateLimited if all that is in it is.
    """
    leaves = _leaves(error)
    suspended = [leaf for leaf in leaves if isinstance(leaf, Suspended)]
    if suspended and all(isinstance(leaf, Suspended) or type(leaf).__name__ == "CancelledError" for leaf in leaves):
        return Outcome.continued(tuple(suspended[0].waits))
    if all(isinstance(leaf, Skip) for leaf in leaves):
        return Outcome.skipped(storable_text("; ".join(_message(leaf) for leaf in leaves), MAX_ERROR_LENGTH))
    if all(isinstance(leaf, PermanentFailure) for leaf in leaves):
        reasons = "; ".join(_message(leaf) for leaf in leaves)
        text = reasons or "The handler raised PermanentFailure without a reason."
        return Outcome.failed(ErrorKind.REJECTED, storable_text(text, MAX_ERROR_LENGTH))
    waits = [leaf.retry_after_s for leaf in leaves if isinstance(leaf, RateLimited)]
    if waits and len(waits) == len(leaves):
        reasons = "; ".join(filter(None, map(_message, leaves))) or "The handler raised RateLimited"
        return Outcome.throttled(storable_text(reasons, MAX_ERROR_LENGTH), max(waits))
    return Outcome.failed(ErrorKind.ERROR, describe(error))


def describe(error: BaseException) -> str:
    """An exception's exact type and message, in a form that any store can hold."""
    text = f"{_type_name(type(error))}: {_message(error)}".removesuffix(": ")
    if isinstance(error, SystemExit):
        text += " (the handler called sys.exit, which is a failure whatever the code)"
    if isinstance(error, BaseExceptionGroup):
        text += " [" + "; ".join(describe(leaf) for leaf in _leaves(error)[:5]) + "]"
    return storable_text(text, MAX_ERROR_LENGTH)


def failed_with(ctx: Context, error: BaseException) -> Outcome:
    """`outcome_of_error`, with the traceback kept unless the handler was told to end or the error says why."""
    if isinstance(error, Exception) and (waits := ctx.waits_of_suspension) is not None:
        # It took the suspension for a value or a failure.
        return Outcome.continued(tuple(waits))
    outcome = outcome_of_error(error)
    if not ctx.cancelled and outcome.error_kind is ErrorKind.ERROR:
        ctx.traceback = traceback_text(error)
        ctx.write_log("stderr", ctx.traceback)
    return outcome


def traceback_text(error: BaseException) -> str:
    """The traceback for the run's log, without our own frames at its top."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("holdbeat.handlers."):
            trace = trace.tb_next
        return storable_text("".join(traceback.format_exception(type(error), error, trace)))
    except BaseException as failure:
        return f"(the traceback could not be written: {type(failure).__name__})\n"


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions within a group; without recursion, for a handler can nest groups as deep as it likes."""
    leaves, pending = [], [error]
    while pending:
        cause = pending.pop()
        if isinstance(cause, BaseExceptionGroup):
            pending.extend(reversed(cause.exceptions))
        else:
            leaves.append(cause)
    return leaves


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:
        return f"(its message could not be read: {type(failure).__name__})"


def _type_name(kind: type) -> str:
    if kind.__module__ == "builtins" or kind.__module__.startswith("holdbeat."):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
