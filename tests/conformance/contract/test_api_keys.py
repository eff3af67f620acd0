"""API keys: the store knows their hashes and nothing else."""

from __future__ import annotations

import pytest

from holdbeat.api.key_ring import KeyRing
from holdbeat.domain.api_key import Scope, hash_of, new_key
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid, NotFound
from holdbeat.store.access.api_keys import (
    any_key_exists,
    create_api_key,
    list_api_keys,
    revoke_api_key,
    touch_api_keys,
)
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import OpenStore, rows

KEY = new_key(bytes(range(32)))


@pytest.mark.rule("SEC-02")
@pytest.mark.asyncio
async def test_a_key_is_found_by_itself_and_by_nothing_else(store: PersistenceAdapter, clock: ManualClock) -> None:
    made = await store.write(create_api_key, "deploy", Scope.WRITE, KEY)
    ring = KeyRing(store)
    try:
        assert await ring.find(KEY) == made
        for wrong in ("", KEY[:-1], KEY + "x", KEY.upper(), made.hash, made.prefix, "\x00", "\ud800"):
            assert await ring.find(wrong) is None
            clock.advance(0.1)
    finally:
        ring.close()


@pytest.mark.rule("SEC-02")
@pytest.mark.asyncio
async def test_a_key_that_was_made_opens_at_once_and_one_that_was_revoked_within_a_second(
    store: PersistenceAdapter, open_store: OpenStore, clock: ManualClock
) -> None:
    ring = KeyRing(open_store())
    try:
        assert await ring.find(KEY) is None and not ring.any_exists
        clock.advance(0.1)
        made = await store.write(create_api_key, "deploy", Scope.READ, KEY)
        assert await ring.find(KEY) == made and ring.any_exists
        await store.write(revoke_api_key, made.id)
        clock.advance(1)
        assert await ring.find(KEY) is None
        assert ring.any_exists and not ring.any_opens
    finally:
        ring.close()


@pytest.mark.rule("SEC-02")
@pytest.mark.asyncio
async def test_a_key_that_was_made_just_after_the_keys_were_read_opens_without_a_wake_up(
    store: PersistenceAdapter,
) -> None:
    ring = KeyRing(store)
    ring.close()  # no wake-up reaches it any more
    assert await ring.find(KEY) is None
    made = await store.write(create_api_key, "deploy", Scope.READ, KEY)
    assert await ring.find(KEY) == made


@pytest.mark.rule("SEC-02")
def test_the_store_keeps_only_the_hash(store: PersistenceAdapter) -> None:
    made = store.write_sync(create_api_key, "deploy", Scope.ADMIN, KEY)
    everything = str(rows(store, "SELECT * FROM api_keys")) + str(rows(store, "SELECT * FROM events"))
    assert KEY not in everything
    assert made.hash == hash_of(KEY) in everything
    assert KEY.startswith(made.prefix) and len(made.prefix) < 12
    assert made.hash not in repr(made)


@pytest.mark.rule("SEC-02")
def test_a_revoked_key_opens_nothing_and_stays_listed(store: PersistenceAdapter, clock: ManualClock) -> None:
    assert not store.read_sync(any_key_exists)
    made = store.write_sync(create_api_key, "deploy", Scope.READ, KEY)
    assert store.read_sync(any_key_exists)
    revoked = store.write_sync(revoke_api_key, made.id)
    assert revoked.revoked_at == clock.now()
    clock.advance(10)
    assert store.write_sync(revoke_api_key, made.id) == revoked
    assert not store.read_sync(any_key_exists)
    assert store.read_sync(list_api_keys) == [revoked]
    with pytest.raises(NotFound):
        store.write_sync(revoke_api_key, "nobody")


@pytest.mark.rule("SEC-02")
def test_the_last_use_is_noted_to_the_minute(store: PersistenceAdapter, clock: ManualClock) -> None:
    made = store.write_sync(create_api_key, "deploy", Scope.READ, KEY)
    first = clock.now()
    store.write_sync(touch_api_keys, [made.id])
    clock.advance(30)
    store.write_sync(touch_api_keys, [made.id])
    assert store.read_sync(list_api_keys)[0].last_used_at == first
    clock.advance(31)
    store.write_sync(touch_api_keys, [made.id])
    assert store.read_sync(list_api_keys)[0].last_used_at == clock.now()


@pytest.mark.rule("SEC-02")
def test_scopes_cover_what_is_below_them() -> None:
    assert [[one.covers(other) for other in Scope] for one in Scope] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.rule("SEC-02")
def test_keys_are_long() -> None:
    assert len(KEY) > 40
    with pytest.raises(Invalid):
        new_key(b"short")


@pytest.mark.rule("SEC-02")
@pytest.mark.asyncio
async def test_a_key_that_has_expired_is_found_no_more(store: PersistenceAdapter, clock: ManualClock) -> None:
    made = await store.write(create_api_key, "guest", Scope.READ, KEY, life_s=60)
    assert made.expires_at is not None
    ring = KeyRing(store)
    try:
        clock.advance(59)
        assert await ring.find(KEY) == made
        assert await store.read(any_key_exists)
        clock.advance(2)
        assert await ring.find(KEY) is None
        assert ring.any_exists and not ring.any_opens
        assert not await store.read(any_key_exists)
    finally:
        ring.close()
