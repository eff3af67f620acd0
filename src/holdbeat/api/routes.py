"""Routes with everything said about them in one place: what they take, what they answer, what they refuse.

Guards API-01: a route cannot exist without its documented refusals, and the query parameters that are documented are
the very ones that are accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from holdbeat.api.context import ApiContext
from holdbeat.api.problem import JSON, PROBLEM, refusal
from holdbeat.api.request import ApiRequest
from holdbeat.domain.errors import HoldbeatError

Endpoint = Callable[[ApiRequest], Awaitable[Response]]
Serve = Callable[[Request], Coroutine[Any, Any, Response]]
Around = Callable[[Serve, str, ApiContext], Serve]
Content = type[BaseModel] | str
Answers = Mapping[int, Content | Sequence[Content] | None]
"""For each status: a model, a content type of something that is not JSON, several of these, or None for no body."""

REFUSALS: dict[int, str] = {
    400: "The body is not JSON.",
    401: "No key, or one that is not known.",
    403: "The key may not do this, or the request came from another site.",
    404: "There is no such thing.",
    409: "Its state forbids the request.",
    412: "Another version was edited in the meantime.",
    413: "The body is too large.",
    421: "This server is not the host that the request names.",
    422: "The request is understood, but something in it is not acceptable.",
    500: "A fault of the server; the answer has the id of its log entry.",
    502: "The handler failed.",
    503: "Not now: shutting down, no worker, or the store is busy. Try again.",
    504: "No slot became free in time.",
}
_ALWAYS = (401, 403, 405, 421, 422, 500, 503)
_WITH_BODY = (400, 413)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header, as it is documented and accepted."""

    name: str
    description: str
    schema: Mapping[str, Any]
    place: str = "query"
    is_multiple: bool = False

    def documented(self) -> dict[str, Any]:
        schema = {"type": "array", "items": dict(self.schema)} if self.is_multiple else dict(self.schema)
        return {
            "name": self.name,
            "in": self.place,
            "required": False,
            "description": self.description,
            "schema": schema,
        }


STRING = {"type": "string", "maxLength": 4096}
ID = {"type": "string", "format": "uuid"}
_PATH_PART = {"type": "string"}
ID_OR_NAME = {"type": "string", "minLength": 1, "maxLength": 200, "description": "The id or the name."}
LIMIT = Parameter("limit", "How many items at most.", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50})
CURSOR = Parameter("cursor", "`next_cursor` of the page before.", STRING)
IF_MATCH = Parameter(
    "If-Match",
    "The version that was read (its ETag); another one in the store is a 412.",
    {"type": "string", "pattern": r'^(\*|"?[0-9]{1,18}"?)$'},
    place="header",
)


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    endpoint: Endpoint
    answers: Answers
    refuses: Sequence[int]
    parameters: Sequence[Parameter]
    body: type[BaseModel] | None
    is_body_optional: bool
    path_names: tuple[str, ...]
    path_id: Mapping[str, Any]
    is_deprecated: bool


class PlainRoute(APIRoute):
    """A route whose endpoint takes the request as it is and answers for itself: nothing is left to resolve, and a
    third of the time that a small request takes is saved."""

    def get_route_handler(self) -> Serve:
        handler: Serve = self.endpoint
        return handler


