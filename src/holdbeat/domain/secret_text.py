"""The last lock before a log line: what looks like a secret does not get past it (SEC-07).

Whoever writes a line leaves secrets out; this catches those that come along inside somebody else's text, such as the
password in the address of a database that could not be reached.
"""

from __future__ import annotations

import re

from holdbeat.domain.headers import SECRET_HEADERS
from holdbeat.domain.redaction import REDACTED

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
