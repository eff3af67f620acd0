"""Routes, each with its documentation: what it takes, what it answers, what it refuses.

Guards API-01: a route cannot exist without its documented refusals, and the query parameters that are documented are
the very ones that are accepted. Most routes are an operation and a path; `operation_routes` serves those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from holdbeat.api.context import ApiContext
from holdbeat.api.operation_endpoint import BodyHook, operation_endpoint
from holdbeat.api.problem import refusal
from holdbeat.api.request import ApiRequest
from holdbeat.api.stream_access import KEY_ID
from holdbeat.domain.errors import HoldbeatError
from holdbeat.operations.operation import Operation
from holdbeat.schemas.field_bounds import LONGEST_NAME

Endpoint = Callable[[ApiRequest], Awaitable[Response]]
Serve = Callable[[Request], Coroutine[Any, Any, Response]]
Around = Callable[[Serve, str, ApiContext], Serve]
Answers = Mapping[int, Any]
"""For each status: a TypedDict, the content type of something that is not JSON, a tuple of these, or None for no
body."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header, as it is documented and accepted."""

    name: str
    description: str
    schema: Mapping[str, Any]
    place: str = "query"
    is_multiple: bool = False


UNLIMITED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Those who watch the server get an answer however busy its clients are."""
STRING = {"type": "string", "maxLength": 4096}
TEXT = {"type": "string", "minLength": 1, "maxLength": 500}
ID = {"type": "string", "format": "uuid"}
NAME = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
ID_OR_NAME = {**NAME, "description": "The id or the name."}
LIMIT = Parameter("limit", "How many items at most.", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50})
CURSOR = Parameter("cursor", "`next_cursor` of the page before.", STRING)
IF_MATCH = Parameter(
    "If-Match",
    "The version that was read (its ETag); another one in the store is a 412.",
    {"type": "string", "pattern": r'^(\*|"?[0-9]{1,18}"?)$'},
    place="header",
)
_OF_ARGUMENTS = {"version": IF_MATCH, "limit": LIMIT, "cursor": CURSOR}
"""What a route takes because its operation has the argument."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    name: str
    """The operation id of the document."""
    doc: str
    endpoint: Endpoint
    answers: Answers
    refuses: Sequence[int]
    parameters: Sequence[Parameter]
    body: Any
    is_body_optional: bool
    path_id: Mapping[str, Any]
    is_deprecated: bool = False

    @property
    def path_names(self) -> tuple[str, ...]:
        parts = self.path.split("/")
        return tuple(part[1:-1].partition(":")[0] for part in parts if part.startswith("{"))


class Routes:
    def __init__(self, tag: str, *, path_id: Mapping[str, Any] = ID) -> None:
        """`path_id` is the schema of `{id}` in their paths."""
        self.tag = tag
        self.routes: list[Route] = []
        self._path_id = path_id
        self._around: Around | None = None

    def add(
        self,
        method: str,
        path: str,
        *,
        answers: Answers,
        refuses: Sequence[int] = (),
        parameters: Sequence[Parameter] = (),
        body: Any = None,
        body_optional: bool = False,
        deprecated: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        """Declares a route; its function's name is the operation id and its docstring the documentation."""

        def declared(endpoint: Endpoint) -> Endpoint:
            route = Route(
                method, path, endpoint.__name__, endpoint.__doc__ or "", endpoint, answers, refuses, parameters, body,
                body_optional, self._path_id, deprecated,
            )  # fmt: skip
            self.routes.append(route)
            return endpoint

        return declared

    def operation(
        self,
        method: str,
        path: str,
        operation: Operation,
        *,
        answers: Answers,
        refuses: Sequence[int] = (),
        parameters: Sequence[Parameter] = (),
        body: Any = None,
        body_optional: bool = False,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        body_hook: BodyHook | None = None,
    ) -> None:
        """Declares a route that is an operation; `name` is the operation id where it differs from its name.

        An operation with a `version` or a page's `limit` and `cursor` takes them without a parameter named here.
        `renamed` maps fields of the body to arguments of other names; `body_hook` changes the body, or refuses it.
        """
        named, arguments = {parameter.name for parameter in parameters}, operation.parameters
        parameters = [
            *parameters,
            *(taken for name_, taken in _OF_ARGUMENTS.items() if name_ in arguments and taken.name not in named),
        ]
        endpoint = operation_endpoint(
            operation, method, path, answers, parameters, body, body_optional, renamed or {}, body_hook
        )
        route = Route(
            method, path, name or operation.__name__, operation.__doc__ or "", endpoint, answers, refuses, parameters,
            body, body_optional, self._path_id,
        )  # fmt: skip
        self.routes.append(route)

    def get(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("GET", path, **options)

    def post(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("POST", path, **options)

    def wrap(self, around: Around) -> None:
        """Puts something around all that these routes answer, refusals included."""
        self._around = around

    def served(self, context: ApiContext) -> list[tuple[Route, Serve]]:
        """Each route with the function that serves it."""
        pairs = []
        for route in self.routes:
            serve = _serving(route, context)
            if self._around is not None:
                serve = self._around(serve, route.path, context)
            pairs.append((route, serve))
        return pairs


class TaggedRoute(StarletteRoute):
    """A route of the router that knows the tag of its Routes."""

    tag: str = ""


def router_route(route: Route, serve: Serve, tag: str) -> TaggedRoute:
    """The route as the router takes it."""
    routed = TaggedRoute(route.path, serve, methods=[route.method], name=route.name)
    routed.tag = tag
    return routed


def _serving(route: Route, context: ApiContext) -> Serve:
    query_names = frozenset(parameter.name for parameter in route.parameters if parameter.place == "query")
    multiple = frozenset(parameter.name for parameter in route.parameters if parameter.is_multiple)
    endpoint = route.endpoint

    async def serve(request: Request) -> Response:
        try:
            return await endpoint(ApiRequest(request, context, query_names, multiple))
        except HoldbeatError as error:
            return refusal(error)

    if route.method != "GET" or route.path in UNLIMITED_PATHS:
        return serve
    is_search = not route.path_names

    async def serve_read(request: Request) -> Response:
        try:
            async with context.client_limits.read(request.scope[KEY_ID], is_search=is_search):
                return await serve(request)
        except HoldbeatError as error:
            return refusal(error)

    return serve_read
