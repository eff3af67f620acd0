"""JSON that both stores can hold, or a refusal that says where it went wrong.

Guards SEC-06: whatever passes here is stored, read back and compared equal on SQLite and on PostgreSQL alike,
and whatever cannot be is refused with the same sentence before any store sees it. No input makes this module
raise anything but the errors of `domain/errors.py`: it never recurses, and never trusts a length.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

from holdbeat.domain.errors import Invalid, Malformed
from holdbeat.domain.json_text import json_writer

MAX_DEPTH = 64
ENVELOPE_DEPTH = 3
"""What a body may wrap around params of the greatest depth: {jobs: [{params}]}."""
MAX_PARAMS_BYTES = 262_144
MAX_LABELS = 64
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
dumps = json_writer(sort_keys=True, allow_nan=False)
"""The one written form of a checked JSON value: compact, keys sorted."""


def request_hash(obj: Any) -> str:
    """A fingerprint that two requests share only if they ask for the same (QUE-01)."""
    return hashlib.sha256(dumps(obj).encode()).hexdigest()


def check_json(value: Any, *, field: str, max_depth: int = MAX_DEPTH, max_bytes: int | None = MAX_PARAMS_BYTES) -> None:
    """Refuses a value that one of the stores could not keep as it is.

    Depth counts the containers around the innermost value; size is that of the compact UTF-8 text.
    """
    if type(value) is dict and max_bytes is not None and max_depth:
        size = _plain_size(value)
        if size is not None and (size <= max_bytes or len(dumps(value).encode()) <= max_bytes):
            return
    _check_members(value, field, max_depth, max_bytes)
    if max_bytes is not None and len(dumps(value).encode()) > max_bytes:
        raise _too_big(field, max_bytes)


def checked_text(value: Any, field: str, max_bytes: int) -> str:
    """`check_json` for a value whose written form is needed afterwards: that is made once."""
    if type(value) is not dict or _plain_size(value) is None:
        _check_members(value, field, MAX_DEPTH, max_bytes)
    text = dumps(value)
    if len(text) * 4 > max_bytes and len(text.encode()) > max_bytes:
        raise _too_big(field, max_bytes)
    return text


def _check_members(value: Any, field: str, max_depth: int, max_bytes: int | None) -> None:
    pending: list[tuple[Any, str, int]] = [(value, field, 0)]
    count = 0
    while pending:
        item, place, depth = pending.pop()
        count += 1
        # Every value takes a byte at least, so this also ends the walk through a structure that shares or
        # contains itself.
        if max_bytes is not None and count > max_bytes:
            raise _too_big(field, max_bytes)
        if item is None or item is True or item is False:
            continue
        if isinstance(item, str):
            _check_string(item, place)
        elif isinstance(item, int):
            if not INT_MIN <= item <= INT_MAX:
                raise _big_integer(place)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise _not_finite(place)
        elif isinstance(item, dict):
            if depth >= max_depth:
                raise _too_deep(field, max_depth)
            if max_bytes is not None and len(item) > max_bytes:
                raise _too_big(field, max_bytes)
            for key, member in item.items():
                if not isinstance(key, str):
                    raise Invalid(
                        f"{place} has a key of type {type(key).__name__}; keys of a JSON object are strings.",
                        code="invalid_json",
                        field=place,
                    )
                _check_string(key, place)
                # A long name would be copied for every item below it.
                pending.append((member, f"{place}.{key[:200]}" if len(place) < 200 else place, depth + 1))
        elif isinstance(item, list | tuple):
            if depth >= max_depth:
                raise _too_deep(field, max_depth)
            if max_bytes is not None and len(item) > max_bytes:
                raise _too_big(field, max_bytes)
            pending.extend((member, f"{place}[{index}]", depth + 1) for index, member in enumerate(item))
        else:
            raise Invalid(
                f"{place} is of the type {type(item).__name__}, which JSON cannot carry; send a string, number, "
                "boolean, null, list or object.",
                code="invalid_json",
                field=place,
            )


def _plain_size(value: dict[Any, Any]) -> int | None:
    """If the members are ASCII texts and numbers, as most are: how long they are at the most; None says nothing."""
    if len(value) > 64:
        return None
    letters = 0
    for name, member in value.items():
        kind = type(member)
        if type(name) is not str or not name.isascii() or "\x00" in name:
            return None
        letters += len(name)
        if kind is str:
            if not member.isascii() or "\x00" in member:
                return None
            letters += len(member)
        elif kind is int:
            if not INT_MIN <= member <= INT_MAX:
                return None
        elif kind is not bool and member is not None:
            return None
    # A letter takes six at the most (an escape), a number twenty, and there are quotes, colon and comma.
    return 6 * letters + 26 * len(value) + 2


def _check_string(text: str, place: str) -> None:
    if "\x00" in text:
        raise Invalid(
            f"{storable_text(place)} contains the character NUL, which cannot be stored; remove it, or send base64.",
            code="invalid_text",
            field=storable_text(place),
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Invalid(
                f"{storable_text(place)} contains half of a surrogate pair; send whole characters.",
                code="invalid_text",
                field=storable_text(place),
            ) from None


def _too_big(field: str, max_bytes: int) -> Invalid:
    return Invalid(
        f"{field} is larger than {max_bytes:,} bytes; store the data elsewhere and pass a reference to it.",
        code="params_too_large",
        field=field,
    )


def _too_deep(field: str, max_depth: int) -> Invalid:
    return Invalid(f"{field} is nested deeper than {max_depth} levels; flatten it.", code="too_deep", field=field)


def _big_integer(place: str) -> Invalid:
    return Invalid(
        f"{place} is an integer beyond 64 bits; send it as a string.",
        code="invalid_number",
        field=storable_text(place),
    )


def _not_finite(place: str) -> Invalid:
    return Invalid(
        f"{place} is not a finite number; NaN and Infinity do not exist in JSON. Send null or a string.",
        code="invalid_number",
        field=storable_text(place),
    )


def check_text(value: Any, field: str, max_length: int, *, min_length: int = 1, multiline: bool = False) -> str:
    """A name, label or sentence from outside: bounded, storable, and on one line unless told otherwise."""
    if not isinstance(value, str):
        raise Invalid(f"{field} must be a string.", code="invalid_text", field=field)
    if not min_length <= len(value) <= max_length:
        raise Invalid(
            f"{field} must have {min_length} to {max_length} characters; it has {len(value)}.",
            code="invalid_text",
            field=field,
        )
    _check_string(value, field)
    if not multiline and _CONTROL.search(value):
        raise Invalid(
            f"{field} contains a control character such as a line break; keep it on one line.",
            code="invalid_text",
            field=field,
        )
    return value


def check_labels(value: Any, *, field: str = "labels") -> dict[str, str]:
    """A map from names to short strings."""
    if not isinstance(value, dict):
        raise Invalid(f"{field} must be an object of strings.", code="invalid_labels", field=field)
    if len(value) > MAX_LABELS:
        raise Invalid(f"{field} may have at most {MAX_LABELS} entries.", code="invalid_labels", field=field)
    for key, text in value.items():
        check_text(key, field, 100)
        check_text(text, f"{field}.{key}", 500, min_length=0)
    return value


def storable_text(text: str, max_length: int | None = None) -> str:
    """Text of unknown origin (an error, a log line) made fit for both stores rather than refused."""
    if "\x00" in text or not text.isascii():
        text = _UNSTORABLE.sub("�", text)
    if max_length is not None and len(text) > max_length:
        text = text[: max_length - 1] + "…"
    return text


# -- reading request bodies --------------------------------------------------------------------------------


class _Reader:
    """Hooks for one parse. They take note of what is wrong and go on, because a body that is not JSON at all
    is refused as such (400), whatever else is wrong with it (422)."""

    def __init__(self) -> None:
        self.complaint: Invalid | None = None

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            name = storable_text(twice, 100)
            self.complaint = Invalid(
                f"The key {name!r} occurs twice in one object; send it once.", code="duplicate_key"
            )
        return members

    def constant(self, name: str) -> None:
        self.complaint = _not_finite(f"A number in the body ({name})")
        self.complaint.field = None

    def integer(self, digits: str) -> int:
        if len(digits) > 20:
            self.complaint = _big_integer("A number in the body")
            self.complaint.field = None
            return 0
        return int(digits)


_PERHAPS_UNFIT = re.compile(r"\\u|[0-9]{18}|[0-9][eE]\+?[0-9]{3}")
"""Where NUL, half of a surrogate pair, an integer beyond 64 bits or a number that is not finite may be."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


