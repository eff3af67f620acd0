"""The kept part of the body of an answer: JSON or text that every store takes, never more than the limit.

The invariant: memory does not grow with what the other side sends, and what comes out holds no NUL, no lone
surrogate, no NaN and no integer beyond 64 bits, because the store refuses all of these.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import check_json, storable_text

TRUNCATION_MARK = "… [truncated]"
MAX_DEPTH = 60

_TEXT_TYPE = re.compile(
    r"text/.*|.*\+(xml|yaml)|application/(xml|xml-dtd|javascript|ecmascript|x-javascript|yaml|x-yaml|toml"
    r"|graphql|sql|x-www-form-urlencoded|x-ndjson|ndjson|jsonl|x-jsonlines|json-seq)"
)
_JSON_TYPE = re.compile(r"(application|text)/json|.*\+json")
# Other codecs that Python knows are no charsets (rot13, zip) or take quadratic time (punycode).
_CHARSET = re.compile(
    r"utf-8(-sig)?|utf-(16|32)(-[lb]e)?|ascii|iso8859-\d+|cp\d+|koi8-[rtu]|mac-.*|shift_jis.*|euc_.*|gb.*|big5.*"
)


class Unreadable(Exception):
    """The body cannot be what its headers say."""


class BodyReader:
    """Takes a body in pieces, undoes gzip or deflate, and stops at `limit` decoded bytes."""

    def __init__(self, headers: dict[str, str], limit: int) -> None:
        self._limit = max(0, limit)
        self._kept = bytearray()
        self._has_ended = False
        self._has_begun = False
        self.truncated = False
        content_type, _, parameters = headers.get("content-type", "").partition(";")
        self._type = content_type.strip().lower()
        self._charset = _charset(parameters)
        self._encoding = headers.get("content-encoding", "").strip().lower()
        self._inflate: zlib._Decompress | None = None
        if self._encoding in ("gzip", "x-gzip"):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        elif self._encoding == "deflate":
            self._inflate = zlib.decompressobj()

    @property
    def is_full(self) -> bool:
        """Nothing that follows would change what is kept."""
        return self.truncated or self._has_ended

    def feed(self, chunk: bytes) -> None:
        """Takes the next piece as it came over the wire."""
        if self.is_full or not chunk:
            return
        # One byte more than may be kept tells a full body from a cut one.
        room = self._limit - len(self._kept) + 1
        self._kept += chunk[:room] if self._inflate is None else self._inflated(chunk, room)
        self._has_begun = True
        if len(self._kept) > self._limit:
            del self._kept[self._limit :]
            self.truncated = True

    def finish(self) -> tuple[Any, str | None]:
        """The body as JSON value or text, or None with a note that says why it was not kept."""
        if self._inflate is not None and self._has_begun and not self.is_full:
            raise Unreadable(f"The body ended in the middle of its {self._encoding} encoding.")
        if not self._kept and not self.truncated:
            return None, None
        if self._inflate is None and self._encoding not in ("", "identity"):
            return self._dropped(f"body not kept: it is encoded as {storable_text(self._encoding)[:64]}")
        is_json = _JSON_TYPE.fullmatch(self._type) is not None
        is_text = _TEXT_TYPE.fullmatch(self._type) or (not self._type and self._looks_like_text())
        if not is_json and not is_text:
            name = storable_text(self._type)[:128] or "the body"
            return self._dropped(f"body not kept: {name} is neither JSON nor text")
        text = storable_text(
            codecs.getincrementaldecoder(self._charset)("replace").decode(self._kept, not self.truncated)
        )
        text = text.removeprefix("\ufeff")
        if is_json and not self.truncated:
            try:
                return _parsed(text), None
            except (Invalid, ValueError, RecursionError):
                pass  # kept as the text that it is
        return self._cut(text), None

    def _dropped(self, note: str) -> tuple[None, str]:
        self.truncated = False
        return None, note

    def _inflated(self, chunk: bytes, room: int) -> bytes:
        assert self._inflate is not None
        try:
            data = self._inflate.decompress(chunk, room)
        except zlib.error as error:
            if self._encoding != "deflate" or self._has_begun:
                raise Unreadable(f"The body is not valid {self._encoding}: {error}.") from None
            # Some servers send deflate without its zlib frame.
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            self._has_begun = True
            return self._inflated(chunk, room)
        self._has_ended = self._inflate.eof
        return data

    def _looks_like_text(self) -> bool:
        try:
            codecs.getincrementaldecoder("utf-8")("strict").decode(self._kept, not self.truncated)
        except UnicodeDecodeError:
            return False
        return 0 not in self._kept

    def _cut(self, text: str) -> str:
        # Replacement characters and other charsets may need more bytes than came in.
        encoded = text.encode()
        if not self.truncated and len(encoded) <= self._limit:
            return text
        self.truncated = True
        mark = TRUNCATION_MARK.encode()
        if len(mark) > self._limit:
            return encoded[: self._limit].decode("utf-8", "ignore")
        return encoded[: self._limit - len(mark)].decode("utf-8", "ignore") + TRUNCATION_MARK


def _charset(parameters: str) -> str:
    match = re.search(r"""charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", parameters, re.IGNORECASE)
    if match is None:
        return "utf-8"
    try:
        name = codecs.lookup(match[1]).name
    except LookupError:
        return "utf-8"
    return name if _CHARSET.fullmatch(name) else "utf-8"


def _parsed(text: str) -> Any:
    value = _clean(json.loads(text))
    check_json(value, field="body", max_depth=MAX_DEPTH, max_bytes=None)
    return value


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {storable_text(key): _clean(item) for key, item in value.items()} if isinstance(value, dict) else value
