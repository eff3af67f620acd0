"""The W3C traceparent: which texts are one, and how a span is written as one. Pure; who traces is decided elsewhere."""

from __future__ import annotations

import re
from typing import Any

TRACEPARENT = re.compile(r"00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")


def is_traceparent(text: str) -> bool:
    """Whether this is a W3C traceparent of version 00 that names a span."""
    match = TRACEPARENT.fullmatch(text)
    return match is not None and int(match["trace"], 16) != 0 and int(match["span"], 16) != 0


def valid_traceparent(text: str | None) -> str | None:
    """A traceparent that a caller has sent; None if there is none, or it is not one."""
    return text if text is not None and is_traceparent(text) else None


def written(context: Any) -> str | None:
    """The traceparent of a SpanContext of OpenTelemetry; None if it names no span."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
