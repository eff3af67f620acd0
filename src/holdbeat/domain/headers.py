"""The headers that a call may carry.

Guards the message on the wire: what passes here is sent as it is, beside the headers that frame the message and steer
the connection, which are never anybody else's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdbeat.domain.errors import Invalid

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
