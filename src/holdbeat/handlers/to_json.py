"""Python values on their way to JSON: params that a program gives, results that a handler returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from holdbeat.domain.clock import iso
from holdbeat.domain.params import MAX_DEPTH

_PLAIN = frozenset({str, int, float, bool})


def simpler(value: Any) -> Any:
    """One step towards JSON: the plain value of an enum, a time, a dataclass, a model or a set; anything else
    unchanged."""
    if value is None or type(value) in (str, int, float, bool, dict, list, tuple):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return iso(value) if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | PurePath | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        members = [simpler(member) for member in value]
        try:
            return sorted(members)
        except TypeError:
            return members
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    for kind in (str, bool, int, float):
        # A subclass of a plain type, such as numpy's float64.
        if isinstance(value, kind):
            return kind(value)
    return value


def as_params(value: Any, depth: int = 0) -> Any:
    """Params as a program gives them, in their plain forms; what has none is left for the check to refuse."""
    if value is None or type(value) in _PLAIN:
        return value
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
        return value.copy()
    value = simpler(value)
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: as_params(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [as_params(member, depth + 1) for member in value]
    return value if type(value) in (str, int, float, bool) or value is None else _simplest(value, depth)


def _simplest(value: Any, depth: int) -> Any:
    """An enum of dates is a date is a text; a value that gets no simpler is its own end."""
    further = simpler(value)
    return value if further is value else as_params(further, depth + 1)
