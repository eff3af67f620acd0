"""API keys: what their scopes cover, when they are accepted, and what is kept of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdbeat.domain.api_key import KEY_BYTES, PREFIX, SHOWN, ApiKey, Scope, hash_of, new_key
from holdbeat.domain.errors import Invalid

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def api_key(**fields: datetime) -> ApiKey:
    return ApiKey("id", "deploy", "hb_abcdef", "digest-of-the-key", Scope.WRITE, NOW, **fields)


@pytest.mark.rule("SEC-02")
def test_a_scope_covers_itself_and_what_is_below_it_alone() -> None:
    covered = {scope: [needed for needed in Scope if scope.covers(needed)] for scope in Scope}
    assert covered == {
        Scope.READ: [Scope.READ],
        Scope.WRITE: [Scope.READ, Scope.WRITE],
        Scope.ADMIN: [Scope.READ, Scope.WRITE, Scope.ADMIN],
    }


@pytest.mark.rule("SEC-02")
def test_a_key_is_refused_from_its_end_on_and_once_it_is_revoked() -> None:
    assert api_key().opens(NOW)
    assert api_key(expires_at=NOW + timedelta(milliseconds=1)).opens(NOW)
    assert not api_key(expires_at=NOW).opens(NOW)
    assert not api_key(revoked_at=NOW).opens(NOW)


@pytest.mark.rule("SEC-02")
def test_a_key_is_made_of_enough_randomness_or_refused() -> None:
    key = new_key(bytes(range(KEY_BYTES)))
    assert key.startswith(PREFIX)
    assert len(key) == len(PREFIX) + 43
    with pytest.raises(Invalid):
        new_key(bytes(KEY_BYTES - 1))


@pytest.mark.rule("SEC-02")
def test_neither_the_hash_nor_the_printed_record_tells_the_key() -> None:
    key = new_key(bytes(range(KEY_BYTES)))
    assert key[SHOWN:] not in hash_of(key)
    assert hash_of(key) != hash_of(key[:-1])
    assert "digest-of-the-key" not in repr(api_key())
