"""The API keys as the access middleware knows them: hashes in memory, at most a second old.

Guards SEC-02: a key is found by its hash and compared in constant time; a key that was made or revoked in any process
counts at once where the store's wake-ups reach, and after a second everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac

from holdbeat.domain.api_key import ApiKey, hash_of
from holdbeat.domain.errors import HoldbeatError
from holdbeat.store.access.api_keys import list_api_keys, list_sessions, touch_api_keys
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.topics import Topic

FRESH_S = 1.0
READ_AGAIN_S = 0.05
"""A key that is not known yet may be new: the keys are read again, but not more often than this."""
NOTE_USE_S = 30.0


class KeyRing:
    def __init__(self, store: PersistenceAdapter) -> None:
        self._store = store
        self._by_hash: dict[str, ApiKey] = {}
        self._by_id: dict[str, ApiKey] = {}
        self._sessions: dict[str, tuple[str, int]] = {}
        self.any_exists = False
        """Whether a key was ever made. Revoking the last one does not make the server open again."""
        self._read_at = float("-inf")
        self._is_stale = True
        self._reading = asyncio.Lock()
        self._used: dict[str, float] = {}
        self._touches: set[asyncio.Task[None]] = set()
        self._unsubscribe = store.listen(self._on_topics)

    def close(self) -> None:
        self._unsubscribe()

    def _on_topics(self, topics: frozenset[str]) -> None:
        if topics & {Topic.API_KEYS, Topic.RECONNECTED}:
            self._is_stale = True

    @property
    def is_fresh(self) -> bool:
        return not self._is_stale and self._store.clock.monotonic() - self._read_at < FRESH_S

    @property
    def any_opens(self) -> bool:
        """Whether there is a key that still opens something."""
        return bool(self._by_hash)

    async def refresh(self) -> None:
        """Reads the keys if what is known of them is old."""
        async with self._reading:
            if not self.is_fresh:
                await self._read()

    async def _read(self) -> None:
        self._is_stale = False
        read_at = self._store.clock.monotonic()
        try:
            keys, sessions = await self._store.read(lambda tx: (list_api_keys(tx), list_sessions(tx)))
        except BaseException:
            self._is_stale = True
            raise
        # Read again after a second at the latest: that is how exactly a key expires.
        now = self._store.clock.now()
        live = [key for key in keys if key.opens(now)]
        self._by_hash = {key.hash: key for key in live}
        self._by_id = {key.id: key for key in live}
        self._sessions = sessions
        self.any_exists = bool(keys)
        self._read_at = read_at

    async def _read_again(self) -> None:
        """Reads the keys again for an unknown caller, at most every READ_AGAIN_S; callers meanwhile share one read."""
        asked_at = self._store.clock.monotonic()
        early_s = self._read_at + READ_AGAIN_S - asked_at
        if early_s > 0:
            await asyncio.sleep(early_s)
        async with self._reading:
            if self._read_at <= asked_at:
                await self._read()

    async def find(self, key: str) -> ApiKey | None:
        """The stored key that this one is, unless it was revoked."""
        if not self.is_fresh:
            await self.refresh()
        digest = hash_of(key)
        api_key = self._by_hash.get(digest)
        if api_key is None:
            await self._read_again()
            api_key = self._by_hash.get(digest)
        if api_key is None or not hmac.compare_digest(api_key.hash, digest):
            return None
        self._note_use(api_key.id)
        return api_key

    def by_id(self, key_id: str) -> ApiKey | None:
        """A key that still opens something."""
        return self._by_id.get(key_id)

    async def find_session(self, digest: str) -> tuple[ApiKey, int] | None:
        """The key of the session whose cookie has this hash, and when it ends; None if it was ended."""
        if not self.is_fresh:
            await self.refresh()
        if digest not in self._sessions:
            await self._read_again()
        return self.session(digest)

    def expire(self) -> None:
        """The next request reads keys and sessions again: this process has changed them."""
        self._is_stale = True

    def session(self, digest: str) -> tuple[ApiKey, int] | None:
        """`find_session` among those that are known."""
        key_id, ends = self._sessions.get(digest, ("", 0))
        key = self._by_id.get(key_id)
        return None if key is None else (key, ends)

    def _note_use(self, key_id: str) -> None:
        now = self._store.clock.monotonic()
        if now - self._used.get(key_id, float("-inf")) < NOTE_USE_S:
            return
        self._used[key_id] = now

        async def touch() -> None:
            with contextlib.suppress(HoldbeatError):
                await self._store.write(touch_api_keys, [key_id])

        task = asyncio.create_task(touch())
        self._touches.add(task)
        task.add_done_callback(self._touches.discard)
