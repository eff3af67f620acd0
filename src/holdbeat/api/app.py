"""The API as one ASGI application: every router, the doors around them, and their documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from holdbeat import __version__
from holdbeat.api import legacy
from holdbeat.api.access import AccessMiddleware
from holdbeat.api.context import ApiContext
from holdbeat.api.docs_page import STYLE, docs_html
from holdbeat.api.problem import answer, problem, wrong_method
from holdbeat.api.routers import (
    direct,
    endpoints,
    health,
    job_groups,
    job_runs,
    job_templates,
    jobs,
    login,
    logs,
    queue,
    schedules,
    system,
    webhooks,
)
from holdbeat.api.routes import Routes, Serve
from holdbeat.api.schemas.base import Problem
from holdbeat.api.schemas.others import DirectAnswer, DirectRequest
from holdbeat.domain.errors import SettingsError

TAKEN = frozenset(
    {"", "api", "jobs", "static", "docs", "openapi.json", "login", "logout", "healthz", "readyz", "metrics"}
)
"""First parts of paths that are the server's own."""
_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
DESCRIPTION = (
    "A job scheduler that never lets go of a job. Times are UTC instants with milliseconds, durations are seconds, "
    "lists are pages of items with a next_cursor, refusals are application/problem+json."
)


class Api(FastAPI):
    """FastAPI behind the doors: nothing of it sees a request that they refuse."""

    access: AccessMiddleware

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.access(scope, receive, send)

    async def inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the doors lead to."""
        await super().__call__(scope, receive, send)


def create_api(service: ApiContext) -> Api:
    """The whole API for one service."""
    app = Api(
        title="Holdbeat",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    mounted = _all_routes(service)
    straight: dict[str, dict[str, Serve]] = {}
    for routes in mounted:
        for path, serve_by_method in routes.mount(app, service).items():
            straight.setdefault(path, {}).update(serve_by_method)
    _document(app, mounted)
    app.add_exception_handler(HTTPException, _refuse_by_router)
    app.access = AccessMiddleware(app.inside, service, straight)
    return app


def _all_routes(service: ApiContext) -> list[Routes]:
    found = [
        jobs.routes,
        logs.routes,
        queue.routes,
        job_runs.routes,
        job_templates.routes,
        job_groups.routes,
        schedules.routes,
        endpoints.routes,
        direct.routes,
        webhooks.routes,
        system.routes,
        health.routes,
        login.routes,
    ]
    if service.settings.legacy_api:
        found.append(legacy.routes)
    if service.settings.direct_routes:
        found.append(_direct_routes(service.settings.direct_routes))
    return found


def _direct_routes(mapped: Mapping[str, str]) -> Routes:
    """The extra paths of direct requests (DIR-05); one that would hide something else is refused (OPS-01)."""
    extra = Routes("direct")
    operations: set[str] = set()
    for path, type_ in mapped.items():
        first = path.strip("/").partition("/")[0]
        if not _PLAIN_PATH.fullmatch(path) or ".." in path:
            what = "is no plain path: write /words/like-these, without parameters"
        elif first in TAKEN:
            what = f"would hide what is served under /{first}: choose another path"
        else:
            endpoint = direct.mapped(path, type_, operations)
            operations.add(endpoint.__name__)
            extra.post(
                path, body=DirectRequest, body_optional=True, answers={200: DirectAnswer}, refuses=direct.REFUSES
            )(endpoint)
            continue
        raise SettingsError(f"direct_routes: {path!r} {what}.", field="direct_routes")
    return extra


async def _refuse_by_router(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    match error.status_code:
        case 404:
            sentence = "There is nothing at this path. GET /openapi.json lists what there is."
            return problem(404, "not_found", sentence, headers=headers)
        case 405:
            return _wrong_method(request)
    return problem(error.status_code, "refused", str(error.detail), headers=headers)


def _wrong_method(request: Request) -> Response:
    """The router knows only the first route that fits the path; the header Allow names the methods of all of them."""
    found = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    refused = wrong_method({method for route in found for method in getattr(route, "methods", None) or ()})
    old = next((route.path for route in found if legacy.routes.tag in getattr(route, "tags", ())), None)
    return refused if old is None else legacy.told(refused, old, request.app.access.service)


def _document(app: FastAPI, mounted: list[Routes]) -> None:
    """Serves the OpenAPI document and the page that renders it."""
    models: set[type[BaseModel]] = {Problem}
    for routes in mounted:
        models |= routes.models()
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in sorted(models, key=lambda model: model.__name__)
    ]

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, schemas = models_json_schema(wanted, ref_template="#/components/schemas/{model}")
            document["components"] = {
                "schemas": schemas["$defs"],
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            }
            document["security"] = [{"key": []}, {}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    async def openapi_json(request: Request) -> Response:
        return answer(openapi())

    async def docs(request: Request) -> Response:
        return Response(docs_html(openapi()), media_type="text/html")

    async def docs_style(request: Request) -> Response:
        return Response(STYLE, media_type="text/css")

    app.add_route("/openapi.json", openapi_json, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)
    app.add_route("/docs/style.css", docs_style, include_in_schema=False)
