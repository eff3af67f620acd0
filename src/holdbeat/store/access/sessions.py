"""Sessions of the dashboard in the store: the hash of each cookie, whose key it stands for, and when it ends (SEC-02).

Guards against forged sessions: a cookie is a random text, and only its hash is stored, so nobody makes one from the
store or from a backup. A session that was ended has no row.
"""

from __future__ import annotations

from holdbeat.store import meta
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

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
