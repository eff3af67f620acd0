"""Secret headers: what is shown in their place, and when a stored value may be kept (SEC-07).

Guards a stored secret against those who may change where it is sent: its value is kept only for the scheme, host and
port that it was stored for.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdbeat.domain.errors import Invalid
from holdbeat.domain.headers import is_secret_header

if TYPE_CHECKING:
    from holdbeat.domain.schedule import Schedule

REDACTED = "[redacted]"
SHORTEST_SECRET = 6
"""A shorter text would be found in answers by chance."""
_PORTS = {"http": 80, "https": 443}


def redacted_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Headers with the values of secret ones replaced by the mark."""
    return {name: REDACTED if is_secret_header(name) else value for name, value in headers.items()}


def redacted_params(type_: str, params: dict[str, Any]) -> dict[str, Any]:
    """Params as they may be shown; those of `http` jobs can carry credentials in their headers."""
    headers = params.get("headers")
    if type_ != "http" or not isinstance(headers, dict):
        return params
    return {**params, "headers": redacted_headers(headers)}


def sent_secrets(headers: Mapping[str, str]) -> list[str]:
    """What must not be shown of an answer to these headers: the values of secret ones and the credentials in them."""
    secrets = set()
    for name, value in headers.items():
        if is_secret_header(name):
            secrets |= {value, value.partition(" ")[2]}
            if value[:6].lower() == "basic ":
                secrets |= _of_basic(value[6:])
    return sorted((text for text in secrets if len(text) >= SHORTEST_SECRET), key=len, reverse=True)


def _of_basic(encoded: str) -> set[str]:
    try:
        plain = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return set()
    return {plain, plain.partition(":")[2]}


def without_echoes(value: Any, secrets: Sequence[str]) -> Any:
    """A part of an answer, in which each secret that the target sent back is replaced by the mark."""
    if not secrets:
        return value
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, REDACTED)
            return value
        case list():
            return [without_echoes(item, secrets) for item in value]
        case dict():
            return {without_echoes(key, secrets): without_echoes(item, secrets) for key, item in value.items()}
    return value


def kept_params(params: dict[str, Any], present: Mapping[str, Any], field: str = "params") -> dict[str, Any]:
    """Params as they came back from somebody who was shown the mark: there the present secrets stay."""
    if "headers" not in params:
        return params
    stored = present.get("headers")
    stored = stored if isinstance(stored, dict) else {}
    headers = kept_headers(params["headers"], stored, f"{field}.headers")
    if headers != params["headers"]:
        refuse_other_server({"url": params.get("url"), "headers": headers}, present, f"{field}.headers")
    return {**params, "headers": headers}


def refuse_marks(params: Mapping[str, Any], field: str = "params") -> None:
    """Refuses the mark in params of an `http` job that is new: there is no value yet that it could stand for."""
    kept_params(dict(params), {}, field)


def kept_headers(headers: Any, present: Mapping[str, Any], field: str = "headers") -> Any:
    """Headers as they came back from somebody who was shown the mark: there the present value stays."""
    if not isinstance(headers, dict) or REDACTED not in headers.values():
        return headers
    values = {name.lower(): value for name, value in present.items()}
    kept = {}
    for name, value in headers.items():
        if value == REDACTED and name.lower() not in values:
            raise Invalid(
                f"{REDACTED} stands for a value that is there already, but there is no header {name}. Send its value.",
                code="nothing_to_keep",
                field=field,
            )
        kept[name] = values[name.lower()] if value == REDACTED else value
    return kept


def kept_secrets(schedule: Schedule, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of a schedule or endpoint in which each redaction mark is replaced by what it stands for."""
    kept = dict(changes)
    endpoint = schedule.endpoint
    if endpoint is not None and ("headers" in kept or "url" in kept):
        new_headers = kept.get("headers", redacted_headers(endpoint.headers))
        headers = kept_headers(new_headers, endpoint.headers)
        if headers != new_headers:
            call = {"url": kept.get("url", endpoint.url), "headers": headers}
            refuse_other_server(call, {"url": endpoint.url, "headers": endpoint.headers}, "headers")
        if "headers" in kept:
            kept["headers"] = headers
    if isinstance(kept.get("params"), dict):
        kept["params"] = kept_params(kept["params"], schedule.params or {})
    return kept


def refuse_other_server(call: Mapping[str, Any], stored: Mapping[str, Any], field: str) -> None:
    """Refuses a call that would send a stored secret header to another server than it was stored for."""
    headers, secrets = call.get("headers"), stored.get("headers")
    if not isinstance(headers, dict) or not isinstance(secrets, dict) or _origin(call) == _origin(stored) is not None:
        return
    values = {name.lower(): value for name, value in secrets.items()}
    for name, value in headers.items():
        if is_secret_header(name) and values.get(name.lower()) == value:
            raise Invalid(
                f"The stored value of the header {name} is kept for the server that it was stored for, and this url "
                "names another scheme, host or port. Send the value of the header together with the url.",
                code="secret_of_another_server",
                field=field,
            )


def _origin(call: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """Scheme, host and port of a call; None if it has no url that says them."""
    url = call.get("url")
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url.strip())
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return parts.scheme, (parts.hostname or "").rstrip("."), port
