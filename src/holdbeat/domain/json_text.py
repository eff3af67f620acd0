"""The written form of answers: compact JSON, members in the order of their schema."""

from __future__ import annotations

import json
from typing import Any

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
_make_chunks = getattr(json.encoder, "c_make_encoder", None)
# JSONEncoder.encode builds this anew for every answer, which takes longer than many a field.
_chunks = _make_chunks and _make_chunks(
    None, _encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, True
)


def json_text(value: Any) -> str:
    """A checked value as JSON."""
    return "".join(_chunks(value, 0)) if _chunks else _encoder.encode(value)
