"""JSON as text: compact, and encoded without building an encoder for every value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def json_writer(*, sort_keys: bool, allow_nan: bool) -> Callable[[Any], str]:
    """A function that writes values without cycles."""
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=allow_nan, sort_keys=sort_keys, separators=(",", ":"), check_circular=False
    )
    make_chunks = getattr(json.encoder, "c_make_encoder", None)
    if make_chunks is None:
        return encoder.encode
    # JSONEncoder.encode makes this for every value, which takes longer than encoding a small value.
    chunks = make_chunks(
        None, encoder.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, allow_nan
    )
    return lambda value: "".join(chunks(value, 0))


json_text = json_writer(sort_keys=False, allow_nan=True)
"""The written form of answers: members in the order of their schema."""
