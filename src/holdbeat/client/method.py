"""How a method of the client is written once for both clients: `_call` of the one is awaited, that of the other blocks.

Most are only declared: `@calls("GET", "/api/jobs/{job_id}")` over a signature and a docstring. The request is made of
the arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

P = ParamSpec("P")
T = TypeVar("T", covariant=True)

VERSION = "version"
"""The argument that is sent as the header If-Match."""


class AsyncCaller:
    """Sends requests in an event loop."""


class Caller:
    """Sends requests and waits for their answers."""


class Method(Generic[P, T]):
    """A declared method: a coroutine function of the one client, a plain function of the other."""

    def __init__(self, plain: Callable[..., Any], awaited: Callable[..., Any]) -> None:
        self._plain = plain
        self._awaited = awaited

    @overload
    def __get__(self, client: AsyncCaller, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: Caller, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        function = self._awaited if issubclass(owner, AsyncCaller) else self._plain
        return function.__get__(client, owner)


def segment(text: str) -> str:
    """A name or id as one part of a path, whatever is in it."""
    quoted = quote(text, safe="")
    return {".": "%2E", "..": "%2E%2E"}.get(quoted, quoted)


def sent(**fields: Any) -> dict[str, Any]:
    """The named arguments that are not None. A caller who passes a whole request may send null: it can mean something,
    as in `cancel_grace_s`."""
    return {name: value for name, value in fields.items() if value is not None}


def written_once(function: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
    """Declares a method that returns what `_call` of its client returns."""

    @functools.wraps(function)
    async def awaited(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await function(self, *args, **kwargs)  # type: ignore[misc]

    return Method(function, awaited)


def calls(
    verb: str, path: str, *, body: str | None = None, is_repeatable: bool | str | None = None, **options: Any
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:
    """Declares a method that sends one request.

    Arguments that the path names are in the path. All others are in the query of a GET and are fields of the body of
    anything else, where an optional one that is None is left out; or the one that `body` names is the body.
    `is_repeatable` says whether the request may be sent again when its answer was lost, or names the flag that says so.
    Other options are those of `AsyncTransport.call`.
    """

    def declared(function: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        signature = inspect.signature(function)
        required = {name for name, parameter in signature.parameters.items() if parameter.default is parameter.empty}
        in_path = re.findall(r"{(\w+)}", path)

        @functools.wraps(function)
        def plain(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            arguments = _arguments(signature, function, self, args, kwargs)
            parts = {name: segment(arguments.pop(name)) for name in in_path}
            request: dict[str, Any] = dict(options)
            if (version := arguments.pop(VERSION, None)) is not None:
                request["headers"] = {"If-Match": f'"{version}"'}
            request["is_repeatable"] = arguments[is_repeatable] if isinstance(is_repeatable, str) else is_repeatable
            if verb == "GET":
                request["query"] = arguments
            elif body is not None:
                request["body"] = arguments[body]
            elif arguments:
                request["body"] = {
                    name: _plain(value) for name, value in arguments.items() if value is not None or name in required
                }
            return self._call(verb, path.format(**parts), **request)

        return written_once(plain)

    return declared


def _arguments(
    signature: inspect.Signature, function: Any, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    try:
        bound = signature.bind(client, *args, **kwargs)
    except TypeError:
        function(client, *args, **kwargs)  # raises the same with the name of the method
        raise
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    del arguments["self"]
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments = {**arguments.pop(name), **arguments}
    return arguments


def _plain(value: Any) -> Any:
    """What JSON can carry of a sequence of any kind."""
    return [*value] if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else value
