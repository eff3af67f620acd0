"""Webhook subscriptions, and the server's own secret for messages without one (WEB-02, WEB-04)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.errors import Invalid, refuse_stale
from holdbeat.domain.params import dumps
from holdbeat.domain.webhook import Webhook, check_events, check_secret, host_of, new_secret, rotated, signing_secrets
from holdbeat.store import meta
from holdbeat.store.reads.columns import Table, row_writer
from holdbeat.store.reads.pagination import Conditions, Cursors, Page, read_table_page
from holdbeat.store.transaction import Transaction

WEBHOOKS = Table("webhooks", Webhook, {"events": lambda text: tuple(json.loads(text or "[]"))}, noun="webhook")
# A subscription to all events is stored as NULL: an empty list would look like a filter that matches nothing.
_row_of = row_writer(WEBHOOKS.fields, (), {"events": lambda events: dumps(list(events)) if events else None})
GIVE_UP = (
    "UPDATE deliveries SET status = 'FAILED', finished_at = :now, next_attempt_at = NULL, last_error = :why, "
    "locked_by = NULL, locked_until = NULL"
)
SERVER_SECRET = "webhook_secret"
_PREVIOUS = "webhook_secret_previous"
_ROTATED = "webhook_secret_rotated_at"
_EDITABLE = frozenset({"url", "events", "enabled"})


def create_webhook(tx: Transaction, url: str, events: Sequence[str] = (), secret: str | None = None) -> Webhook:
    """Stores a subscription; without a secret it gets one. The caller has checked the URL."""
    webhook = Webhook(
        tx.new_id(),
        url,
        check_secret(secret) if secret is not None else new_secret(secrets.token_bytes(32)),
        tx.now,
        check_events(events),
    )
    tx.insert("webhooks", WEBHOOKS.fields, [_row_of(webhook)])
    return webhook


def list_webhooks(tx: Transaction, *, limit: int | None = None, cursor: str | None = None) -> Page[Webhook]:
    """Subscriptions, the newest first."""
    return read_table_page(tx, Cursors("webhooks"), WEBHOOKS, Conditions(), limit, cursor)


def patch_webhook(tx: Transaction, webhook_id: str, changes: Mapping[str, Any], version: int | None = None) -> Webhook:
    """Changes url, events or enabled. With a `version`, only if nobody has changed it since (else Stale)."""
    unknown = changes.keys() - _EDITABLE
    if unknown:
        name = min(unknown)
        raise Invalid(f"{name} of a webhook cannot be changed.", code="unknown_field", field=name)
    webhook = _locked(tx, webhook_id, version)
    if not changes:
        return webhook
    if "url" in changes:
        webhook.url = changes["url"]
        _redirect_pending(tx, webhook)
    if "events" in changes:
        webhook.events = check_events(changes["events"] or ())
    if "enabled" in changes:
        webhook.enabled = bool(changes["enabled"])
        if webhook.enabled:
            webhook.disabled_reason = None
    return _save(tx, webhook)


def rotate_webhook(tx: Transaction, webhook_id: str, secret: str | None = None) -> Webhook:
    """Gives a subscription a new secret; the one before it signs too for a day."""
    webhook = _locked(tx, webhook_id, None)
    fresh = secret if secret is not None else new_secret(secrets.token_bytes(32))
    return _save(tx, rotated(webhook, fresh, now=tx.now))


def delete_webhook(tx: Transaction, webhook_id: str, version: int | None = None) -> None:
    """Ends a subscription. What was on its way to it can no longer be signed, and is FAILED."""
    _locked(tx, webhook_id, version)
    tx.execute("DELETE FROM webhooks WHERE id = :id", id=webhook_id)
    fail_pending(tx, webhook_id, "the subscription was deleted")


def disable_webhook(tx: Transaction, webhook_id: str, reason: str) -> bool:
    """Switches a subscription off because of what its receiver said. Answers whether it was on."""
    changed = tx.rows(
        "UPDATE webhooks SET enabled = :no, disabled_reason = :reason, version = version + 1 "
        "WHERE id = :id AND enabled = :yes RETURNING id",
        id=webhook_id,
        no=False,
        yes=True,
        reason=reason,
    )
    if changed:
        fail_pending(tx, webhook_id, "the subscription was disabled")
    return bool(changed)


def fail_pending(tx: Transaction, webhook_id: str, why: str) -> None:
    """Gives up all messages that are still on their way to a subscription."""
    tx.execute(f"{GIVE_UP} WHERE status = 'PENDING' AND webhook_id = :id", id=webhook_id, now=tx.now, why=why)


def _redirect_pending(tx: Transaction, webhook: Webhook) -> None:
    """Sends what has not arrived yet to where the subscription leads now."""
    tx.execute(
        "UPDATE deliveries SET url = :url, host = :host WHERE status = 'PENDING' AND webhook_id = :id",
        id=webhook.id,
        url=webhook.url,
        host=host_of(webhook.url),
    )


@dataclass(frozen=True, slots=True)
class ServerSecret:
    """The secrets that sign messages to a plain `webhook_url`: newest first, and until when older ones sign."""

    secrets: tuple[str, ...]
    rotated_at: datetime | None = None


def server_secret(tx: Transaction) -> ServerSecret:
    """The server's own secret, made when it is first needed."""
    stored = _server_secret_rows(tx)
    if SERVER_SECRET not in stored:
        meta.put_if_absent(tx, SERVER_SECRET, new_secret(secrets.token_bytes(32)))
        stored = _server_secret_rows(tx)
    if _ROTATED not in stored:
        return ServerSecret((stored[SERVER_SECRET],))
    rotated_at = from_iso(stored[_ROTATED])
    # Rotated like the secret of a subscription: the rule about the day is written there.
    as_webhook = Webhook("", "", stored[SERVER_SECRET], rotated_at, (), stored[_PREVIOUS], rotated_at)
    return ServerSecret(signing_secrets(as_webhook, now=tx.now), rotated_at)


