"""Routes of API keys."""

from __future__ import annotations

from holdbeat.api.routes import Routes
from holdbeat.operations import keys
from holdbeat.schemas.base import Items
from holdbeat.schemas.system import ApiKey, KeyRequest, NewApiKey

routes = Routes("keys")

routes.operation("GET", "/api/keys", keys.list_keys, answers={200: Items[ApiKey]})
routes.operation("POST", "/api/keys", keys.create_key, body=KeyRequest, answers={201: NewApiKey})
routes.operation("DELETE", "/api/keys/{id}", keys.revoke_key, answers={200: ApiKey})
