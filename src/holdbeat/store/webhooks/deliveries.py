"""Deliveries in progress: a process locks them for a while, sends them, and stores the outcomes.

Guards DEC-009 and WEB-03. A taken delivery falls due again when its lock ends, so none is lost with the process that
took it. Each host gets only a few places in a batch, so a slow receiver with a long queue delays only itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict
from holdbeat.domain.webhook import (
    LEFT_ALONE,
    TEST_EVENT,
    AttemptVerdict,
    Delivery,
    DeliveryStatus,
    host_of,
    replayed,
    signing_secrets,
)
from holdbeat.store.delivery_rows import NewDelivery, insert_deliveries, payload_of
from holdbeat.store.reads.columns import Table
from holdbeat.store.reads.pagination import Conditions, Cursors, Page, read_table_page
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.subscriptions import GIVE_UP, WEBHOOKS, disable_webhook, server_secret, webhooks_by_id

DELIVERIES = Table("deliveries", Delivery, noun="delivery")
PER_HOST = 4
PENDING_COUNTED = 1000
FAILED_COUNTED = 1000

_HOSTS = (
    "WITH RECURSIVE next(host) AS ("
    " SELECT (SELECT min(host) FROM deliveries WHERE status = 'PENDING')"
    " UNION ALL SELECT (SELECT min(host) FROM deliveries WHERE status = 'PENDING' AND host > next.host)"
    " FROM next WHERE next.host IS NOT NULL) "
)
"""Every host that something is on its way to, by seeking from one to the next, however long their lines are."""


@dataclass(frozen=True, slots=True)
class TakenDelivery:
    """A delivery to attempt now, and the secrets that sign it, the newest first."""

    delivery: Delivery
    host: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of a locked delivery: an attempt with its verdict, or only a later time."""

    delivery_id: str
    worker_id: str
    verdict: AttemptVerdict | None = None
    status_code: int | None = None
    postponed_until: datetime | None = None


def take_deliveries(
    tx: Transaction,
    worker_id: str,
    limit: int,
    lock_s: float,
    *,
    per_host: int = PER_HOST,
    except_hosts: Collection[str] = (),
) -> list[TakenDelivery]:
    """Takes due deliveries for `lock_s`, at most `per_host` for a host; hosts take turns, but not `except_hosts`."""
    hosts = tx.column(f"{_HOSTS} SELECT host FROM next WHERE host IS NOT NULL")
    due = _due(tx, [host for host in hosts if host not in except_hosts], per_host)
    chosen = sorted(due)[:limit]
    if not chosen:
        return []
    until = tx.now + timedelta(seconds=lock_s)
    # The next time is the end of the lock: should this process die, the delivery falls due by itself.
    rows = tx.rows(
        "UPDATE deliveries SET locked_by = :worker, locked_until = :until, next_attempt_at = :until "
        f"WHERE id IN :ids RETURNING {DELIVERIES.columns}",
        ids=[delivery_id for _, _, delivery_id, _ in chosen],
        worker=worker_id,
        until=until,
    )
    deliveries = {row[0]: DELIVERIES.read(tx, row) for row in rows}
    webhooks = webhooks_by_id(tx, {d.webhook_id for d in deliveries.values() if d.webhook_id})
    shared = server_secret(tx).secrets if any(d.webhook_id is None for d in deliveries.values()) else ()
    answer = []
    for _, _, delivery_id, host in chosen:
        delivery = deliveries[delivery_id]
        webhook = webhooks.get(delivery.webhook_id) if delivery.webhook_id else None
        if delivery.webhook_id and webhook is None:
            _fail(tx, delivery, "the subscription was deleted")
            continue
        answer.append(TakenDelivery(delivery, host, signing_secrets(webhook, now=tx.now) if webhook else shared))
    return answer


_FIRST_OF_HOST = (
    "SELECT next_attempt_at, id FROM deliveries WHERE status = 'PENDING' AND host = {host} "
    "AND next_attempt_at <= :now ORDER BY next_attempt_at, id LIMIT :count FOR UPDATE SKIP LOCKED"
)
_FIRST_OF_ALL = (
    "SELECT d.next_attempt_at, d.id, h.host FROM rows(:hosts; host text) AS h, "
    f"LATERAL ({_FIRST_OF_HOST.format(host='h.host')}) AS d ORDER BY 1, 2"
)