def _constant(name: str) -> None:
    raise ValueError(name)


_decoder = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant)
# json.loads makes one for each text, which takes as long as a short text does.


def loads_strict(body: bytes | str) -> Any:
    """Reads a JSON text from outside.

    Raises Malformed if it is not JSON, Invalid if it is JSON that cannot be kept: duplicate keys, NaN,
    integers beyond 64 bits, NUL, lone surrogates, nesting deeper than 64. Size is the caller's to limit.
    """
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("The body is not UTF-8 text; send JSON encoded as UTF-8.") from None
    if (
        isinstance(body, bytes)
        and _PERHAPS_UNFIT.search(text) is None
        and text.count("{") + text.count("[") <= MAX_DEPTH  # as many as the text is deep, or more
    ):
        # Nothing in it can be unfit but a key that occurs twice.
        try:
            return _decoder.decode(text)
        except ValueError:
            pass
    reader = _Reader()
    try:
        value = _parse(text, reader, None)
    except json.JSONDecodeError as error:
        raise _malformed(error) from None
    except RecursionError:
        if not _is_well_formed(text):
            raise Malformed("The body is not valid JSON: it opens more than it closes, or worse.") from None
        raise _too_deep("body", MAX_DEPTH) from None
    except ValueError:
        # Python refuses to read an integer of thousands of digits; read on to learn whether the rest is JSON.
        try:
            value = _parse(text, reader, reader.integer)
        except json.JSONDecodeError as error:
            raise _malformed(error) from None
        except RecursionError:
            raise _too_deep("body", MAX_DEPTH) from None
    if reader.complaint is not None:
        raise reader.complaint
    check_json(value, field="body", max_depth=MAX_DEPTH + ENVELOPE_DEPTH, max_bytes=None)
    return value


