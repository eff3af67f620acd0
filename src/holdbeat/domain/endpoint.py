"""The Endpoint: an adaptive Schedule whose work is an HTTP call, and the figures of its health.

Guards the two deadlines: the call's own ends before the Job's, and the Job's within half an hour, so that a
silent server can hold a slot only for a time that somebody chose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from holdbeat.domain.address import check_form
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.redaction import check_headers
from holdbeat.domain.run import LONGEST_RETRY_AFTER_S, RunStatus
from holdbeat.domain.webhook import parse_retry_after
from holdbeat.schemas.field_bounds import LONGEST_URL

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HTTP_TYPE = "http"

_OUTSIDE_URL = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")


@dataclass(slots=True)
class EndpointCall:
    """The HTTP call that an Endpoint makes."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    timeout_s: float = 30.0
    """Deadline of the HTTP exchange."""
    max_execution_s: float = 60.0
    """The Job's timeout: the exchange and all that surrounds it."""
    max_response_kb: int = 100


def validate_call(call: EndpointCall) -> None:
    """Refuses a call that cannot be made; where it may lead is checked when it is made.

    Numbers were checked when they were read (`schedule_edit.py`).
    """
    _validate_url(call.url)
    if call.method not in METHODS:
        raise Invalid(f"method must be one of {', '.join(METHODS)}.", code="invalid_method", field="method")
    check_headers(call.headers)
    if call.timeout_s > call.max_execution_s:
        raise Invalid(
            f"timeout_s ({call.timeout_s:g}) must not exceed max_execution_s ({call.max_execution_s:g}): "
            "lower the one or raise the other.",
            code="timeout_exceeds_execution",
            field="timeout_s",
        )


def _validate_url(url: Any) -> None:
    def refuse(why: str) -> Invalid:
        return Invalid(f"url {why}", code="invalid_url", field="url")

    if not isinstance(url, str) or not 1 <= len(url) <= LONGEST_URL:
        raise refuse(f"must be a text of at most {LONGEST_URL} characters.")
    if _OUTSIDE_URL.search(url):
        raise refuse("must not contain blanks, backslashes or control characters; percent-encode them.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse("cannot be read: check its host and port.") from None
    if parts.scheme not in ("http", "https"):
        raise refuse("must begin with http:// or https://.")
    if not host or port == 0:
        raise refuse("must name a host, such as https://example.org/path.")
    if parts.username is not None or parts.password is not None:
        # A url is shown in lists and logs; the Authorization header is redacted there.
        raise refuse("must not carry credentials; send them in the Authorization header.")
    try:
        check_form(url)
    except Invalid as refusal:
        raise Invalid(refusal.detail, code="invalid_url", field="url") from None


ASKS_TO_WAIT = (429, 503)


def retry_after(result: Any, now: datetime) -> datetime | None:
    """Until when the server of a failed call wants no other call: the Retry-After header of a 429 or 503.

    `result` is what the run kept of the answer. The header has a number of seconds or a date; anything else counts as
    not sent.
    """
    if not isinstance(result, dict) or result.get("status_code") not in ASKS_TO_WAIT:
        return None
    headers = result.get("headers")
    values = [value for name, value in headers.items() if name.lower() == "retry-after"] if headers else []
    if not values or not isinstance(values[0], str):
        return None
    wait_s = parse_retry_after(values[0], now=now, longest_s=LONGEST_RETRY_AFTER_S)
    return now + timedelta(milliseconds=round(wait_s * 1000)) if wait_s else None


HEALTH_WINDOWS = {"1h": 3600, "4h": 4 * 3600, "24h": 24 * 3600}

EndedRun = tuple[str, datetime, datetime | None]
"""Status, start and end of one run."""


def health(runs: Iterable[EndedRun], now: datetime) -> dict[str, Any]:
    """How an endpoint did lately, from its scheduled runs in any order.

    Each window counts the runs that ended in it. `streak` is how many of the newest ended alike; skipped runs
    neither count nor break it, and runs that still execute are left out.
    """
    ended = sorted(
        ((str(status), started, finished) for status, started, finished in runs if status and finished),
        key=lambda run: (run[2], run[1]),
        reverse=True,
    )
    counted = [run for run in ended if run[0] in (RunStatus.COMPLETED, RunStatus.FAILED)]
    return {
        "windows": {
            name: _figures(counted, now - timedelta(seconds=length)) for name, length in HEALTH_WINDOWS.items()
        },
        "streak": _streak([status for status, _, _ in counted]),
        "last_run": _last_run(ended[0]) if ended else None,
    }


def _figures(runs: list[tuple[str, datetime, datetime]], since: datetime) -> dict[str, Any]:
    inside = [(status, (finished - started).total_seconds()) for status, started, finished in runs if finished > since]
    successes = sum(status == RunStatus.COMPLETED for status, _ in inside)
    return {
        "successes": successes,
        "failures": len(inside) - successes,
        "mean_duration_s": round(sum(took for _, took in inside) / len(inside), 3) if inside else None,
    }


def _streak(newest_first: list[str]) -> dict[str, Any] | None:
    if not newest_first:
        return None
    length = next((n for n, status in enumerate(newest_first) if status != newest_first[0]), len(newest_first))
    return {"status": newest_first[0], "length": length}


def _last_run(run: tuple[str, datetime, datetime]) -> dict[str, Any]:
    status, started, finished = run
    return {
        "status": status,
        "started_at": iso(started),
        "finished_at": iso(finished),
        "duration_s": round((finished - started).total_seconds(), 3),
    }