def rotate_server_secret(tx: Transaction, secret: str | None = None) -> ServerSecret:
    """Gives the server a new secret of its own; the one before it signs too for a day."""
    fresh = check_secret(secret) if secret is not None else new_secret(secrets.token_bytes(32))
    before = server_secret(tx).secrets[0]
    for key, value in ((SERVER_SECRET, fresh), (_PREVIOUS, before), (_ROTATED, iso(tx.now))):
        meta.put(tx, key, value)
    return ServerSecret((fresh, before), tx.now)


def server_secret_json(secret: ServerSecret) -> dict[str, Any]:
    """The server's own secret as the API and the command line show it to an admin."""
    return {
        "secret": secret.secrets[0],
        "previous_secret": secret.secrets[1] if len(secret.secrets) > 1 else None,
        "rotated_at": None if secret.rotated_at is None else iso(secret.rotated_at),
    }


def _server_secret_rows(tx: Transaction) -> dict[str, str]:
    return meta.get_many(tx, [SERVER_SECRET, _PREVIOUS, _ROTATED])


def webhooks_by_id(tx: Transaction, ids: Collection[str]) -> dict[str, Webhook]:
    """Several subscriptions at once; unknown ids are left out."""
    if not ids:
        return {}
    return {webhook.id: webhook for webhook in WEBHOOKS.all(tx, "WHERE id IN :ids", ids=sorted(ids))}


def _locked(tx: Transaction, webhook_id: str, version: int | None) -> Webhook:
    webhook = WEBHOOKS.get(tx, webhook_id, locked=True)
    refuse_stale(f"Webhook {webhook_id}", webhook.version, version, webhook_id=webhook_id)
    return webhook


def _save(tx: Transaction, webhook: Webhook) -> Webhook:
    webhook.version += 1
    tx.update("webhooks", WEBHOOKS.fields, _row_of(webhook))
    return webhook
