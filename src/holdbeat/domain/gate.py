"""A Gate: a path of the server whose requests are passed on to an upstream while a slot is held (GATE-01).

Guards that the upstream is the operator's choice alone: of a request only the rest of its path and its query are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from holdbeat.domain.errors import Invalid

WAIT_S = 300.0
TIMEOUT_S = 600.0
SETTLE_S = 5.0
MAX_BODY_MB = 64.0
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
"""Headers that are about one connection, and not about what is sent over it."""
_FIELDS = ("upstream", "resource", "wait_s", "timeout_s", "settle_s", "max_body_mb", "free")

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Gate:
    path: str
    """Where it is on this server, e.g. `/ollama`."""
    upstream: str
    resource: str
    wait_s: float = WAIT_S
    """How long a request waits for a slot."""
    timeout_s: float = TIMEOUT_S
    """How long the upstream may send nothing."""
    settle_s: float = SETTLE_S
    """How long the upstream has to end a request that was cut off."""
    max_body_mb: float = MAX_BODY_MB
    free: tuple[str, ...] = ()
    """Paths behind the gate that need no slot; one that ends with `/*` stands for all below it."""

    def is_free(self, path: str) -> bool:
        """Whether a request for this path, without that of the gate, passes without a slot."""
        return any(path.startswith(free[:-1]) if free.endswith("/*") else path == free for free in self.free)


def gate_of(path: str, values: Mapping[str, Any]) -> Gate:
    """A checked Gate from the settings."""
    for name in values:
        if name not in _FIELDS:
            raise _refused(path, f"there is no {name}; a gate has {', '.join(_FIELDS)}")
    upstream, resource = values.get("upstream"), values.get("resource")
    if not isinstance(upstream, str) or not _is_plain_url(upstream):
        raise _refused(path, 'upstream is an address such as "http://127.0.0.1:11434"')
    if not isinstance(resource, str) or not resource.strip():
        raise _refused(path, "resource names the resource whose slots its requests take")
    free = values.get("free", ())
    if not isinstance(free, list | tuple) or not all(
        isinstance(prefix, str) and prefix.startswith("/") for prefix in free
    ):
        raise _refused(path, 'free is a list of paths such as ["/api/tags"]')
    return Gate(
        path,
        upstream.rstrip("/"),
        resource,
        _number(path, values, "wait_s", WAIT_S, 0, 86_400),
        _number(path, values, "timeout_s", TIMEOUT_S, 0.1, 86_400),
        _number(path, values, "settle_s", SETTLE_S, 0, 86_400),
        _number(path, values, "max_body_mb", MAX_BODY_MB, 0, 10_000),
        tuple(free),
    )


def rest_of_path(gate: Gate, raw_path: bytes) -> tuple[bytes, str] | None:
    """The path behind that of the gate, as it was sent and decoded; None if it leads upwards.

    An upstream may take `..` for the folder above, and a path that needs a slot must not look like one that is free.
    """
    rest = raw_path[len(gate.path) :] or b"/"
    text = unquote_to_bytes(rest).decode("utf-8", "replace")
    if any(part in (".", "..") for part in text.replace("\\", "/").split("/")):
        return None
    return rest, text


def end_to_end(headers: Headers, dropped: Iterable[bytes] = ()) -> list[tuple[bytes, bytes]]:
    """The headers that are passed on: without those of the connection, which it may name itself, and without these."""
    headers = list(headers)
    named = {
        part.strip().lower() for name, value in headers if name.lower() == b"connection" for part in value.split(b",")
    }
    dropped_names = HOP_BY_HOP | named | frozenset(dropped)
    return [(name, value) for name, value in headers if name.lower() not in dropped_names]


def wants_websocket(headers: Headers) -> bool:
    return any(name.lower() == b"upgrade" and b"websocket" in value.lower() for name, value in headers)


def _is_plain_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    is_bare = not (parts.query or parts.fragment or parts.username or parts.password)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and is_bare and text.isascii()


def _number(path: str, values: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _refused(path, f"{name} must be a number between {low:g} and {high:g}")
    return float(value)


def _refused(path: str, why: str) -> Invalid:
    return Invalid(f"The gate {path} is not possible: {why}.", code="bad_gate", field="gates")
