"""API keys and sessions of the dashboard in the store: hashes only (SEC-02).

Guards against forged sessions: a cookie is a random text, and only its hash is stored. A session that was ended has no
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdbeat.domain import events
from holdbeat.domain.api_key import SHOWN, ApiKey, Scope, hash_of
from holdbeat.store import meta
from holdbeat.store.reads.columns import Table
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

_KEYS = Table("api_keys", ApiKey, noun="API key")
USE_NOTED_S = 60.0
"""How exactly the last use of a key is known; noting every use would be a write for every request."""


def create_api_key(
    tx: Transaction, name: str, scope: Scope, key: str, *, life_s: float | None = None, by: str | None = None
) -> ApiKey:
    """Stores the hash of a key that the caller made and will show once; it expires after `life_s`, if that is given."""
    expires_at = None if life_s is None else tx.now + timedelta(seconds=life_s)
    api_key = ApiKey(tx.new_id(), name, key[:SHOWN], hash_of(key), scope, tx.now, expires_at=expires_at)
    tx.insert(
        "api_keys",
        ("id", "name", "prefix", "hash", "scope", "created_at", "expires_at"),
        [(api_key.id, name, api_key.prefix, api_key.hash, scope, tx.now, expires_at)],
    )
    tx.record(events.KEY_CREATED, key_id=api_key.id, key_name=name, scope=scope.value, by=by)
    tx.wake(Topic.API_KEYS)
    return api_key


def list_api_keys(tx: Transaction) -> list[ApiKey]:
    """All keys, revoked ones included, the oldest first."""
    return _KEYS.all(tx, "ORDER BY id")


def revoke_api_key(tx: Transaction, key_id: str, *, by: str | None = None) -> ApiKey:
    """Ends a key at once; to revoke it again changes nothing."""
    key = _KEYS.get(tx, key_id)
    if key.revoked_at is None:
        tx.execute("UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL", id=key_id, now=tx.now)
        key.revoked_at = tx.now
        tx.record(events.KEY_REVOKED, key_id=key_id, key_name=key.name, by=by)
        tx.wake(Topic.API_KEYS)
    return key


def any_key_exists(tx: Transaction) -> bool:
    """Whether there is a key that still opens something (SEC-01)."""
    sql = "SELECT 1 FROM api_keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) LIMIT 1"
    return tx.one(sql, now=tx.now) is not None


def touch_api_keys(tx: Transaction, key_ids: Sequence[str]) -> None:
    """Notes that keys were used, to the minute."""
    tx.execute(
        "UPDATE api_keys SET last_used_at = :now WHERE id IN :ids AND (last_used_at IS NULL OR last_used_at < :noted)",
        ids=key_ids,
        now=tx.now,
        noted=tx.now - timedelta(seconds=USE_NOTED_S),
    )


_PREFIX = "session:"
OLD_SECRET = "session_secret"
"""What earlier versions signed cookies with; nothing is signed any more."""


def begin_session(tx: Transaction, digest: str, key_id: str, life_s: int) -> None:
    """Stores a session, and removes those that are over."""
    now = int(tx.now.timestamp())
    over = [name for name, _, ends in _rows(tx) if ends <= now]
    meta.delete(tx, [OLD_SECRET, *(_PREFIX + name for name in over)])
    meta.put(tx, _PREFIX + digest, f"{key_id} {now + life_s}")
    tx.wake(Topic.API_KEYS)


def end_session(tx: Transaction, digest: str) -> None:
    """Makes the cookie of this session useless."""
    meta.delete(tx, [_PREFIX + digest])
    tx.wake(Topic.API_KEYS)


def list_sessions(tx: Transaction) -> dict[str, tuple[str, int]]:
    """For the hash of each cookie the id of its key, and when it ends in seconds since 1970."""
    return {digest: (key_id, ends) for digest, key_id, ends in _rows(tx)}


def _rows(tx: Transaction) -> list[tuple[str, str, int]]:
    sessions = []
    for name, value in meta.get_prefix(tx, _PREFIX).items():
        key_id, _, ends = value.partition(" ")
        sessions.append((name.removeprefix(_PREFIX), key_id, int(ends)))
    return sessions
