"""Webhooks and their deliveries."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, IF_MATCH, LIMIT, Parameter, Routes
from holdbeat.api.schemas.others import (
    Delivery,
    DeliveryPage,
    RotateRequest,
    Webhook,
    WebhookChange,
    WebhookPage,
    WebhookRequest,
    WebhookSecret,
)
from holdbeat.domain.errors import Invalid
from holdbeat.domain.submission import check_webhook_url
from holdbeat.domain.views import REDACTED, delivery_json, webhook_json
from holdbeat.domain.webhook import DeliveryStatus
from holdbeat.domain.webhook import Webhook as DomainWebhook
from holdbeat.store.webhooks.deliveries import list_deliveries, load_delivery
from holdbeat.store.webhooks.deliveries import redeliver as redeliver_
from holdbeat.store.webhooks.subscriptions import (
    create_webhook as create,
)
from holdbeat.store.webhooks.subscriptions import (
    delete_webhook as delete,
)
from holdbeat.store.webhooks.subscriptions import (
    list_webhooks as list_,
)
from holdbeat.store.webhooks.subscriptions import (
    load_webhook,
    patch_webhook,
    rotate_server_secret,
    rotate_webhook,
    server_secret,
    server_secret_json,
)

routes = Routes("webhooks")


def _answer(webhook: DomainWebhook, status: int = 200, *, with_secret: bool = False) -> Response:
    headers = {"ETag": f'"{webhook.version}"'}
    if status == 201:
        headers["Location"] = f"/api/webhooks/{webhook.id}"
    return answer(webhook_json(webhook, with_secret=with_secret), status, headers)


@routes.post("/api/webhooks", body=WebhookRequest, answers={201: Webhook})
async def create_webhook(call: ApiRequest) -> Response:
    """Subscribe to events. The answer shows the secret, once."""
    given = await call.fields(("url", "events", "secret"), required=("url",))
    url = check_webhook_url(given["url"], "url")
    call.service.check_target(url)
    webhook = await call.service.store.write(create, url, _events(given), _secret(given))
    return _answer(webhook, 201, with_secret=True)


def _events(given: dict[str, Any]) -> list[str]:
    events = given.get("events")
    if events is None:
        return []
    if not isinstance(events, list) or not all(isinstance(each, str) for each in events):
        raise Invalid("events must be a list of names of events.", code="invalid_events", field="events")
    return events


def _secret(given: dict[str, Any]) -> str | None:
    secret = given.get("secret")
    if secret is not None and not isinstance(secret, str):
        raise Invalid("secret must be a text.", code="invalid_secret", field="secret")
    return secret


@routes.get("/api/webhooks", answers={200: WebhookPage}, parameters=(LIMIT, CURSOR))
async def list_webhooks(call: ApiRequest) -> Response:
    """List subscriptions, the newest first."""
    page = await call.service.store.read(list_, limit=call.limit, cursor=call.cursor)
    return answer({"items": [webhook_json(each) for each in page.items], "next_cursor": page.next_cursor})


@routes.get("/api/webhooks/secret", answers={200: WebhookSecret})
async def get_webhook_secret(call: ApiRequest) -> Response:
    """Read the secret that signs messages to a plain `webhook_url`. It needs a key with the scope admin."""
    call.require_admin("Reading the server's own secret")
    # Written, for the first who asks makes it.
    return answer(server_secret_json(await call.service.store.write(server_secret)))


@routes.post("/api/webhooks/secret/rotate", body=RotateRequest, body_optional=True, answers={200: WebhookSecret})
async def rotate_server_webhook_secret(call: ApiRequest) -> Response:
    """Give the server a new secret for messages to a plain `webhook_url`; the old one signs too for 24 h."""
    call.require_admin("Rotating the server's own secret")
    given = await call.fields(("secret",), may_be_empty=True)
    return answer(server_secret_json(await call.service.store.write(rotate_server_secret, _secret(given))))


@routes.get("/api/webhooks/{id}", answers={200: Webhook})
async def get_webhook(call: ApiRequest) -> Response:
    """Read one subscription."""
    return _answer(await call.service.store.read(load_webhook, call.id("webhook")))


@routes.patch("/api/webhooks/{id}", body=WebhookChange, answers={200: Webhook}, refuses=(412,), parameters=(IF_MATCH,))
async def update_webhook(call: ApiRequest) -> Response:
    """Change url, events or enabled of a subscription."""
    webhook_id, version = call.id("webhook"), call.expected_version()
    changes = dict(await call.fields(("url", "events", "enabled", "secret")))
    if changes.pop("secret", REDACTED) != REDACTED:
        raise Invalid("A secret is not changed but rotated: use …/rotate.", code="use_rotate", field="secret")
    if "url" in changes:
        call.service.check_target(check_webhook_url(changes["url"], "url"))
    if "events" in changes:
        changes["events"] = _events(changes)
    if not isinstance(changes.get("enabled", True), bool):
        raise Invalid("enabled must be true or false.", code="invalid_flag", field="enabled")
    return _answer(await call.service.store.write(patch_webhook, webhook_id, changes, version))


@routes.delete("/api/webhooks/{id}", answers={204: None})
async def delete_webhook(call: ApiRequest) -> Response:
    """End a subscription."""
    await call.service.store.write(delete, call.id("webhook"))
    return Response(status_code=204)


@routes.post("/api/webhooks/{id}/rotate", body=RotateRequest, body_optional=True, answers={200: Webhook})
async def rotate_webhook_secret(call: ApiRequest) -> Response:
    """Give a subscription a new secret, shown once; the old one signs too for 24 h."""
    webhook_id = call.id("webhook")
    given = await call.fields(("secret",), may_be_empty=True)
    return _answer(await call.service.store.write(rotate_webhook, webhook_id, _secret(given)), with_secret=True)


@routes.get(
    "/api/deliveries",
    answers={200: DeliveryPage},
    parameters=(
        Parameter("job_id", "Only messages about this job.", {"type": "string", "format": "uuid"}),
        Parameter("status", "Only messages of this status.", {"enum": list(DeliveryStatus)}),
        LIMIT,
        CURSOR,
    ),
)
async def list_webhook_deliveries(call: ApiRequest) -> Response:
    """List messages on their way, arrived, or given up; the newest first."""
    status = call.choice("status", DeliveryStatus)
    page = await call.service.store.read(
        list_deliveries,
        job_id=call.id_filter("job_id"),
        status=None if status is None else DeliveryStatus(status),
        limit=call.limit,
        cursor=call.cursor,
    )
    return answer({"items": [delivery_json(each) for each in page.items], "next_cursor": page.next_cursor})


@routes.get("/api/deliveries/{id}", answers={200: Delivery})
async def get_delivery(call: ApiRequest) -> Response:
    """Read one message."""
    return answer(delivery_json(await call.service.store.read(load_delivery, call.id("delivery"))))


@routes.post("/api/deliveries/{id}/redeliver", answers={200: Delivery}, refuses=(400, 409, 413))
async def redeliver(call: ApiRequest) -> Response:
    """Send a message once more, under the same id."""
    delivery_id = call.id("delivery")
    await call.fields((), may_be_empty=True)
    return answer(delivery_json(await call.service.store.write(redeliver_, delivery_id)))
