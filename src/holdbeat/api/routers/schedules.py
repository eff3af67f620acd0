"""Routes of schedules and endpoints: the same for both, under two paths."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import ID_OR_NAME, TEXT, Parameter, Routes
from holdbeat.domain.occurrence import OccurrenceStatus
from holdbeat.operations import endpoint_test
from holdbeat.operations.kinds import methods_of
from holdbeat.schemas.base import Page
from holdbeat.schemas.field_bounds import MOST_PREVIEWED
from holdbeat.schemas.schedules import (
    BulkPauseRequest,
    BulkResumeRequest,
    Endpoint,
    EndpointChange,
    EndpointHealth,
    EndpointRequest,
    EndpointTest,
    HintRequest,
    Occurrence,
    Preview,
    PreviewRequest,
    Schedule,
    ScheduleChange,
    ScheduleExplanation,
    SchedulePauseRequest,
    ScheduleRequest,
    TriggeredJob,
)

schedule_routes = Routes("schedules", path_id=ID_OR_NAME)
endpoint_routes = Routes("endpoints", path_id=ID_OR_NAME)

_FLAGS = [
    Parameter(name, f"Only those that are {name}, or not.", {"type": "boolean"})
    for name in ("enabled", "adaptive", "paused", "failing")
]
_TEXT = Parameter("q", "A part of the name, type, a label, the id or, of an endpoint, the URL.", {"type": "string"})
_LABEL = Parameter("label", "Only those with this label: name=value.", TEXT)
_WORK = [Parameter(name, f"Only those with this {name}.", TEXT) for name in ("type", "template_id")]
_ORDER = Parameter(
    "order", "newest first, or those that run next first.", {"type": "string", "enum": ["newest", "next_run"]}
)
_STATUS = Parameter("status", "Only these outcomes.", {"enum": list(OccurrenceStatus)}, is_multiple=True)
_COUNT = Parameter("n", "How many.", {"type": "integer", "minimum": 1, "maximum": MOST_PREVIEWED, "default": 10})


def _add(routes: Routes, namespace: str, schema: Any, request: Any, change: Any, filters: list[Parameter]) -> None:
    """Declares the routes that schedules and endpoints share."""
    methods = methods_of(namespace)
    path, item_path = f"/api/{namespace}", f"/api/{namespace}/{{id}}"
    add = routes.operation
    add("POST", f"{path}/preview", methods["preview_timetable"], body=PreviewRequest, answers={200: Preview})
    add("POST", path, methods["create"], body=request, answers={201: schema}, refuses=(409,))
    add("GET", path, methods["list"], answers={200: Page[schema]}, parameters=(*filters, _LABEL, _TEXT, _ORDER))
    add("GET", item_path, methods["get"], answers={200: schema})
    add("PATCH", item_path, methods["update"], body=change, answers={200: schema}, refuses=(409,))
    add("DELETE", item_path, methods["delete"], answers={204: None})
    for step in ("enable", "disable", "resume", "reset-failures"):
        method = methods[step.replace("-", "_")]
        add("POST", f"{item_path}/{step}", method, answers={200: schema}, refuses=(400, 409, 413))
    add(
        "POST", f"{item_path}/pause", methods["pause"], body=SchedulePauseRequest, body_optional=True,
        answers={200: schema}, refuses=(409,),
    )  # fmt: skip
    add(
        "POST", f"{path}/pause", methods["pause_many"], body=BulkPauseRequest, answers={200: Page[schema]},
        refuses=(404, 409),
    )  # fmt: skip
    add(
        "POST", f"{path}/resume", methods["resume_many"], body=BulkResumeRequest, body_optional=True,
        answers={200: Page[schema]}, refuses=(404,),
    )  # fmt: skip
    add("POST", f"{item_path}/hints", methods["hint"], body=HintRequest, answers={200: schema}, refuses=(409,))
    add("DELETE", f"{item_path}/hints", methods["clear_hints"], answers={200: schema}, refuses=(409,))
    add("POST", f"{item_path}/trigger", methods["trigger"], answers={201: TriggeredJob}, refuses=(400, 409, 413))
    add(
        "GET", f"{item_path}/occurrences", methods["occurrences"], answers={200: Page[Occurrence]},
        parameters=(_STATUS,),
    )  # fmt: skip
    add("GET", f"{item_path}/explain", methods["explain"], answers={200: ScheduleExplanation})
    add("GET", f"{item_path}/preview", methods["preview"], answers={200: Preview}, parameters=(_COUNT,))


_add(schedule_routes, "schedules", Schedule, ScheduleRequest, ScheduleChange, [*_FLAGS, *_WORK])
_add(endpoint_routes, "endpoints", Endpoint, EndpointRequest, EndpointChange, _FLAGS)

endpoint_routes.operation(
    "GET", "/api/endpoints/{id}/health", methods_of("endpoints")["health"], answers={200: EndpointHealth}
)


@endpoint_routes.post("/api/endpoints/{id}/test", answers={200: EndpointTest}, refuses=(400, 413))
async def test_endpoint(request: ApiRequest) -> Response:
    """Call an endpoint at once and show what came back; neither its plan nor its health change."""
    reference = request.path("id")
    await request.fields((), may_be_empty=True)
    context = request.context
    return answer(await endpoint_test.test_endpoint(context.store, context.outbound, reference))
