"""The built-in job type `http`: one HTTP call, judged by its status code alone (GOV-10).

The invariant: only a complete 2xx answer is a success. A redirect is a failure and is not followed, because
the address that it names was never asked for; a target that may not be called is rejected, never retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdbeat.domain.bounds import check_number
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.endpoint import METHODS, retry_after
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.params import storable_text
from holdbeat.domain.redaction import (
    HEADER_NAME,
    HEADER_VALUE,
    MAX_HEADER_LENGTH,
    MAX_HEADERS,
    REDACTED,
    check_headers,
    sent_secrets,
    without_echoes,
)
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.handlers.context import Context
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.outbound import Answer, Outbound, OutboundFailure
from holdbeat.handlers.outcome import MAX_ERROR_LENGTH
from holdbeat.handlers.stop import StopSignal
from holdbeat.schemas.field_bounds import LARGEST_RESPONSE_KB, LONGEST_CALL_S

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_RESPONSE_KB: Final = 100

_SECRET_ANSWER_HEADERS: Final = ("set-cookie", "set-cookie2")

HTTP_PARAMS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["url"],
    "additionalProperties": False,
    "properties": {
        "url": {"type": "string", "minLength": 1, "maxLength": 8192, "format": "x-url"},
        "method": {"type": "string", "enum": list(METHODS), "default": "GET"},
        "headers": {
            "type": ["object", "null"],
            "format": "x-headers",
            "maxProperties": MAX_HEADERS,
            "propertyNames": {"pattern": HEADER_NAME},
            "additionalProperties": {
                "type": "string",
                "maxLength": MAX_HEADER_LENGTH,
                "pattern": HEADER_VALUE,
            },
        },
        "body": {"description": "A string is sent as it is, anything else as JSON, null as no body."},
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": LONGEST_CALL_S,
            "default": DEFAULT_TIMEOUT_S,
        },
        "max_response_kb": {
            "type": "integer",
            "minimum": 1,
            "maximum": LARGEST_RESPONSE_KB,
            "default": DEFAULT_RESPONSE_KB,
        },
    },
}


@dataclass(frozen=True, slots=True)
class HttpParams:
    """The params of an `http` job, checked and completed."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Any = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_response_kb: int = DEFAULT_RESPONSE_KB


FailureWord = Literal["error", "timeout", "rejected"]


class HttpFailure(Exception):
    """The call failed. `kind` is the error_kind of the run, `result` what is known of the answer, if any."""

    def __init__(self, message: str, kind: FailureWord, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.kind: FailureWord = kind
        self.result = result

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.kind, self.result)


def validate_http_params(params: Mapping[str, Any]) -> HttpParams:
    """Refuses params that `http` cannot work with. Whether the URL may be called is for Outbound to say."""
    properties = HTTP_PARAMS_SCHEMA["properties"]
    for name in params:
        if name not in properties:
            raise Invalid(f"An http job has no param {name!r}; it knows {', '.join(properties)}.", field=name)
    url = params.get("url")
    if not isinstance(url, str) or not url:
        raise Invalid("An http job needs a url; give it as a string.", field="url")
    method = params.get("method", "GET")
    if method not in METHODS:
        raise Invalid(f"The method must be one of {', '.join(METHODS)}.", field="method")
    timeout_s = check_number(params.get("timeout_s", DEFAULT_TIMEOUT_S), "timeout_s", 0, LONGEST_CALL_S)
    if timeout_s == 0:
        raise Invalid("timeout_s must be above 0.", field="timeout_s")
    size, largest = params.get("max_response_kb", DEFAULT_RESPONSE_KB), LARGEST_RESPONSE_KB
    if check_number(size, "max_response_kb", 1, largest) % 1:
        raise Invalid(f"max_response_kb must be a whole number from 1 to {largest}.", field="max_response_kb")
    return HttpParams(
        url=url,
        method=method,
        headers=check_headers(params.get("headers")),
        body=params.get("body"),
        timeout_s=float(timeout_s),
        max_response_kb=int(size),
    )