def _parse(text: str, reader: _Reader, parse_int: Any) -> Any:
    return json.loads(text, object_pairs_hook=reader.pairs, parse_constant=reader.constant, parse_int=parse_int)


def _malformed(error: json.JSONDecodeError) -> Malformed:
    return Malformed(f"The body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.")


_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"'
    r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
    r"|true|false|null|NaN|-?Infinity"
)


def _is_well_formed(text: str) -> bool:
    """Whether the text is JSON, however deep: a scanner with its own stack in place of Python's."""
    skip, scalar = _SPACE.match, _SCALAR.match
    closers: list[str] = []
    at, end = 0, len(text)

    def spaced(position: int) -> int:
        blanks = skip(text, position)
        return blanks.end() if blanks else position

    def key(position: int) -> int:
        """Past `"name":` and the space after it, or -1."""
        text_of_key = scalar(text, position) if text.startswith('"', position) else None
        position = spaced(text_of_key.end()) if text_of_key else -1
        return spaced(position + 1) if text_of_key and text.startswith(":", position) else -1

    at = spaced(at)
    while True:
        # A value is due at `at`.
        opener = text[at : at + 1]
        if opener in ("[", "{") and opener:
            closer = "]" if opener == "[" else "}"
            at = spaced(at + 1)
            if not text.startswith(closer, at):
                closers.append(closer)
                at = key(at) if closer == "}" else at
                if at < 0:
                    return False
                continue
            at += 1
        else:
            token = scalar(text, at)
            if not token:
                return False
            at = token.end()
        # A value has ended: close what closes here, or go on to the next member.
        while True:
            at = spaced(at)
            if not closers:
                return at == end
            if text.startswith(closers[-1], at):
                closers.pop()
                at += 1
                continue
            if not text.startswith(",", at):
                return False
            at = spaced(at + 1)
            if closers[-1] == "}":
                at = key(at)
                if at < 0:
                    return False
            break
