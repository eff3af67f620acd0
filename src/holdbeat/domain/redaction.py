"""Headers that a call may carry, and secrets: what is shown in their place, and when a value may be kept (SEC-07).

Guards a stored secret against callers who may change where it is sent: its value is kept only for the scheme, host and
port that it was stored for. Log lines are searched once more for secrets inside foreign text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from holdbeat.domain.errors import Invalid

if TYPE_CHECKING:
    from holdbeat.domain.schedule import Schedule

MAX_HEADERS: Final = 100
MAX_HEADER_LENGTH: Final = 8192
HEADER_NAME: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$"
HEADER_VALUE: Final = r"^([!-~]([\t -~]*[!-~])?)?$"
_OWN: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

SECRET_HEADERS: Final = frozenset(
    {
        "authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-auth-token",
        "apikey", "x-access-token", "x-amz-security-token", "x-csrf-token", "x-goog-api-key", "x-functions-key",
        "ocp-apim-subscription-key", "private-token", "x-vault-token", "x-secret", "x-session-id", "x-signature",
        "dpop", "x-hub-signature-256",
    }
)  # fmt: skip
"""Names that are looked for in logs; `is_secret_header` knows more."""
_SECRET_WORDS: Final = frozenset(
    {
        "auth", "authentication", "authorization", "bearer", "cookie", "credential", "credentials", "jwt", "session",
        "sessionid", "signature",
    }
)  # fmt: skip
_SECRET_PART: Final = re.compile(r"token|secret|passw|api[-_.]?key|access[-_.]?key|subscription[-_.]?key|(^|[-_.])key$")
_NO_SECRET: Final = frozenset({"idempotency-key", "sec-websocket-key"})


def is_secret_header(name: str) -> bool:
    """Whether the value of this header is hidden: by its name it is a credential."""
    lower = name.lower()
    if lower in SECRET_HEADERS:
        return True
    if lower in _NO_SECRET:
        return False
    return not _SECRET_WORDS.isdisjoint(re.split(r"[-_.]", lower)) or _SECRET_PART.search(lower) is not None


def check_headers(headers: Any) -> dict[str, str]:
    """Refuses headers that could not be sent, when they are written down and again when they are used."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise _refusal("headers must be an object of names and values.")
    if len(headers) > MAX_HEADERS:
        raise _refusal(f"At most {MAX_HEADERS} headers can be sent.")
    seen: set[str] = set()
    for name, value in headers.items():
        if not isinstance(name, str) or not re.fullmatch(HEADER_NAME, name):
            raise _refusal(f"{str(name)[:256]!r} is not a name for a header.")
        lower = name.lower()
        if lower in _OWN or lower.startswith("proxy-"):
            raise _refusal(f"The header {name} is set by Holdbeat itself; leave it out.")
        if lower in seen:
            raise _refusal(f"The header {name} is given twice.")
        seen.add(lower)
        # The value may be a secret, so the sentence does not repeat it.
        if not isinstance(value, str) or len(value) > MAX_HEADER_LENGTH or not re.fullmatch(HEADER_VALUE, value):
            raise _refusal(f"The header {name} must be one line of printable ASCII text.")
    return dict(headers)


def _refusal(detail: str) -> Invalid:
    return Invalid(detail, code="invalid_headers", field="headers")


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
    """The texts to hide in an answer to these headers: the values of secret ones and the credentials in them."""
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
    """Params that a client sends back with redaction marks: each mark keeps the stored secret."""
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
    """Headers that a client sends back with redaction marks: each mark keeps the stored value."""
    if not isinstance(headers, dict) or REDACTED not in headers.values():
        return headers
    values = {name.lower(): value for name, value in present.items()}
    headers_kept = {}
    for name, value in headers.items():
        if value == REDACTED and name.lower() not in values:
            raise Invalid(
                f"{REDACTED} stands for a value that is there already, but there is no header {name}. Send its value.",
                code="nothing_to_keep",
                field=field,
            )
        headers_kept[name] = values[name.lower()] if value == REDACTED else value
    return headers_kept


def kept_secrets(schedule: Schedule, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of a schedule or endpoint in which each redaction mark is replaced by the stored secret."""
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


_NAMES = "|".join(sorted(re.escape(name) for name in SECRET_HEADERS))
_PATTERNS = (
    # Credentials in an address: the user may be shown, the password not.
    (re.compile(r"(?P<kept>\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@'\"]*:)[^\s'\"]+(?=@)"), r"\g<kept>" + REDACTED),
    # password=… of a connection string or a query.
    (
        re.compile(
            r"(?i)(?P<kept>\b(?:password|passwd|pwd|secret|access_token|api_key)\s*=\s*)(?:'[^']*'|[^\s&'\",;]+)"
        ),
        r"\g<kept>" + REDACTED,
    ),
    # Headers, as text or as a printed mapping, up to the end of the quoted value or of the line.
    (
        re.compile(rf"(?i)(?P<kept>\b(?:{_NAMES})['\"]?\s*[:=]\s*)(?:b?'[^']*'|b?\"[^\"]*\"|[^\r\n'\",}}\]]+)"),
        r"\g<kept>" + REDACTED,
    ),
    (re.compile(r"(?i)(?P<kept>\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{6,}"), r"\g<kept>" + REDACTED),
    # Our own API keys and webhook secrets; the part of a key that tells it apart may stay.
    (re.compile(r"(?P<kept>\bhb_[A-Za-z0-9_-]{6})[A-Za-z0-9_-]{10,}"), r"\g<kept>" + REDACTED),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]{8,}"), f"whsec_{REDACTED}"),
)


def may_have_secrets(text: str) -> bool:
    """Most texts have nothing of the kind; plain looks for a few letters tell so much faster than the patterns."""
    low = text.lower()
    return (
        "auth" in low  # the headers that carry credentials, apart from cookies and keys
        or "cookie" in low
        or "api-key" in low
        or "api_key" in low
        or "access_token" in low
        or "secret" in low
        or "pass" in low
        or "pwd" in low
        or "bearer" in low
        or "basic" in low
        or "token" in low
        or "apikey" in low
        or "-key" in low
        or "session" in low
        or "signature" in low
        or "dpop" in low
        or "hb_" in low
        or "whsec_" in low
        or ("@" in low and "://" in low)
    )


def without_secrets(text: str) -> str:
    """The text with everything that looks like a secret replaced by the mark."""
    if not may_have_secrets(text):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
