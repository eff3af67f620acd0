"""Routes of limits."""

from __future__ import annotations

from holdbeat.api.routes import NAME, Routes
from holdbeat.operations import limits
from holdbeat.schemas.base import Items
from holdbeat.schemas.limits import Limit, LimitChange

routes = Routes("limits", path_id={**NAME, "description": "The name."})

routes.operation("GET", "/api/limits", limits.list_limits, answers={200: Items[Limit]})
routes.operation("PUT", "/api/limits/{id}", limits.set_limit, body=LimitChange, answers={200: Limit})
routes.operation("DELETE", "/api/limits/{id}", limits.reset_limit, answers={200: Items[Limit]}, refuses=(409,))
