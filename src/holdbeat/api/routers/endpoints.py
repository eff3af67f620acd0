"""Endpoints: everything that a Schedule has, a test call, and their health."""

from __future__ import annotations

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.schedule_routes import Kind, add_routes
from holdbeat.api.routers.schedules import preview_schedule_timetable
from holdbeat.api.routes import ID_OR_NAME, Routes
from holdbeat.api.schemas.schedules import (
    Endpoint,
    EndpointChange,
    EndpointHealth,
    EndpointPage,
    EndpointRequest,
    EndpointTest,
    Preview,
    PreviewRequest,
)
from holdbeat.domain.views import endpoint_json, redacted_headers
from holdbeat.engine.endpoint_test import try_endpoint
from holdbeat.store.schedules.endpoints import endpoint_health

routes = Routes("endpoints", path_id=ID_OR_NAME)
_KIND = Kind("endpoint", "/api/endpoints", True, endpoint_json, Endpoint, EndpointPage, EndpointRequest, EndpointChange)


@routes.post("/api/endpoints/preview", body=PreviewRequest, answers={200: Preview})
async def preview_endpoint_timetable(call: ApiRequest) -> Response:
    """Show the next due times of a cron expression or an interval before it is saved, gaps and folds marked."""
    return await preview_schedule_timetable(call)


add_routes(routes, _KIND)


@routes.post("/api/endpoints/{id}/test", answers={200: EndpointTest}, refuses=(400, 413))
async def test_endpoint(call: ApiRequest) -> Response:
    """Call an endpoint at once and show what came back; neither its plan nor its health change."""
    reference = call.path("id")
    await call.fields((), may_be_empty=True)
    found = await try_endpoint(call.service.store, call.service.outbound, reference)
    result = found.pop("result") or {}
    shown = {name: result.get(name) for name in ("status_code", "headers", "body", "truncated", "duration_s")}
    if isinstance(shown["headers"], dict):
        shown["headers"] = redacted_headers(shown["headers"])
    return answer({**found, **shown})


@routes.get("/api/endpoints/{id}/health", answers={200: EndpointHealth})
async def get_endpoint_health(call: ApiRequest) -> Response:
    """Read how an endpoint did over the last 1, 4 and 24 hours."""
    return answer(await call.service.store.read(endpoint_health, call.path("id")))