def _due(tx: Transaction, hosts: Sequence[str], per_host: int) -> list[tuple[int, datetime, str, str]]:
    """The first that are due for each host, with their rank there. One journey on PostgreSQL, a seek each on SQLite."""
    if tx.dialect == "sqlite":
        rows = [
            (*row, host)
            for host in hosts
            for row in tx.rows(_FIRST_OF_HOST.format(host=":host"), host=host, now=tx.now, count=per_host)
        ]
    else:
        table = [(host,) for host in hosts]
        rows = tx.rows(_FIRST_OF_ALL, hosts=table, now=tx.now, count=per_host) if hosts else []
    ranks: Counter[str] = Counter()
    due = []
    for next_attempt_at, delivery_id, host in rows:
        due.append((ranks[host], tx.instant(next_attempt_at), delivery_id, host))
        ranks[host] += 1
    return due


def finish_deliveries(tx: Transaction, results: Sequence[DeliveryResult]) -> list[bool]:
    """Stores the outcomes of locked deliveries; returns for each whether the worker still held the lock.

    After the lock has ended only a success is recorded: that the message has arrived is true in any case.
    """
    ids = sorted({result.delivery_id for result in results})
    locked = DELIVERIES.all(tx, "WHERE id IN :ids AND status = 'PENDING' ORDER BY id FOR UPDATE", ids=ids)
    pending = {delivery.id: delivery for delivery in locked}
    accepted = []
    disabled: list[str] = []
    for result in results:
        delivery = pending.get(result.delivery_id)
        arrived = result.verdict is not None and result.verdict.status is DeliveryStatus.DELIVERED
        if delivery is None or (delivery.locked_by != result.worker_id and not arrived):
            accepted.append(False)
            continue
        accepted.append(True)
        del pending[result.delivery_id]
        if result.verdict is None:
            _postpone(tx, delivery, result.postponed_until or tx.now)
            continue
        _conclude(tx, delivery, result.verdict, result.status_code)
        if result.verdict.disables_webhook and delivery.webhook_id:
            disabled.append(delivery.webhook_id)
    for webhook_id in dict.fromkeys(disabled):
        reason = "the receiver answered 410: it is gone for good"
        if disable_webhook(tx, webhook_id, reason):
            tx.record(events.WEBHOOK_DISABLED, webhook_id=webhook_id, reason=reason)
    return accepted


def redeliver(tx: Transaction, delivery_id: str) -> Delivery:
    """Sends a message once more on request, with all its attempts before it and the same id."""
    delivery = DELIVERIES.get(tx, delivery_id, locked=True)
    is_locked = delivery.locked_until is not None and delivery.locked_until > tx.now
    if delivery.status is DeliveryStatus.PENDING and delivery.locked_by and is_locked:
        raise Conflict(
            f"Delivery {delivery_id} is being sent just now. Look again in a moment.",
            code="delivery_under_way",
            delivery_id=delivery_id,
        )
    webhook = webhooks_by_id(tx, [delivery.webhook_id]).get(delivery.webhook_id) if delivery.webhook_id else None
    if delivery.webhook_id and webhook is None:
        raise Conflict(
            f"Delivery {delivery_id} belongs to a webhook that was deleted, so it cannot be signed any more.",
            code="webhook_deleted",
            delivery_id=delivery_id,
        )
    if webhook is not None:
        # A replay goes to where the subscription leads now: often it was the address that was wrong.
        delivery.url = webhook.url
    again = replayed(delivery, now=tx.now)
    tx.execute(
        "UPDATE deliveries SET url = :url, host = :host, status = 'PENDING', attempts = 0, next_attempt_at = :now, "
        "delivered_at = NULL, finished_at = NULL, locked_by = NULL, locked_until = NULL WHERE id = :id",
        id=delivery_id,
        now=tx.now,
        url=again.url,
        host=host_of(again.url),
    )
    tx.wake(Topic.DELIVERIES)
    return again