class Routes:
    """The routes of one resource."""

    def __init__(self, tag: str, *, path_id: Mapping[str, Any] = ID) -> None:
        """`path_id` is the schema of `{id}` in their paths."""
        self.tag = tag
        self._path_id = path_id
        self._routes: list[Route] = []
        self._around: Around | None = None

    def add(
        self,
        method: str,
        path: str,
        *,
        answers: Answers,
        refuses: Sequence[int] = (),
        parameters: Sequence[Parameter] = (),
        body: type[BaseModel] | None = None,
        body_optional: bool = False,
        deprecated: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        """Declares a route; its function's name is the operation id and its docstring the documentation."""

        def declared(endpoint: Endpoint) -> Endpoint:
            self._routes.append(
                Route(
                    method,
                    path,
                    endpoint,
                    answers,
                    refuses,
                    parameters,
                    body,
                    body_optional,
                    _names_in(path),
                    self._path_id,
                    deprecated,
                )
            )
            return endpoint

        return declared

    def get(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("GET", path, **options)

    def post(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("POST", path, **options)

    def patch(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.add("DELETE", path, **options)

    def wrap(self, around: Around) -> None:
        """Puts something around all that these routes answer, refusals included."""
        self._around = around

    def models(self) -> set[type[BaseModel]]:
        """Every model that the documentation of these routes refers to."""
        found = {route.body for route in self._routes if route.body is not None}
        for route in self._routes:
            for answered in route.answers.values():
                found |= {content for content in _contents(answered) if isinstance(content, type)}
        return found

    def mount(self, app: FastAPI, service: ApiContext) -> dict[str, dict[str, Serve]]:
        """Adds the routes to the application; answers how to serve those whose paths have no parameters."""
        straight: dict[str, dict[str, Serve]] = {}
        for route in self._routes:
            serve = _serving(route, service)
            if self._around is not None:
                serve = self._around(serve, route.path, service)
            if not route.path_names:
                straight.setdefault(route.path, {})[route.method] = serve
            app.router.add_api_route(
                route.path,
                serve,
                methods=[route.method],
                operation_id=route.endpoint.__name__,
                name=route.endpoint.__name__,
                tags=[self.tag],
                summary=_summary(route.endpoint),
                description=(route.endpoint.__doc__ or "").strip(),
                status_code=min(route.answers),
                response_model=None,
                response_class=Response,
                responses=_documented_answers(route),
                deprecated=route.is_deprecated or None,
                openapi_extra=_documented_request(route),
                route_class_override=PlainRoute,
            )
        return straight


def _serving(route: Route, service: ApiContext) -> Serve:
    query_names = frozenset(each.name for each in route.parameters if each.place == "query")
    multiple = frozenset(each.name for each in route.parameters if each.is_multiple)
    endpoint = route.endpoint

    async def serve(request: Request) -> Response:
        try:
            return await endpoint(ApiRequest(request, service, query_names, multiple))
        except HoldbeatError as error:
            return refusal(error)

    return serve


def _names_in(path: str) -> tuple[str, ...]:
    return tuple(part[1:-1].partition(":")[0] for part in path.split("/") if part.startswith("{"))


def _summary(endpoint: Endpoint) -> str:
    return (endpoint.__doc__ or endpoint.__name__).strip().partition("\n")[0].rstrip(".")


def _contents(answered: Content | Sequence[Content] | None) -> Sequence[Content]:
    if answered is None:
        return ()
    return (answered,) if isinstance(answered, str | type) else answered


def _documented_request(route: Route) -> dict[str, Any]:
    said: dict[str, Any] = {}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": dict(route.path_id if name == "id" else _PATH_PART)}
        for name in route.path_names
    ] + [parameter.documented() for parameter in route.parameters]
    if parameters:
        said["parameters"] = parameters
    if route.body is not None:
        said["requestBody"] = {
            "required": not route.is_body_optional,
            "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{route.body.__name__}"}}},
        }
    return said


def _documented_answers(route: Route) -> dict[int | str, dict[str, Any]]:
    answers: dict[int | str, dict[str, Any]] = {}
    for status, answered in sorted(route.answers.items()):
        said: dict[str, Any] = {"description": _ANSWERED.get(status, "Done.")}
        for content in _contents(answered):
            media_type, schema = (
                (content, {"type": "string"})
                if isinstance(content, str)
                else (JSON, {"$ref": f"#/components/schemas/{content.__name__}"})
            )
            said.setdefault("content", {})[media_type] = {"schema": schema}
        answers[status] = said | _with_headers(_headers_of_answer(route, status, answered))
    refused = {*_ALWAYS, *route.refuses} | (set(_WITH_BODY) if route.body is not None else set())
    if "id" in route.path_names:
        refused.add(404)
    for status in sorted(refused - set(answers)):
        answers[status] = {
            "description": REFUSALS.get(status, "Another method is needed here."),
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            **_with_headers(_headers_of_refusal(route, status)),
        }
    return answers


def _headers_of_answer(
    route: Route, status: int, answered: Content | Sequence[Content] | None
) -> dict[str, dict[str, Any]]:
    """What is edited under a version tells it, and what is made tells its place."""
    fields = {name for model in _contents(answered) if isinstance(model, type) for name in model.model_fields}
    names = list(_OF_LEGACY) if route.is_deprecated else []
    if "version" in fields:
        names.append("ETag")
    if status == 303 or (201 in route.answers and "id" in fields):
        names.append("Location")
    return {name: {**HEADERS[name], "required": True} for name in names}


def _headers_of_refusal(route: Route, status: int) -> dict[str, dict[str, Any]]:
    names = [*(_OF_LEGACY if route.is_deprecated else ()), *_OF_REFUSAL.get(status, ())]
    return {name: HEADERS[name] for name in names}


def _with_headers(headers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"headers": headers} if headers else {}


_ANSWERED = {
    200: "As asked.",
    201: "Stored.",
    202: "Accepted.",
    204: "Done; there is nothing to say.",
    303: "Done; go on over there.",
}
_OF_LEGACY = ("Deprecation", "Sunset", "Link")
_OF_REFUSAL = {401: ("WWW-Authenticate",), 405: ("Allow",), 503: ("Retry-After",)}
HEADERS: dict[str, dict[str, Any]] = {
    "ETag": {"description": "Its version, for `If-Match`.", "schema": {"type": "string", "examples": ['"3"']}},
    "Location": {"description": "Where it is found.", "schema": {"type": "string", "format": "uri-reference"}},
    "Retry-After": {
        "description": "Seconds after which to try again; it is missing where a repetition could do harm.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "WWW-Authenticate": {"description": "How to send a key.", "schema": {"type": "string"}},
    "Allow": {"description": "The methods that this path takes.", "schema": {"type": "string"}},
    "Deprecation": {"description": "Since when it is out of date.", "schema": {"type": "string"}},
    "Sunset": {"description": "When it will be gone.", "schema": {"type": "string"}},
    "Link": {"description": "What takes its place.", "schema": {"type": "string"}},
}
"""Headers that tell a client something, as they are documented wherever they are sent."""
