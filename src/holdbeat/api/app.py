"""The API as one ASGI application: every router behind the access middleware, and their documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdbeat.api import legacy
from holdbeat.api.access import AccessMiddleware
from holdbeat.api.context import ApiContext
from holdbeat.api.docs_page import docs_html
from holdbeat.api.gates import gate_proxies
from holdbeat.api.openapi import openapi_document
from holdbeat.api.problem import answer, problem, wrong_method
from holdbeat.api.routers import artifacts, direct, health, jobs, keys, limits, login, logs, schedules, system, webhooks
from holdbeat.api.routes import Routes, Serve, TaggedRoute, router_route
from holdbeat.domain.errors import SettingsError
from holdbeat.schemas.system import BareParams, DirectAnswer, MappedDirectRequest
from holdbeat.settings import DirectRoute

TAKEN = frozenset(
    {"", "api", "ui", "jobs", "static", "docs", "openapi.json", "login", "logout", "healthz", "readyz", "metrics"}
)
"""First parts of paths that are the server's own."""
_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class Api(Starlette):
    """The application behind the access middleware: no route sees a request that the middleware refuses."""

    def __init__(self, context: ApiContext) -> None:
        super().__init__(exception_handlers={HTTPException: _refuse_by_router})
        self.router.redirect_slashes = False
        self._mounted = _all_routes(context)
        for gate in context.settings.declared_gates:
            _check_path("gates", gate.path)
        self._gates = gate_proxies(context)
        direct_paths: dict[str, dict[str, Serve]] = {}
        for routes in self._mounted:
            for route, serve in routes.served(context):
                if not route.path_names:
                    direct_paths.setdefault(route.path, {})[route.method] = serve
                self.router.routes.append(router_route(route, serve, routes.tag))
        self.router.routes += [
            Route("/openapi.json", self._openapi_json),
            Route("/docs", self._docs),
            Route("/docs/style.css", _docs_style),
            Route("/docs/try.js", _docs_script),
        ]
        self.access = AccessMiddleware(self.inside, context, direct_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.access(scope, receive, send)

    async def inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request that the middleware let through."""
        if self._gates and scope["type"] == "http":
            for gate in self._gates:
                if gate.serves(scope["path"]):
                    return await gate(scope, receive, send)
        await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The router, without Starlette's own answer to faults: the access middleware has that, with an id (I15)."""
        return ExceptionMiddleware(self.router, handlers=self.exception_handlers)

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made when it is first asked for."""
        return openapi_document(self._mounted)

    async def _openapi_json(self, request: Request) -> Response:
        return answer(self.openapi)

    async def _docs(self, request: Request) -> Response:
        theme = request.cookies.get("holdbeat_theme")
        return Response(docs_html(self.openapi, theme if theme in ("light", "dark") else None), media_type="text/html")


async def _docs_style(request: Request) -> Response:
    return Response(_static_file("docs.css"), media_type="text/css")


async def _docs_script(request: Request) -> Response:
    return Response(_static_file("docs.js"), media_type="text/javascript")


@cache
def _static_file(name: str) -> bytes:
    return (files("holdbeat.api") / "static" / name).read_bytes()


def _all_routes(context: ApiContext) -> list[Routes]:
    mounted = [
        jobs.job_routes,
        logs.routes,
        jobs.queue_routes,
        keys.routes,
        limits.routes,
        jobs.run_routes,
        artifacts.routes,
        jobs.template_routes,
        jobs.group_routes,
        schedules.schedule_routes,
        schedules.endpoint_routes,
        direct.routes,
        webhooks.routes,
        system.routes,
        health.routes,
        login.routes,
    ]
    if context.settings.legacy_api:
        mounted.append(legacy.routes)
    if context.settings.direct_routes:
        mounted.append(_direct_routes(context.settings.direct_routes))
    return mounted


def _direct_routes(mapped: Mapping[str, DirectRoute]) -> Routes:
    """The extra paths of direct requests (DIR-05); one that would hide something else is refused (OPS-01)."""
    extra = Routes("direct")
    operations: set[str] = set()
    for path, route in mapped.items():
        _check_path("direct_routes", path)
        endpoint = direct.mapped(path, route, operations)
        operations.add(endpoint.__name__)
        body, answers = (BareParams, Any) if route.bare else (MappedDirectRequest, DirectAnswer)
        extra.post(path, body=body, body_optional=True, answers={200: answers}, refuses=direct.REFUSES)(endpoint)
    return extra


def _check_path(setting: str, path: str) -> None:
    """Refuses a path of the settings that would hide something else (OPS-01)."""
    first = path.strip("/").partition("/")[0]
    if not _PLAIN_PATH.fullmatch(path) or ".." in path:
        fault = "is no plain path: write /words/like-these, without parameters"
    elif first in TAKEN:
        fault = f"would hide what is served under /{first}: choose another path"
    else:
        return
    raise SettingsError(f"{setting}: {path!r} {fault}.", field=setting)


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
    app: Api = request.app
    matching = [
        route
        for route in app.router.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    refused = wrong_method({method for route in matching for method in route.methods or ()})
    old = next(
        (route.path for route in matching if isinstance(route, TaggedRoute) and route.tag == legacy.routes.tag), None
    )
    return refused if old is None else legacy.deprecated(refused, old, app.access.context)
