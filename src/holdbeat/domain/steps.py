"""Steps: named pieces of a handler whose values are kept for the whole chain of its job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.bounds import check_printable_name
from holdbeat.domain.errors import Invalid

MAX_STEP_BYTES = 10_485_760
RESERVED = "$"
"""Names that begin with it belong to sleeps, waits and children."""


def check_step_name(name: str) -> str:
    """Refuses names that could be taken for another step's, or that a list could not show."""
    check_printable_name(name, "step")
    if name.startswith(RESERVED) or "#" in name:
        raise Invalid(
            f"A step's name does not begin with {RESERVED} and has no # in it: a name that is used again becomes "
            f"name#2 by itself. Choose another name than {name!r}.",
            code="invalid_step_name",
            field="name",
        )
    return name


def numbered(name: str, number: int) -> str:
    """The key of the n-th use of a name in one run."""
    return name if number == 1 else f"{name}#{number}"


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that a handler has begun and that is not kept yet."""

    name: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    value: Any
    size: int
    started_at: datetime
    duration_s: float
    run_id: str
