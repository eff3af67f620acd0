"""Addresses, headers and queries as both clients write and read them."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Mapping
from typing import Any

from holdbeat.domain.errors import Unavailable
from holdbeat.domain.traceparent import written

DEFAULT_URL = "http://127.0.0.1:7450"


def server_url(url: str | None) -> str:
    """The address of the server, from HOLDBEAT_SERVER if none is given; refused if it is not a valid URL."""
    url = (url or os.environ.get("HOLDBEAT_SERVER") or DEFAULT_URL).rstrip("/")
    if not url.lower().startswith(("http://", "https://")):
        raise Unavailable(
            f"{url!r} is no address of a server. Write it with http:// or https://, e.g. "
            f"http://{url.rpartition('://')[2] or '127.0.0.1:7450'}.",
            code="bad_url",
        )
    return url


def headers_of(key: str | None) -> dict[str, str]:
    """The headers of every request."""
    headers = {"User-Agent": "holdbeat-client", "Accept": "application/json"}
    return {**headers, "Authorization": f"Bearer {key}"} if key else headers


def trace_headers(otherwise: str | None) -> dict[str, str]:
    """The span in which the caller is, if the program traces with OpenTelemetry; it has imported it itself then.

    `otherwise` is the traceparent of a caller that is in no span.
    """
    trace: Any = sys.modules.get("opentelemetry.trace")
    traceparent = otherwise if trace is None else written(trace.get_current_span().get_span_context()) or otherwise
    return {} if traceparent is None else {"traceparent": traceparent}


def query_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Query parameters without None; booleans as the API writes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }


def trust_of(url: str) -> ssl.SSLContext | bool:
    """The certificate authorities to trust. None without TLS: loading them takes longer than the rest of a command."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else True


def retry_after(headers: Mapping[str, str]) -> float | None:
    """In how many seconds a request may be sent again, where the server says so."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def unreachable(url: str, error: Exception) -> Unavailable:
    """The error for a server that does not answer."""
    return Unavailable(
        f"The server {url} cannot be reached ({str(error) or type(error).__name__}). Check the address, and "
        "that `holdbeat serve` runs there.",
        code="unreachable",
    )