async def call_http(outbound: Outbound, params: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the call and returns {status_code, headers, body, truncated, duration_s}; raises HttpFailure."""
    try:
        call = validate_http_params(params)
    except Invalid as refusal:
        raise HttpFailure(refusal.detail, "rejected") from None
    content, content_type = _encoded(call.body)
    headers = dict(call.headers)
    if content_type is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = content_type
    try:
        answer = await outbound.call(
            call.method,
            call.url,
            headers=headers,
            content=content,
            deadline_s=call.timeout_s,
            max_body_bytes=call.max_response_kb * 1024,
        )
    except OutboundFailure as failure:
        kinds: dict[str, FailureWord] = {"timeout": "timeout", "refused_target": "rejected"}
        raise HttpFailure(failure.reason, kinds.get(failure.kind, "error")) from failure
    result = _result(answer, sent_secrets(call.headers))
    if 200 <= answer.status_code < 300:
        return result
    if 300 <= answer.status_code < 400:
        raise HttpFailure(
            f"HTTP {answer.status_code}: redirects are not followed; call the final address.", "error", result
        )
    raise HttpFailure(f"HTTP {answer.status_code}", "error", result)


def _result(answer: Answer, secrets: Sequence[str]) -> dict[str, Any]:
    """The answer without secrets: its own, and those of ours that it sends back (SEC-07)."""
    headers = {name: REDACTED if name in _SECRET_ANSWER_HEADERS else value for name, value in answer.headers.items()}
    result = {
        "status_code": answer.status_code,
        "headers": without_echoes(headers, secrets),
        "body": without_echoes(answer.body, secrets),
        "truncated": answer.truncated,
        "duration_s": answer.duration_s,
    }
    if answer.note is not None:
        result["note"] = answer.note
    return result


def _encoded(body: Any) -> tuple[bytes | None, str | None]:
    if body is None:
        return None, None
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace"), "application/json"


_KINDS = {"timeout": ErrorKind.TIMEOUT, "rejected": ErrorKind.REJECTED}


class HttpHandler:
    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._clock = SystemClock()

    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        loop = asyncio.get_running_loop()
        call = asyncio.ensure_future(self._call(params))

        def told() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call.cancel)

        unsubscribe = stop.subscribe(told)
        try:
            return stop.verdict(await call)
        except asyncio.CancelledError:
            if not stop.is_set:
                call.cancel()
                raise
            return stop.verdict(Outcome.failed(ErrorKind.ERROR, "the call was broken off."))
        finally:
            unsubscribe()

    async def _call(self, params: Mapping[str, Any]) -> Outcome:
        try:
            return Outcome.completed(await call_http(self._outbound, params))
        except HttpFailure as failure:
            text, now = storable_text(str(failure), MAX_ERROR_LENGTH), self._clock.now()
            until = retry_after(failure.result, now)
            if until is not None:
                return Outcome.throttled(text, (until - now).total_seconds(), result=failure.result)
            return Outcome.failed(_KINDS.get(failure.kind, ErrorKind.ERROR), text, result=failure.result)
        except HoldbeatError as error:
            return Outcome.failed(ErrorKind.REJECTED, storable_text(str(error), MAX_ERROR_LENGTH))
        except Exception as error:
            return Outcome.failed(ErrorKind.ERROR, storable_text(f"{type(error).__name__}: {error}", MAX_ERROR_LENGTH))


def http_job_type(outbound: Outbound) -> JobType:
    return JobType(
        name="http",
        function=None,
        schema=HTTP_PARAMS_SCHEMA,
        is_async=True,
        resource=HTTP_RESOURCE,
        partition="url",
        description="Calls a URL; success is a 2xx answer.",
        handler=HttpHandler(outbound),
    )
