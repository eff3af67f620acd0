"""Routes of webhooks and their deliveries."""

from __future__ import annotations

from holdbeat.api.routes import Parameter, Routes
from holdbeat.domain.webhook import DeliveryStatus
from holdbeat.operations import webhooks
from holdbeat.schemas.base import Page
from holdbeat.schemas.system import Delivery, RotateRequest, Webhook, WebhookChange, WebhookRequest, WebhookSecret

routes = Routes("webhooks")

routes.operation("POST", "/api/webhooks", webhooks.create_webhook, body=WebhookRequest, answers={201: Webhook})
routes.operation("GET", "/api/webhooks", webhooks.list_webhooks, answers={200: Page[Webhook]})
routes.operation(
    "GET", "/api/webhooks/secret", webhooks.webhook_secret, name="get_webhook_secret", answers={200: WebhookSecret}
)
routes.operation(
    "POST", "/api/webhooks/secret/rotate", webhooks.rotate_webhook_secret, name="rotate_server_webhook_secret",
    body=RotateRequest, body_optional=True, answers={200: WebhookSecret},
)  # fmt: skip
routes.operation("GET", "/api/webhooks/{id}", webhooks.get_webhook, answers={200: Webhook})
routes.operation("PATCH", "/api/webhooks/{id}", webhooks.update_webhook, body=WebhookChange, answers={200: Webhook})
routes.operation("DELETE", "/api/webhooks/{id}", webhooks.delete_webhook, answers={204: None})
routes.operation(
    "POST", "/api/webhooks/{id}/rotate", webhooks.rotate_webhook, name="rotate_webhook_secret", body=RotateRequest,
    body_optional=True, answers={200: Webhook},
)  # fmt: skip
routes.operation("POST", "/api/webhooks/{id}/test", webhooks.test_webhook, answers={201: Delivery}, refuses=(409,))
routes.operation(
    "GET", "/api/deliveries", webhooks.list_deliveries, name="list_webhook_deliveries",
    answers={200: Page[Delivery]},
    parameters=(
        Parameter("job_id", "Only messages about this job.", {"type": "string", "format": "uuid"}),
        Parameter("webhook_id", "Only messages to this subscription.", {"type": "string", "format": "uuid"}),
        Parameter("status", "Only messages of this status.", {"enum": list(DeliveryStatus)}),
    ),
)  # fmt: skip
routes.operation("GET", "/api/deliveries/{id}", webhooks.get_delivery, answers={200: Delivery})
routes.operation(
    "POST", "/api/deliveries/{id}/redeliver", webhooks.redeliver, answers={200: Delivery}, refuses=(400, 409, 413)
)