def send_test(tx: Transaction, webhook_id: str) -> Delivery:
    """Sends a message to a subscription that says nothing but that messages arrive, whichever events it takes."""
    webhook = WEBHOOKS.get(tx, webhook_id)
    if not webhook.enabled:
        raise Conflict(
            f"Webhook {webhook_id} is disabled, so nothing is sent to it. Enable it first.",
            code="webhook_disabled",
            webhook_id=webhook_id,
        )
    payload = payload_of(tx, TEST_EVENT, {"message": "This is a test. Nothing has happened."})
    (delivery_id,) = insert_deliveries(tx, [NewDelivery(TEST_EVENT, webhook.url, payload, webhook.id)])
    return DELIVERIES.get(tx, delivery_id)


def count_failed(tx: Transaction) -> int:
    """How many deliveries were given up; at most FAILED_COUNTED are counted."""
    return tx.count(
        "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE status = 'FAILED' LIMIT :most) AS failed",
        most=FAILED_COUNTED,
    )


def list_deliveries(
    tx: Transaction,
    *,
    job_id: str | None = None,
    webhook_id: str | None = None,
    status: DeliveryStatus | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[Delivery]:
    """Deliveries, the newest first."""
    cursors = Cursors("deliveries", {"job_id": job_id, "webhook_id": webhook_id, "status": status})
    conditions = Conditions()
    if job_id is not None:
        conditions.add("job_id = :job_id", job_id=job_id)
    if webhook_id is not None:
        conditions.add("webhook_id = :webhook_id", webhook_id=webhook_id)
    if status is not None:
        # Written out, so that the indexes of pending and failed ones are seen to fit.
        conditions.add(f"status = '{DeliveryStatus(status).value}'")
    return read_table_page(tx, cursors, DELIVERIES, conditions, limit, cursor)


def pending_to(tx: Transaction, hosts: Collection[str]) -> dict[str, int]:
    """For each host how many deliveries wait for an attempt; a longer line is counted up to PENDING_COUNTED."""
    count = (
        "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE status = 'PENDING' AND host = :host LIMIT :most) waiting"
    )
    return {host: tx.count(count, host=host, most=PENDING_COUNTED) for host in hosts}


def _postpone(tx: Transaction, delivery: Delivery, until: datetime) -> None:
    """Puts a delivery off, and all others to its URL: they would take the places of other receivers on its host."""
    tx.execute(
        "UPDATE deliveries SET next_attempt_at = :until, last_error = :why, locked_by = NULL, locked_until = NULL "
        "WHERE status = 'PENDING' AND host = :host AND url = :url "
        "AND (id = :id OR (locked_by IS NULL AND next_attempt_at <= :until))",
        id=delivery.id,
        host=host_of(delivery.url),
        url=delivery.url,
        until=until,
        why=LEFT_ALONE,
    )


def _conclude(tx: Transaction, delivery: Delivery, verdict: AttemptVerdict, status_code: int | None) -> None:
    has_ended = verdict.status is not DeliveryStatus.PENDING
    tx.execute(
        "UPDATE deliveries SET status = :status, attempts = attempts + 1, next_attempt_at = :next_at, "
        "delivered_at = :delivered_at, finished_at = :finished_at, last_status_code = :code, last_error = :error, "
        "locked_by = NULL, locked_until = NULL WHERE id = :id",
        id=delivery.id,
        status=verdict.status,
        next_at=None if has_ended else verdict.next_attempt_at,
        delivered_at=tx.now if verdict.status is DeliveryStatus.DELIVERED else None,
        finished_at=tx.now if has_ended else None,
        code=status_code,
        error=verdict.error,
    )
    if verdict.status is DeliveryStatus.FAILED:
        _record_failure(tx, delivery, verdict.error)


def _fail(tx: Transaction, delivery: Delivery, why: str) -> None:
    tx.execute(f"{GIVE_UP} WHERE id = :id", id=delivery.id, now=tx.now, why=why)
    _record_failure(tx, delivery, why)


def _record_failure(tx: Transaction, delivery: Delivery, why: str | None) -> None:
    tx.record(
        events.WEBHOOK_FAILED,
        job_id=delivery.job_id,
        group_id=delivery.group_id,
        delivery_id=delivery.id,
        webhook_id=delivery.webhook_id,
        event=delivery.event,
        error=why,
    )
