"""Sessions of the dashboard: a signed cookie that stands for a key, without containing it (SEC-02).

The cookie names the key's id and its end, signed with a secret of the store; it dies with the key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from holdbeat.api.key_ring import KeyRing
from holdbeat.domain.api_key import ApiKey
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.meta import recall, remember_first
from holdbeat.store.transaction import Transaction

COOKIE = "holdbeat_session"
LIFE_S = 12 * 3600
MOST_COOKIES = 8
_SECRET_KEY = "session_secret"


def session_secret(tx: Transaction, proposed: str) -> str:
    """The store's secret for signing sessions; the first proposal stays."""
    remember_first(tx, _SECRET_KEY, proposed)
    secret = recall(tx, _SECRET_KEY)
    assert secret is not None
    return secret


class Sessions:
    """Makes and verifies session cookies."""

    def __init__(self, store: PersistenceAdapter, keys: KeyRing) -> None:
        self._store = store
        self._keys = keys
        self._secret: bytes | None = None

    async def _signature(self, text: str) -> str:
        if self._secret is None:
            proposed = secrets.token_urlsafe(32)
            self._secret = (await self._store.write(session_secret, proposed)).encode()
        digest = hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    async def begin(self, key: ApiKey) -> str:
        """The value of a cookie that stands for this key from now on."""
        ends = int(self._store.clock.now().timestamp()) + LIFE_S
        text = f"{key.id}.{ends}"
        return f"{text}.{await self._signature(text)}"

    async def key_of(self, cookie_header: str) -> tuple[ApiKey, int] | None:
        """The key that the request's cookie stands for, if it is genuine, not over, and the key still opens; and when
        the session is over, in seconds since 1970."""
        for value in _cookie_values(cookie_header):
            key_and_end = await self._key_behind(value)
            if key_and_end is not None:
                return key_and_end
        return None

    async def _key_behind(self, value: str) -> tuple[ApiKey, int] | None:
        text, _, signature = value.rpartition(".")
        key_id, _, ends = text.partition(".")
        if not hmac.compare_digest((await self._signature(text)).encode(), signature.encode("utf-8", "replace")):
            return None
        if not ends.isdigit() or int(ends) <= self._store.clock.now().timestamp():
            return None
        if not self._keys.is_fresh:
            await self._keys.refresh()
        key = self._keys.by_id(key_id)
        return None if key is None else (key, int(ends))


def cookie(value: str, *, is_secure: bool) -> str:
    """The Set-Cookie header that begins a session."""
    return f"{COOKIE}={value}; Path=/; Max-Age={LIFE_S}; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")


def ended_cookie() -> str:
    """The Set-Cookie header that ends a session."""
    return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def _cookie_values(header: str) -> list[str]:
    """What the header says of our cookie, whatever cookies of others stand beside it.

    Other sites of the same domain can set one of the same name, so a browser may send several.
    """
    values = []
    for pair in header.split(";"):
        name, _, value = pair.partition("=")
        if name.strip() == COOKIE:
            values.append(value.strip().strip('"'))
    return values[:MOST_COOKIES]
