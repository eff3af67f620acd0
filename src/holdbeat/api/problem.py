"""Refusals as `application/problem+json`: the one place where an error becomes an answer (API-01)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from holdbeat.domain.errors import (
    Conflict,
    Forbidden,
    HoldbeatError,
    Invalid,
    Malformed,
    NotFound,
    Stale,
    StoreRefused,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from holdbeat.domain.json_text import json_text
from holdbeat.domain.params import storable_text
from holdbeat.engine.direct_execution import WaitedTooLong
from holdbeat.operations.direct import HandlerFailed, Interrupted

PROBLEM = "application/problem+json"
JSON = "application/json"
PART = 250
"""So many items of a list are encoded at once."""

_STATUS: dict[type[HoldbeatError], int] = {
    Malformed: 400,
    TooLarge: 413,
    Invalid: 422,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Stale: 412,
    TooManyRequests: 429,
    Unavailable: 503,
    StoreRefused: 503,
    WaitedTooLong: 504,
    HandlerFailed: 502,
}


class Misdirected(HoldbeatError):
    """The request names a host that this server is not (HTTP 421)."""

    default_code = "misdirected"


_STATUS[Misdirected] = 421


def encode(value: Any) -> bytes:
    """A checked value as JSON bytes; text that cannot be UTF-8 was refused when it came in."""
    return json_text(value).encode("utf-8", "replace")


async def encode_in_turns(value: dict[str, Any]) -> bytes:
    """`encode` for an answer that may be a list of many items: other requests go on after each part of it."""
    items = value.get("items", ())
    if len(items) <= PART or len(value) > 1:
        return encode(value)
    parts = []
    for first in range(0, len(items), PART):
        parts.append(encode(items[first : first + PART])[1:-1])
        await asyncio.sleep(0)
    return b'{"items":[' + b",".join(parts) + b"]}"


class JsonAnswer(Response):
    """A response whose headers are written at once: most answers have only these."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [
            *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()),
            (b"content-length", b"%d" % len(body)),
            (b"content-type", JSON.encode()),
        ]


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JsonAnswer(encode(value), status, headers or {})


def status_of(error: HoldbeatError) -> int:
    """The HTTP status of an error; 500 for those that are nobody's answer."""
    for kind in type(error).__mro__:
        if kind in _STATUS:
            return _STATUS[kind]
    return 500


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    field: str | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """One refusal: a stable code for programs, a sentence for people."""
    body: dict[str, Any] = {
        "type": f"urn:holdbeat:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": storable_text(detail, 2000),
        "code": code,
    }
    if field is not None:
        body["field"] = storable_text(field, 300)
    return Response(encode({**body, **more}), status, headers, PROBLEM)


def wrong_method(allowed: Collection[str]) -> Response:
    """The refusal of a method that a path does not take; what GET takes, HEAD takes too."""
    methods = {*allowed, "HEAD"} if "GET" in allowed else set(allowed)
    sentence = "This path does not take that method; the header Allow lists those that it takes."
    return problem(405, "method_not_allowed", sentence, headers={"Allow": ", ".join(sorted(methods))})


def refusal(error: HoldbeatError) -> Response:
    """The answer to a request that Holdbeat refuses on purpose."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="holdbeat"'
    elif status in (429, 503) and not isinstance(error, Interrupted):
        headers["Retry-After"] = "1"
    more = {name: value for name, value in error.ids.items() if isinstance(value, str | int)}
    return problem(status, error.code, error.detail, field=error.field, headers=headers, **more)
