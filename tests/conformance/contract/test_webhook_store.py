"""Subscriptions and deliveries in the store: told at least once, fairly, by one process at a time."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, Invalid, NotFound, Stale
from holdbeat.domain.job import NewJob
from holdbeat.domain.webhook import (
    GONE,
    AttemptVerdict,
    Delivery,
    DeliveryStatus,
    host_of,
    judge_attempt,
    new_secret,
)
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.webhooks.deliveries import (
    DELIVERIES,
    DeliveryResult,
    TakenDelivery,
    finish_deliveries,
    list_deliveries,
    redeliver,
    take_deliveries,
)
from holdbeat.store.webhooks.subscriptions import (
    WEBHOOKS,
    ServerSecret,
    create_webhook,
    delete_webhook,
    list_webhooks,
    patch_webhook,
    rotate_server_secret,
    rotate_webhook,
    server_secret,
)
from tests.conformance.acts import (
    OpenStore,
    claim_all,
    claim_one,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    events_of,
    job_of_claim,
    rows,
)

URL = "https://a.example/hook"
SECRET = new_secret(bytes(32))
LOCK_S = 30.0


def finish_jobs(store: PersistenceAdapter, *urls: str) -> list[str]:
    """Jobs that ended, each with a message to one of the URLs on its way."""
    enqueue_all(store, [NewJob("noop", webhook_url=url) for url in urls])
    claims = claim_all(store)
    for taken in claims:
        complete(store, taken)
    return [job_of_claim(taken).id for taken in claims]


def take(store: PersistenceAdapter, worker: str = "w", limit: int = 50, **options: Any) -> list[TakenDelivery]:
    return store.write_sync(take_deliveries, worker, limit, LOCK_S, **options)


def finish(
    store: PersistenceAdapter, delivery: Delivery, clock: ManualClock, code: int, worker: str = "w"
) -> tuple[bool, AttemptVerdict]:
    verdict = judge_attempt(attempts=delivery.attempts + 1, now=clock.now(), jitter=1.0, status_code=code)
    result = DeliveryResult(delivery.id, worker, verdict, code)
    return store.write_sync(finish_deliveries, [result])[0], verdict


# --- subscriptions ---------------------------------------------------------------------------------------


@pytest.mark.rule("WEB-04")
def test_a_subscription_is_told_what_it_asked_for(store: PersistenceAdapter) -> None:
    every = store.write_sync(create_webhook, URL)
    some = store.write_sync(create_webhook, URL, ["job.run.failed"], SECRET)
    assert every.secret.startswith("whsec_") and every.secret != some.secret == SECRET
    assert store.read_sync(WEBHOOKS.get, some.id) == some
    enqueue_one(store)
    complete(store, claim_one(store))
    assert [row[0] for row in rows(store, "SELECT webhook_id FROM deliveries")] == [every.id]
    page = store.read_sync(list_webhooks, limit=1)
    assert page.items == [some]
    assert store.read_sync(list_webhooks, limit=1, cursor=page.next_cursor).items == [every]


@pytest.mark.rule("WEB-04")
def test_a_filter_for_an_unknown_event_or_a_bad_secret_is_refused(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid):
        store.write_sync(create_webhook, URL, ["job.exploded"])
    with pytest.raises(Invalid):
        store.write_sync(create_webhook, URL, [], "hunter2")
    assert count(store, "webhooks") == 0


@pytest.mark.rule("API-02", "WEB-04")
def test_a_stale_change_is_refused_and_changes_nothing(store: PersistenceAdapter) -> None:
    made = store.write_sync(create_webhook, URL)
    changed = store.write_sync(patch_webhook, made.id, {"events": ["job.cancelled"], "enabled": False}, 1)
    assert (changed.version, changed.events, changed.enabled) == (2, ("job.cancelled",), False)
    with pytest.raises(Stale):
        store.write_sync(patch_webhook, made.id, {"url": "https://b.example/"}, 1)
    with pytest.raises(Invalid):
        store.write_sync(patch_webhook, made.id, {"secret": SECRET})
    assert store.read_sync(WEBHOOKS.get, made.id) == changed
    again = store.write_sync(patch_webhook, made.id, {"events": [], "enabled": True})
    assert (again.version, again.events, again.enabled) == (3, (), True)
    with pytest.raises(NotFound):
        store.write_sync(patch_webhook, "nobody", {"enabled": True})


@pytest.mark.rule("WEB-02")
def test_after_a_rotation_both_secrets_sign_for_a_day(store: PersistenceAdapter, clock: ManualClock) -> None:
    made = store.write_sync(create_webhook, URL, [], SECRET)
    fresh = store.write_sync(rotate_webhook, made.id)
    assert fresh.secret != SECRET and fresh.previous_secret == SECRET
    enqueue_one(store)
    complete(store, claim_one(store))
    (taken,) = take(store)
    assert taken.secrets == (fresh.secret, SECRET)
    clock.advance(86_400)
    (taken,) = take(store)
    assert taken.secrets == (fresh.secret,)


@pytest.mark.rule("WEB-02")
def test_the_servers_own_secret_is_made_once(open_store: OpenStore, store: PersistenceAdapter) -> None:
    stores = [store, open_store()]
    server_secrets: list[ServerSecret] = []
    threads = [
        threading.Thread(target=lambda item=item: server_secrets.append(item.write_sync(server_secret)))
        for item in stores
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server_secrets) == 6 and len(set(server_secrets)) == 1
    finish_jobs(store, URL)
    (taken,) = take(store)
    assert taken.secrets == server_secrets[0].secrets


@pytest.mark.rule("WEB-02")
def test_after_a_rotation_of_the_servers_own_secret_both_sign_for_a_day(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    (old,) = store.write_sync(server_secret).secrets
    fresh = store.write_sync(rotate_server_secret, SECRET)
    assert (fresh.secrets, fresh.rotated_at) == ((SECRET, old), clock.now())
    finish_jobs(store, URL)
    (taken,) = take(store)
    assert taken.secrets == (SECRET, old)
    clock.advance(86_400)
    (taken,) = take(store)
    assert taken.secrets == (SECRET,)
    assert store.write_sync(rotate_server_secret).secrets[1] == SECRET
    with pytest.raises(Invalid):
        store.write_sync(rotate_server_secret, "short")


@pytest.mark.rule("WEB-04")
def test_messages_follow_their_subscription_to_another_host(store: PersistenceAdapter) -> None:
    made = store.write_sync(create_webhook, URL)
    other = store.write_sync(create_webhook, URL)
    enqueue_one(store)
    complete(store, claim_one(store))
    store.write_sync(patch_webhook, made.id, {"url": "https://b.example/new"})
    taken = {item.delivery.webhook_id: item for item in take(store)}
    assert (taken[made.id].delivery.url, taken[made.id].host) == ("https://b.example/new", "b.example:443")
    assert (taken[other.id].delivery.url, taken[other.id].host) == (URL, "a.example:443")


@pytest.mark.rule("WEB-04")
def test_messages_to_a_deleted_subscription_are_given_up(store: PersistenceAdapter) -> None:
    made = store.write_sync(create_webhook, URL)
    enqueue_one(store)
    complete(store, claim_one(store))
    store.write_sync(delete_webhook, made.id)
    (left,) = store.read_sync(list_deliveries).items
    assert (left.status, left.last_error) == (DeliveryStatus.FAILED, "the subscription was deleted")
    assert take(store) == []
    with pytest.raises(Conflict):
        store.write_sync(redeliver, left.id)
    with pytest.raises(NotFound):
        store.write_sync(delete_webhook, made.id)


# --- taking ----------------------------------------------------------------------------------------------


@pytest.mark.rule("DEC-009")
def test_a_taken_delivery_is_nobody_elses_until_its_lock_ends(store: PersistenceAdapter, clock: ManualClock) -> None:
    finish_jobs(store, URL)
    (taken,) = take(store, "one")
    assert taken.delivery.event == "job.run.completed"
    assert taken.delivery.payload["type"] == "job.run.completed"
    assert take(store, "two") == []
    clock.advance(LOCK_S - 0.001)
    assert take(store, "two") == []
    clock.advance(0.001)
    (again,) = take(store, "two")
    assert again.delivery.id == taken.delivery.id
    assert again.delivery.attempts == 0


@pytest.mark.rule("DEC-009", "OPS-06")
def test_processes_share_the_work_and_none_is_sent_twice(open_store: OpenStore, store: PersistenceAdapter) -> None:
    finish_jobs(store, *(f"https://h{number}.example/" for number in range(12)))
    stores = [store, open_store()]
    got: list[str] = []
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        ready.wait()
        while result := take(stores[number % 2], f"w{number}", 2):
            got.extend(taken.delivery.id for taken in result)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got += [taken.delivery.id for taken in take(store, "last")]
    assert len(got) == 12 and len(set(got)) == 12


@pytest.mark.rule("WEB-03")
def test_no_receiver_fills_the_batch(store: PersistenceAdapter, clock: ManualClock) -> None:
    finish_jobs(store, *["https://slow.example/x"] * 30)
    clock.advance(1)
    finish_jobs(store, "https://b.example/", "https://c.example/")
    batch = take(store, limit=4, per_host=3)
    assert sorted(taken.host for taken in batch) == [
        "b.example:443",
        "c.example:443",
        "slow.example:443",
        "slow.example:443",
    ]
    assert [taken.host for taken in take(store, limit=50, per_host=3)] == ["slow.example:443"] * 3
    assert take(store, except_hosts={"slow.example:443"}) == []


@pytest.mark.rule("WEB-03")
def test_the_host_of_a_url_that_cannot_be_read_is_empty() -> None:
    assert host_of("https://A.Example/x?y") == "a.example:443"
    assert host_of("http://a.example:8080/") == "a.example:8080"
    assert host_of("http://u:p@[::1]/") == "::1:80"
    for odd in ("", "nonsense", "http://", "http://[x", "http://a:99999/"):
        assert host_of(odd) == ""


# --- finishing -------------------------------------------------------------------------------------------


@pytest.mark.rule("DEC-009")
def test_a_delivery_is_tried_four_times_with_backoff_and_then_failed_visibly(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    (job_id,) = finish_jobs(store, URL)
    waits = []
    for _ in range(4):
        (taken,) = take(store)
        accepted, verdict = finish(store, taken.delivery, clock, 500)
        assert accepted
        if verdict.next_attempt_at is not None:
            waits.append((verdict.next_attempt_at - clock.now()).total_seconds())
            clock.advance(waits[-1] - 0.001)
            assert take(store) == []
            clock.advance(0.001)
    assert waits == [1, 2, 4]
    (left,) = store.read_sync(list_deliveries, job_id=job_id, status=DeliveryStatus.FAILED).items
    assert (left.attempts, left.last_status_code, left.last_error) == (4, 500, "HTTP 500")
    assert left.next_attempt_at is None
    assert [row[0] for row in events_of(store, "webhook.failed")] == [job_id]


@pytest.mark.rule("DEC-009")
def test_a_delivered_message_is_done(store: PersistenceAdapter, clock: ManualClock) -> None:
    finish_jobs(store, URL)
    (taken,) = take(store)
    assert finish(store, taken.delivery, clock, 204)[0]
    left = store.read_sync(DELIVERIES.get, taken.delivery.id)
    assert (left.status, left.delivered_at, left.attempts) == (DeliveryStatus.DELIVERED, clock.now(), 1)
    clock.advance(3600)
    assert take(store) == []
    with pytest.raises(NotFound):
        store.read_sync(DELIVERIES.get, "nobody")


@pytest.mark.rule("WEB-03")
def test_postponing_spends_no_attempt(store: PersistenceAdapter, clock: ManualClock) -> None:
    finish_jobs(store, URL)
    for _ in range(10):
        (taken,) = take(store)
        later = clock.now() + timedelta(seconds=30)
        result = DeliveryResult(taken.delivery.id, "w", postponed_until=later)
        assert store.write_sync(finish_deliveries, [result]) == [True]
        assert take(store) == []
        clock.advance(30)
    assert take(store)[0].delivery.attempts == 0


@pytest.mark.rule("WEB-03")
def test_410_disables_the_subscription_and_gives_up_its_messages(store: PersistenceAdapter, clock: ManualClock) -> None:
    made = store.write_sync(create_webhook, URL)
    for _ in range(2):
        enqueue_one(store)
        complete(store, claim_one(store))
    first, _ = take(store)
    assert finish(store, first.delivery, clock, GONE)[0]
    after = store.read_sync(WEBHOOKS.get, made.id)
    assert (after.enabled, after.version) == (False, 2)
    assert after.disabled_reason is not None and "410" in after.disabled_reason
    assert count(store, "deliveries", "status = 'FAILED'") == 2
    assert len(events_of(store, "webhook.disabled")) == 1
    enqueue_one(store)
    complete(store, claim_one(store))
    assert count(store, "deliveries") == 2


@pytest.mark.rule("WEB-03")
def test_410_of_a_plain_url_fails_that_delivery_alone(store: PersistenceAdapter, clock: ManualClock) -> None:
    finish_jobs(store, URL, URL)
    first, second = take(store)
    assert finish(store, first.delivery, clock, GONE)[0]
    assert store.read_sync(DELIVERIES.get, first.delivery.id).status is DeliveryStatus.FAILED
    assert store.read_sync(DELIVERIES.get, second.delivery.id).status is DeliveryStatus.PENDING


@pytest.mark.rule("DEC-009")
def test_a_sender_that_lost_its_lock_records_only_that_a_message_arrived(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    finish_jobs(store, URL)
    (slow,) = take(store, "slow")
    clock.advance(LOCK_S)
    (other,) = take(store, "other")
    assert not finish(store, slow.delivery, clock, 500, "slow")[0]
    assert store.read_sync(DELIVERIES.get, slow.delivery.id).attempts == 0
    assert finish(store, slow.delivery, clock, 200, "slow")[0]
    assert store.read_sync(DELIVERIES.get, slow.delivery.id).status is DeliveryStatus.DELIVERED
    assert not finish(store, other.delivery, clock, 500, "other")[0]
    assert store.read_sync(DELIVERIES.get, slow.delivery.id).status is DeliveryStatus.DELIVERED


@pytest.mark.rule("DEC-009", "WEB-02")
def test_a_replay_has_all_its_attempts_and_the_same_id(store: PersistenceAdapter, clock: ManualClock) -> None:
    finish_jobs(store, URL)
    (taken,) = take(store)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(redeliver, taken.delivery.id)
    assert refusal.value.code == "delivery_under_way"
    finish(store, taken.delivery, clock, GONE)
    clock.advance(100)
    again = store.write_sync(redeliver, taken.delivery.id)
    assert (again.id, again.status, again.attempts) == (taken.delivery.id, DeliveryStatus.PENDING, 0)
    (retaken,) = take(store)
    assert retaken.delivery.id == taken.delivery.id
    assert retaken.delivery.payload == taken.delivery.payload
    with pytest.raises(NotFound):
        store.write_sync(redeliver, "nobody")


@pytest.mark.rule("WEB-04", "API-03")
def test_deliveries_are_listed_by_job_and_status_page_by_page(store: PersistenceAdapter, clock: ManualClock) -> None:
    jobs = finish_jobs(store, *[URL] * 5)
    (first, *_) = take(store, per_host=1)
    finish(store, first.delivery, clock, 200)
    seen: list[str] = []
    cursor = None
    while True:
        page = store.read_sync(list_deliveries, limit=2, cursor=cursor)
        seen += [delivery.id for delivery in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True) and len(seen) == 5
    assert len(store.read_sync(list_deliveries, job_id=jobs[2]).items) == 1
    assert len(store.read_sync(list_deliveries, status=DeliveryStatus.PENDING).items) == 4
    delivered = store.read_sync(list_deliveries, status=DeliveryStatus.DELIVERED).items
    assert [delivery.id for delivery in delivered] == [first.delivery.id]
    with pytest.raises(Invalid):
        store.read_sync(list_deliveries, job_id=jobs[0], cursor=page.next_cursor or "x")
