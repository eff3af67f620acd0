"""Verbs about webhooks and their deliveries."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import ListingGroup, example, printing, reaching, words_of
from holdbeat.cli.output import Columns, Drawn, at, confirm, fields, items_table, its_fields
from holdbeat.schemas.system import DeliveryStatus

EVENT = click.option("--event", "events", multiple=True, help="Only this event; may be repeated. Without it: all.")
SECRET = click.option("--secret", help="whsec_… to sign with; made if left out.")
WEBHOOK = click.argument("webhook_id", metavar="WEBHOOK")
DELIVERY = click.argument("delivery_id", metavar="DELIVERY")


def _new_secret(webhook: Any) -> list[Drawn]:
    return [fields({"id": webhook["id"], "secret": webhook["secret"]})]


@click.group(
    cls=ListingGroup, epilog=example("holdbeat webhooks create https://example.org/hook --event job.run.failed")
)
def webhooks() -> None:
    """Webhook subscriptions: URLs that are told how jobs end."""


@webhooks.command("create", epilog=example("holdbeat webhooks create https://example.org/hook --event job.run.failed"))
@click.argument("url")
@EVENT
@SECRET
@printing(_new_secret)
def add(backend: Backend, url: str, events: tuple[str, ...], secret: str | None) -> Any:
    """Subscribe a URL. Its secret is printed only now."""
    return backend.create_webhook(url, events=events or None, secret=secret)


_WEBHOOK_COLUMNS: Columns = (
    "id", "url", ("events", lambda webhook: ", ".join(webhook["events"]) or "all"), "enabled",
    ("note", "disabled_reason"),
)  # fmt: skip


@webhooks.command("list", epilog=example("holdbeat webhooks list"))
@printing(items_table(_WEBHOOK_COLUMNS), is_paged=True)
def list_webhooks(backend: Backend, **page: Any) -> Any:
    """List subscriptions, the newest first."""
    return backend.list_webhooks(**page)


@webhooks.command("edit", epilog=example("holdbeat webhooks edit WEBHOOK --enable"))
@WEBHOOK
@click.option("--url", help="Another address.")
@EVENT
@click.option("--enable/--disable", "enabled", default=None, help="Switch it on or off.")
@printing(its_fields)
def edit(backend: Backend, webhook_id: str, events: tuple[str, ...], **options: Any) -> Any:
    """Change a WEBHOOK."""
    changes = without_none({**options, "events": list(events) or None})
    if not changes:
        raise click.UsageError("Say what to change: --url, --event, --enable or --disable.")
    return backend.update_webhook(webhook_id, changes)


@webhooks.command("rotate", epilog=example("holdbeat webhooks rotate WEBHOOK"))
@WEBHOOK
@SECRET
@printing(_new_secret)
def rotate(backend: Backend, webhook_id: str, secret: str | None) -> Any:
    """Give a WEBHOOK a new secret, printed once. The old one is also used for a day."""
    return backend.rotate_webhook(webhook_id, secret=secret)


@webhooks.command("test", epilog=example("holdbeat webhooks test WEBHOOK"))
@WEBHOOK
@printing(lambda sent: [f"{sent['id']} {sent['status']}"])
def test(backend: Backend, webhook_id: str) -> Any:
    """Send a test message to a WEBHOOK."""
    return backend.test_webhook(webhook_id)


@webhooks.command("secret", epilog=example("holdbeat webhooks secret", "holdbeat webhooks secret --rotate"))
@click.option("--rotate", "is_rotated", is_flag=True, help="Create a new one; the old one is also used for a day.")
@printing(its_fields)
def secret(backend: Backend, is_rotated: bool) -> Any:
    """Show the server's own secret, which signs messages to a plain webhook URL."""
    return backend.rotate_webhook_secret() if is_rotated else backend.webhook_secret()


@webhooks.command("delete", epilog=example("holdbeat webhooks delete WEBHOOK --yes"))
@WEBHOOK
@click.option("--yes", is_flag=True, help="Do not ask.")
@reaching
def delete(backend: Backend, webhook_id: str, yes: bool) -> None:
    """Delete a subscription, and send none of its messages that are pending."""
    webhook = backend.get_webhook(webhook_id)
    confirm(f"The subscription of {webhook['url']} will be deleted; its pending messages are not sent.", yes=yes)
    backend.delete_webhook(webhook["id"])


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat deliveries list --status FAILED", "holdbeat deliveries redeliver DELIVERY"),
)
def deliveries() -> None:
    """Webhook messages: pending, delivered or given up."""


_DELIVERY_COLUMNS: Columns = (
    "id", "status", "event", "url", "attempts", ("next attempt", at("next_attempt_at")), ("last error", "last_error"),
)  # fmt: skip


@deliveries.command("list", epilog=example("holdbeat deliveries list --job JOB"))
@click.option("--job", "job_id", metavar="JOB", help="Only messages about this job.")
@click.option("--webhook", "webhook_id", metavar="WEBHOOK", help="Only messages to this subscription.")
@click.option("--status", type=words_of(DeliveryStatus), help="Only this status.")
@printing(items_table(_DELIVERY_COLUMNS), is_paged=True)
def list_deliveries(backend: Backend, **filters: Any) -> Any:
    """List messages, the newest first."""
    return backend.list_deliveries(**filters)


@deliveries.command("show", epilog=example("holdbeat deliveries show DELIVERY --json"))
@DELIVERY
@printing(its_fields)
def show_delivery(backend: Backend, delivery_id: str) -> Any:
    """Show a DELIVERY with its payload."""
    return backend.get_delivery(delivery_id)


@deliveries.command("redeliver", epilog=example("holdbeat deliveries redeliver DELIVERY"))
@DELIVERY
@printing(lambda delivery: [f"{delivery['id']} {delivery['status']}"])
def redeliver(backend: Backend, delivery_id: str) -> Any:
    """Send a DELIVERY again, with the same id."""
    return backend.redeliver(delivery_id)
