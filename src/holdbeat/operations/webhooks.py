"""Operations on webhooks, their secrets and their deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.domain.address import check_url
from holdbeat.domain.bounds import check_choice, check_flag
from holdbeat.domain.errors import Invalid
from holdbeat.domain.redaction import REDACTED
from holdbeat.domain.submission import check_webhook_url
from holdbeat.domain.views import delivery_json, webhook_json
from holdbeat.domain.webhook import DeliveryStatus
from holdbeat.operations import checks
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks import deliveries, subscriptions


@writes
def create_webhook(
    tx: Transaction,
    context: OperationContext,
    url: str,
    *,
    events: Sequence[str] | None = None,
    secret: str | None = None,
) -> Any:
    """Subscribe to events. The answer shows the secret, once."""
    check_url(check_webhook_url(url, "url"), context.outbound_policy(tx))
    webhook = subscriptions.create_webhook(tx, url, _check_events(events), _check_secret(secret))
    return webhook_json(webhook, with_secret=True)


@reads
def list_webhooks(
    tx: Transaction, context: OperationContext, *, limit: int | None = None, cursor: str | None = None
) -> Any:
    """List subscriptions, the newest first."""
    return checks.page_json(subscriptions.list_webhooks(tx, limit=limit, cursor=cursor), webhook_json)


@reads
def get_webhook(tx: Transaction, context: OperationContext, webhook_id: str) -> Any:
    """Read one subscription."""
    return webhook_json(subscriptions.WEBHOOKS.get(tx, checks.id_of(tx, webhook_id, "webhook")))


@writes
def update_webhook(
    tx: Transaction,
    context: OperationContext,
    webhook_id: str,
    changes: Mapping[str, Any],
    *,
    version: int | None = None,
) -> Any:
    """Change url, events or enabled of a subscription."""
    webhook_id = checks.id_of(tx, webhook_id, "webhook")
    changes = dict(checks.checked_fields(changes, ("url", "events", "enabled", "secret")))
    if changes.pop("secret", REDACTED) != REDACTED:
        raise Invalid("A secret is not changed but rotated: use …/rotate.", code="use_rotate", field="secret")
    if "url" in changes:
        check_url(check_webhook_url(changes["url"], "url"), context.outbound_policy(tx))
    if "events" in changes:
        changes["events"] = _check_events(changes["events"])
    check_flag(changes.get("enabled", True), "enabled")
    return webhook_json(subscriptions.patch_webhook(tx, webhook_id, changes, version))


@writes
def delete_webhook(tx: Transaction, context: OperationContext, webhook_id: str, *, version: int | None = None) -> None:
    """End a subscription."""
    subscriptions.delete_webhook(tx, checks.id_of(tx, webhook_id, "webhook"), version)


@writes
def rotate_webhook(tx: Transaction, context: OperationContext, webhook_id: str, *, secret: str | None = None) -> Any:
    """Give a subscription a new secret, shown once. The old one is also used for 24 h."""
    webhook_id = checks.id_of(tx, webhook_id, "webhook")
    return webhook_json(subscriptions.rotate_webhook(tx, webhook_id, _check_secret(secret)), with_secret=True)


@writes
def test_webhook(tx: Transaction, context: OperationContext, webhook_id: str) -> Any:
    """Send a test message, `webhook.test`, to a subscription, whichever events it takes."""
    return delivery_json(deliveries.send_test(tx, checks.id_of(tx, webhook_id, "webhook")))


@writes
def webhook_secret(tx: Transaction, context: OperationContext) -> Any:
    """Read the secret that signs messages to a plain `webhook_url`. It needs a key with the scope admin."""
    checks.check_admin(context, "Reading the server's own secret")
    # A write: the first reader makes the secret.
    return subscriptions.server_secret_json(subscriptions.server_secret(tx))


@writes
def rotate_webhook_secret(tx: Transaction, context: OperationContext, *, secret: str | None = None) -> Any:
    """Give the server a new secret for messages to a plain `webhook_url`. The old one is also used for 24 h.

    It needs a key with the scope admin.
    """
    checks.check_admin(context, "Rotating the server's own secret")
    return subscriptions.server_secret_json(subscriptions.rotate_server_secret(tx, _check_secret(secret)))


@reads
def list_deliveries(
    tx: Transaction,
    context: OperationContext,
    *,
    job_id: str | None = None,
    webhook_id: str | None = None,
    status: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """List messages that are pending, delivered or given up; the newest first."""
    page = deliveries.list_deliveries(
        tx,
        job_id=checks.check_id_filter(job_id, "job_id"),
        webhook_id=checks.check_id_filter(webhook_id, "webhook_id"),
        status=None if status is None else check_choice(DeliveryStatus, status, "status"),
        limit=limit,
        cursor=cursor,
    )
    return checks.page_json(page, delivery_json)


@reads
def get_delivery(tx: Transaction, context: OperationContext, delivery_id: str) -> Any:
    """Read one message."""
    return delivery_json(deliveries.DELIVERIES.get(tx, checks.id_of(tx, delivery_id, "delivery")))


@writes
def redeliver(tx: Transaction, context: OperationContext, delivery_id: str) -> Any:
    """Send a message once more, under the same id."""
    return delivery_json(deliveries.redeliver(tx, checks.id_of(tx, delivery_id, "delivery")))


def _check_events(events: Any) -> list[str]:
    return [] if events is None else checks.check_texts(events, "events", "names of events", 10_000)


def _check_secret(secret: Any) -> str | None:
    if secret is not None and not isinstance(secret, str):
        raise Invalid("secret must be a text.", code="invalid_secret", field="secret")
    return secret
