"""Sessions of the dashboard: a random cookie that stands for a key, without containing it (SEC-02).

The store has the hash of each cookie; a session ends with its row, with its time, or with its key.

The way back from the login leads to a page of this server, whatever the address of the login says.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import NamedTuple
from urllib.parse import urlencode

from holdbeat.api.key_ring import KeyRing
from holdbeat.domain.api_key import ApiKey, hash_of
from holdbeat.domain.errors import HoldbeatError
from holdbeat.store.access.api_keys import begin_session, end_session
from holdbeat.store.adapter import PersistenceAdapter

COOKIE = "holdbeat_session"
LIFE_S = 8 * 3600
MOST_COOKIES = 8


class Session(NamedTuple):
    key: ApiKey
    digest: str
    """The hash of its cookie."""
    ends: int
    """In seconds since 1970."""


class Sessions:
    """Begins, finds and ends sessions."""

    def __init__(self, store: PersistenceAdapter, keys: KeyRing) -> None:
        self._store = store
        self._keys = keys

    async def begin(self, key: ApiKey) -> str:
        """The value of a cookie that stands for this key from now on."""
        value = secrets.token_urlsafe(32)
        await self._store.write(begin_session, hash_of(value), key.id, LIFE_S)
        return value

    async def end(self, cookie_header: str) -> None:
        """Ends the sessions of a request's cookies. While the store does not answer, they last until their time."""
        for value in _cookie_values(cookie_header):
            with contextlib.suppress(HoldbeatError):
                if await self._keys.find_session(hash_of(value)) is not None:
                    await self._store.write(end_session, hash_of(value))
                    self._keys.expire()

    async def find(self, cookie_header: str) -> Session | None:
        """The session of a request's cookie, if it has not ended and its key still opens."""
        now = self._store.clock.now().timestamp()
        for value in _cookie_values(cookie_header):
            digest = hash_of(value)
            key_and_end = await self._keys.find_session(digest)
            if key_and_end is not None and key_and_end[1] > now:
                return Session(key_and_end[0], digest, key_and_end[1])
        return None


def cookie(value: str, *, is_secure: bool) -> str:
    """The Set-Cookie header that begins a session."""
    return f"{COOKIE}={value}; Path=/; Max-Age={LIFE_S}; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")


def ended_cookie() -> str:
    """The Set-Cookie header that ends a session."""
    return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def _cookie_values(header: str) -> list[str]:
    """The values of our cookie: sites of the same domain can set one of the same name, so there may be several."""
    values = []
    for pair in header.split(";"):
        name, _, value = pair.partition("=")
        if name.strip() == COOKIE:
            values.append(value.strip().strip('"'))
    return values[:MOST_COOKIES]


LONGEST = 2000
HOME = "/"


def page_of(target: str) -> str:
    """The page to lead to: the one that was asked for if it is one of the dashboard, the overview otherwise."""
    is_plain = len(target) <= LONGEST and target.isascii() and target.isprintable() and "\\" not in target
    is_page = target.startswith("/ui/") or target == "/docs"
    return target if is_plain and is_page else HOME


def login_before(target: str, *, was_refused: bool = False) -> str:
    """The address of the login that leads on to a page."""
    page = page_of(target)
    query = ({"refused": "1"} if was_refused else {}) | ({} if page == HOME else {"next": page})
    return f"/login?{urlencode(query)}" if query else "/login"
