"""The OpenAPI document: made from the routes and from the schemas that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import Any

from holdbeat import __version__
from holdbeat.api.json_schema import Components, field_names
from holdbeat.api.problem import JSON, PROBLEM
from holdbeat.api.routes import IF_MATCH, UNLIMITED_PATHS, Parameter, Route, Routes
from holdbeat.schemas.base import Problem

DESCRIPTION = (
    "A job scheduler that never lets go of a job. Times are UTC instants with milliseconds, durations are seconds, "
    "lists are pages of items with a next_cursor, refusals are application/problem+json."
)
REFUSALS: dict[int, str] = {
    400: "The body is not JSON.",
    401: "No key, or one that is not known.",
    403: "The key may not do this, or the request came from another site.",
    404: "There is no such thing.",
    405: "Another method is needed here.",
    409: "Its state forbids the request.",
    412: "Another version was edited in the meantime.",
    413: "The body is too large.",
    421: "This server is not the host that the request names.",
    422: "The request is understood, but something in it is not acceptable.",
    429: "This key asks for too much at the same time. Wait, then try again.",
    500: "A fault of the server; the answer has the id of its log entry.",
    502: "The handler failed.",
    503: "Not now: shutting down, no worker, or the store is busy. Try again.",
    504: "No slot became free in time.",
}
_ALWAYS = (401, 403, 405, 421, 422, 500, 503)
_WITH_BODY = (400, 413)
_ANSWERED = {
    200: "Success.",
    201: "Stored.",
    202: "Accepted.",
    204: "Success; there is no body.",
    303: "Success; continue at Location.",
}
_OF_LEGACY = ("Deprecation", "Sunset", "Link")
_OF_REFUSAL = {401: ("WWW-Authenticate",), 405: ("Allow",), 429: ("Retry-After",), 503: ("Retry-After",)}
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


def openapi_document(mounted: Iterable[Routes]) -> dict[str, Any]:
    components = Components()
    paths: dict[str, dict[str, Any]] = {}
    for routes in mounted:
        for route in routes.routes:
            path = route.path.replace(":path}", "}")
            paths.setdefault(path, {})[route.method.lower()] = _operation(route, routes.tag, components)
    schemas = dict(sorted(components.schemas.items()))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdbeat", "description": DESCRIPTION, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
    }


def _operation(route: Route, tag: str, components: Components) -> dict[str, Any]:
    doc = cleandoc(route.doc or route.name)
    documented: dict[str, Any] = {
        "tags": [tag],
        "summary": doc.partition("\n")[0].rstrip("."),
        "description": doc,
        "operationId": route.name,
    }
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": dict(route.path_id if name == "id" else {"type": "string"}),
        }
        for name in route.path_names
    ] + [_parameter(parameter) for parameter in route.parameters]
    if parameters:
        documented["parameters"] = parameters
    if route.body is not None:
        documented["requestBody"] = {
            "required": not route.is_body_optional,
            "content": {JSON: {"schema": components.reference(route.body)}},
        }
    documented["responses"] = _responses(route, components)
    if route.is_deprecated:
        documented["deprecated"] = True
    return documented


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = dict(parameter.schema)
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": False,
        "description": parameter.description,
        "schema": {"type": "array", "items": schema} if parameter.is_multiple else schema,
    }


def _responses(route: Route, components: Components) -> dict[str, dict[str, Any]]:
    responses: dict[str, dict[str, Any]] = {}
    for status, answered in sorted(route.answers.items()):
        response: dict[str, Any] = {"description": _ANSWERED.get(status, "Success.")}
        for content in _contents(answered):
            is_other = isinstance(content, str)
            schema = {"type": "string"} if is_other else components.of(content)
            response.setdefault("content", {})[content if is_other else JSON] = {"schema": schema}
        responses[str(status)] = response | _with_headers(_headers_of_answer(route, status, answered))
    refused = {*_ALWAYS, *route.refuses} | (set(_WITH_BODY) if route.body is not None else set())
    if route.method == "GET" and route.path not in UNLIMITED_PATHS:
        refused.add(429)
    if "id" in route.path_names:
        refused.add(404)
    if IF_MATCH in route.parameters:
        refused.add(412)
    for status in sorted(refused - set(route.answers)):
        responses[str(status)] = {
            "description": REFUSALS[status],
            "content": {PROBLEM: {"schema": components.reference(Problem)}},
            **_with_headers(_headers_of_refusal(route, status)),
        }
    return responses


def _contents(answered: Any) -> Sequence[Any]:
    if answered is None:
        return ()
    return answered if isinstance(answered, tuple) else (answered,)


def _headers_of_answer(route: Route, status: int, answered: Any) -> dict[str, dict[str, Any]]:
    """What is edited under a version tells it, and what is created tells its place."""
    fields = {name for schema in _contents(answered) if not isinstance(schema, str) for name in field_names(schema)}
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
