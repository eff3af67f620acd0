"""Verbs about webhooks and their deliveries."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import CURSOR, JSON, LIMIT, WATCH, ListingGroup, example, reaching
from holdbeat.cli.output import fields, instant, items_table, show, show_list

_EVENT = click.option("--event", "events", multiple=True, help="Only this event; may be repeated. Without it: all.")


@click.group(
    cls=ListingGroup, epilog=example("holdbeat webhooks create https://example.org/hook --event job.run.failed")
)
def webhooks() -> None:
    """Webhook subscriptions: URLs that are told how jobs end."""


@webhooks.command("create", epilog=example("holdbeat webhooks create https://example.org/hook --event job.run.failed"))
@click.argument("url")
@_EVENT
@click.option("--secret", help="whsec_… to sign with; made if left out.")
@JSON
@reaching
def add(backend: Backend, url: str, events: tuple[str, ...], secret: str | None, as_json: bool) -> None:
    """Subscribe a URL. Its secret is printed now, and never again."""
    made = backend.create_webhook(url, events=events or None, secret=secret)
    show(made, lambda webhook: [fields({"id": webhook["id"], "secret": webhook["secret"]})], as_json=as_json)


@webhooks.command("list", epilog=example("holdbeat webhooks list"))
@LIMIT
@CURSOR
@WATCH
@JSON
@reaching
def list_webhooks(backend: Backend, limit: int | None, cursor: str | None, watch: float | None, as_json: bool) -> None:
    """List subscriptions, the newest first."""
    show_list(
        lambda: backend.list_webhooks(limit=limit, cursor=cursor),
        items_table(
            {
                "id": "id",
                "url": "url",
                "events": lambda webhook: ", ".join(webhook["events"]) or "all",
                "enabled": "enabled",
                "note": "disabled_reason",
            }
        ),
        as_json=as_json,
        watch=watch,
    )


@webhooks.command("edit", epilog=example("holdbeat webhooks edit WEBHOOK --enable"))
@click.argument("webhook_id", metavar="WEBHOOK")
@click.option("--url", help="Another address.")
@_EVENT
@click.option("--enable/--disable", "enabled", default=None, help="Switch it on or off.")
@JSON
@reaching
def edit(backend: Backend, webhook_id: str, events: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Change a WEBHOOK."""
    changes = without_none({**options, "events": list(events) or None})
    if not changes:
        raise click.UsageError("Say what to change: --url, --event, --enable or --disable.")
    show(backend.update_webhook(webhook_id, changes), lambda webhook: [fields(webhook)], as_json=as_json)


@webhooks.command("rotate", epilog=example("holdbeat webhooks rotate WEBHOOK"))
@click.argument("webhook_id", metavar="WEBHOOK")
@click.option("--secret", help="whsec_… to sign with; made if left out.")
@JSON
@reaching
def rotate(backend: Backend, webhook_id: str, secret: str | None, as_json: bool) -> None:
    """Give a WEBHOOK a new secret, printed once; the old one signs too for a day."""
    changed = backend.rotate_webhook(webhook_id, secret=secret)
    show(changed, lambda webhook: [fields({"id": webhook["id"], "secret": webhook["secret"]})], as_json=as_json)


@webhooks.command("test", epilog=example("holdbeat webhooks test WEBHOOK"))
@click.argument("webhook_id", metavar="WEBHOOK")
@JSON
@reaching
def test(backend: Backend, webhook_id: str, as_json: bool) -> None:
    """Send a test message to a WEBHOOK."""
    show(backend.test_webhook(webhook_id), lambda sent: [f"{sent['id']} {sent['status']}"], as_json=as_json)


@webhooks.command("secret", epilog=example("holdbeat webhooks secret", "holdbeat webhooks secret --rotate"))
@click.option("--rotate", "is_rotated", is_flag=True, help="Make a new one; the old one signs too for a day.")
@JSON
@reaching
def secret(backend: Backend, is_rotated: bool, as_json: bool) -> None:
    """Show the server's own secret, which signs messages to a plain webhook URL."""
    answer = backend.rotate_webhook_secret() if is_rotated else backend.webhook_secret()
    show(answer, lambda secret: [fields(secret)], as_json=as_json)


@webhooks.command("delete", epilog=example("holdbeat webhooks delete WEBHOOK"))
@click.argument("webhook_id", metavar="WEBHOOK")
@reaching
def delete(backend: Backend, webhook_id: str) -> None:
    """Delete a subscription."""
    backend.delete_webhook(webhook_id)


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat deliveries list --status FAILED", "holdbeat deliveries redeliver DELIVERY"),
)
def deliveries() -> None:
    """Webhook messages: pending, delivered or given up."""


@deliveries.command("list", epilog=example("holdbeat deliveries list --job JOB"))
@click.option("--job", "job_id", metavar="JOB", help="Only messages about this job.")
@click.option("--webhook", "webhook_id", metavar="WEBHOOK", help="Only messages to this subscription.")
@click.option(
    "--status", type=click.Choice(["PENDING", "DELIVERED", "FAILED"], case_sensitive=False), help="Only this status."
)
@LIMIT
@CURSOR
@WATCH
@JSON
@reaching
def list_deliveries(backend: Backend, watch: float | None, as_json: bool, **filters: Any) -> None:
    """List messages, the newest first."""
    show_list(
        lambda: backend.list_deliveries(**filters),
        items_table(
            {
                "id": "id",
                "status": "status",
                "event": "event",
                "url": "url",
                "attempts": "attempts",
                "next attempt": lambda delivery: instant(delivery["next_attempt_at"]),
                "last error": "last_error",
            }
        ),
        as_json=as_json,
        watch=watch,
    )


@deliveries.command("show", epilog=example("holdbeat deliveries show DELIVERY --json"))
@click.argument("delivery_id", metavar="DELIVERY")
@JSON
@reaching
def show_delivery(backend: Backend, delivery_id: str, as_json: bool) -> None:
    """Show a DELIVERY with its payload."""
    show(backend.get_delivery(delivery_id), lambda delivery: [fields(delivery)], as_json=as_json)


@deliveries.command("redeliver", epilog=example("holdbeat deliveries redeliver DELIVERY"))
@click.argument("delivery_id", metavar="DELIVERY")
@JSON
@reaching
def redeliver(backend: Backend, delivery_id: str, as_json: bool) -> None:
    """Send a DELIVERY again, with the same id."""
    show(backend.redeliver(delivery_id), lambda delivery: [f"{delivery['id']} {delivery['status']}"], as_json=as_json)
