"""Serves a route that is an operation: its arguments from path, query, headers and body, its answer with a status.

The path's `{id}` is the first argument, a `{name}` after it the second. Query parameters and the fields of a body are
arguments of the same name; an operation with an argument `request`, `changes` or `timetable` takes the body whole, and
checks it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from holdbeat.api.json_schema import field_names, schema_name
from holdbeat.api.problem import JsonAnswer, encode_in_turns
from holdbeat.operations.operation import Operation, Written

if TYPE_CHECKING:
    from holdbeat.api.request import ApiRequest
    from holdbeat.api.routes import Parameter

BodyHook = Callable[["ApiRequest", dict[str, Any]], dict[str, Any]]
_WHOLE_BODY = ("request", "changes", "timetable")
_JOBS = frozenset({"Job", "TriggeredJob"})


def operation_endpoint(
    operation: Operation,
    method: str,
    path: str,
    answers: Mapping[int, Any],
    parameters: Sequence[Parameter],
    body: Any,
    is_body_optional: bool,
    renamed: Mapping[str, str],
    body_hook: BodyHook | None,
) -> Callable[[ApiRequest], Awaitable[Response]]:
    """The function that serves such a route."""
    in_path = [name for name in ("id", "name") if f"{{{name}}}" in path]
    query = [parameter for parameter in parameters if parameter.place == "query"]
    has_version = any(parameter.name == "If-Match" for parameter in parameters)
    takes_whole_body = not operation.parameters.keys().isdisjoint(_WHOLE_BODY)
    allowed = frozenset() if body is None else field_names(body)
    required = () if body is None else tuple(body.__required_keys__)
    respond = _responding(path, answers)

    async def endpoint(request: ApiRequest) -> Response:
        args: list[Any] = [request.path(name) for name in in_path]
        kwargs = _query_arguments(request, query)
        if has_version:
            kwargs["version"] = request.expected_version()
        if takes_whole_body:
            body_object = await request.object()
            args.append(body_object if body_hook is None else body_hook(request, body_object))
        elif method != "GET" and (body is not None or method == "POST"):
            fields = await request.fields(allowed, required=required, may_be_empty=body is None or is_body_optional)
            if body_hook is not None:
                fields = body_hook(request, fields)
            kwargs |= {renamed.get(name, name): value for name, value in fields.items()}
        return await respond(await request.run(operation, *args, **kwargs))

    return endpoint


def _query_arguments(request: ApiRequest, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The query parameters that were sent, and those that have a default."""
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        name, schema = parameter.name, parameter.schema
        value: Any
        if parameter.is_multiple:
            value = request.texts(name) or None
        elif schema.get("type") == "integer":
            value = request.whole(name, schema.get("default"), schema["minimum"], schema["maximum"])
        elif schema.get("type") == "boolean":
            value = request.flag(name)
        else:
            value = request.text(name)
        if value is not None:
            arguments[name] = value
    return arguments


def _responding(path: str, answers: Mapping[int, Any]) -> Callable[[Any], Awaitable[Response]]:
    """Makes the response: what is edited under a version tells it, and what is created tells its place."""
    schema = answers[min(answers)]
    if schema is None:
        status = min(answers)

        async def respond_without_body(result: None) -> Response:
            return Response(status_code=status)

        return respond_without_body
    fields = field_names(schema)
    is_versioned = "version" in fields
    is_located = 201 in answers and "id" in fields
    base = "/api/jobs" if schema_name(schema) in _JOBS else path
    first, last = min(answers), max(answers)

    async def respond(result: dict[str, Any] | Written) -> Response:
        if isinstance(result, Written):
            headers = {"Location": f"{base}/{result.id}"} if is_located else {}
            return JsonAnswer(result.text.encode("utf-8", "replace"), last if result.is_new else first, headers)
        headers = {}
        if is_versioned:
            headers["ETag"] = f'"{result["version"]}"'
        if is_located:
            headers["Location"] = f"{base}/{result['id']}"
        return JsonAnswer(await encode_in_turns(result), last, headers)

    return respond
