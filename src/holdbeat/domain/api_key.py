"""API keys: what is handed to a person once, and what is kept of it.

Guards SEC-02: the store never sees a key, only its hash. A key is 256 bits of randomness, so a plain hash is
enough: there is nothing to guess.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdbeat.domain.errors import Invalid

PREFIX = "hb_"
SHOWN = len(PREFIX) + 6
"""How much of a key may be shown, so that people can tell their keys apart."""
KEY_BYTES = 32


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def covers(self, needed: Scope) -> bool:
        """Whether a key of this scope may do what `needed` asks for: admin may all, write may read."""
        return needed in _COVERED[self]


_COVERED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.READ, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(slots=True)
class ApiKey:
    id: str
    name: str
    prefix: str
    hash: str = field(repr=False)
    scope: Scope
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    expires_at: datetime | None = None

    def opens(self, now: datetime) -> bool:
        """Whether it was neither revoked nor has expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


def new_key(random_bytes: bytes) -> str:
    """A key made from the randomness handed in."""
    if len(random_bytes) < KEY_BYTES:
        raise Invalid(f"An API key needs {KEY_BYTES} random bytes.", field="key")
    return PREFIX + base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
