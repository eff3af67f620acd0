"""One request as a route sees it: its path, its query, its body, and who sends it.

Guards API-02 and SEC-06: a query parameter or a field that a route does not name is refused, a body is read no further
than its limit, and nothing reaches a store that one of the two stores could not keep.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from holdbeat.api.context import ApiContext
from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import Invalid, Malformed, Stale, TooLarge
from holdbeat.domain.ids import is_id
from holdbeat.domain.params import loads_strict
from holdbeat.domain.schema import near_matches
from holdbeat.domain.traceparent import valid_traceparent
from holdbeat.operations.checks import check_reference, checked_fields, id_of
from holdbeat.operations.operation import Operation, OperationContext
from holdbeat.store.reads.ids import Noun

MAX_BODY_BYTES = 1_048_576
MAX_QUERY_CHARS = 4096
HEAD_ONLY = "holdbeat.head_only"
"""Marks the scope of a HEAD request, which is otherwise served as a GET."""
HEADERS = "holdbeat.headers"
"""The headers in the scope of a request that was let in, by name; of one that was sent more than once the last."""
SLASH = "\x1f"
"""Stands in a path for a slash that was sent encoded, within a name; no name may contain a control character."""


def path_of(raw: bytes) -> str:
    """A path as it was sent, decoded part by part: `%2F` is a letter of a name, and no border between parts."""
    return "/".join(unquote(part.decode("latin-1")).replace("/", SLASH) for part in raw.split(b"/"))


class ApiRequest:
    """A request, with what its route allows it to carry."""

    __slots__ = ("_query", "context", "request")

    def __init__(
        self, request: Request, context: ApiContext, query_names: frozenset[str], multiple: frozenset[str]
    ) -> None:
        self.request = request
        self.context = context
        text = request.scope["query_string"]
        self._query: dict[str, list[str]] = _read_query(text, query_names, multiple) if text else {}

    # --- who asks -----------------------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """What the key of this request may do; everything on a server that is open."""
        scope: Scope = self.request.scope["holdbeat.scope"]
        return scope

    @property
    def caller(self) -> str | None:
        """The name of the key, for the record."""
        name: str | None = self.request.scope["holdbeat.caller"]
        return name

    @property
    def is_admin(self) -> bool:
        return self.scope.covers(Scope.ADMIN)

    @property
    def operation_context(self) -> OperationContext:
        context = self.context
        sent = self.request.scope[HEADERS].get(b"traceparent")
        trace = None if sent is None else valid_traceparent(sent.decode("latin-1"))
        policy = context.outbound.policy
        return OperationContext(
            self.caller,
            self.is_admin,
            context.outbound_policy,
            None if policy.loopback_server else policy,
            trace,
            context.kinds,
        )

    def run(self, operation: Operation, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Runs an operation for whoever sent this request."""
        return operation.run(self.context.store, self.operation_context, *args, **kwargs)

    @property
    def is_head_only(self) -> bool:
        """Whether nobody will read the body of the answer."""
        return HEAD_ONLY in self.request.scope

    # --- path ---------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """A part of the path as it was sent."""
        text: str = self.request.path_params[name].replace(SLASH, "/")
        return check_reference(text)

    async def id(self, noun: Noun) -> str:
        """The id in the path, or the one that begins or ends as the path says."""
        text: str = self.request.path_params["id"]
        return text if is_id(text) else await self.context.store.read_for_client(id_of, text, noun)

    # --- query --------------------------------------------------------------------------------------------

    def text(self, name: str) -> str | None:
        values = self._query.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> list[str]:
        return self._query.get(name, [])

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        """A filter by one word of a vocabulary."""
        text = self.text(name)
        words = list(choices)
        if text is not None and text not in words:
            raise Invalid(f"{name} must be one of {', '.join(words)}.", code="unknown_choice", field=name)
        return text

    def whole(self, name: str, default: int | None, low: int, high: int) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise Invalid(f"{name} must be a whole number from {low} to {high}.", code="out_of_range", field=name)
        return int(text)

    def flag(self, name: str) -> bool | None:
        text = self.text(name)
        if text is not None and text not in ("true", "false"):
            raise Invalid(f"{name} must be true or false.", code="invalid_flag", field=name)
        return None if text is None else text == "true"

    # --- headers ------------------------------------------------------------------------------------------

    def header(self, name: str) -> str | None:
        """A header as text that can be kept."""
        text = self.request.headers.get(name)
        if text is not None and not text.isprintable():
            raise Invalid(f"The header {name} contains control characters.", code="invalid_header", field=name)
        return text

    def expected_version(self) -> int | None:
        """The version of `If-Match`; None if there is none or it is `*`."""
        text = self.header("if-match")
        if text is None or text.strip() == "*":
            return None
        bare = text.strip().removeprefix("W/").strip('"')
        if not (bare.isascii() and bare.isdigit() and len(bare) < 19):
            raise Stale(
                f"If-Match is {text[:60]!r}, which is no version of this. Read it again and send the ETag that you got."
            )
        return int(bare)

    # --- body ---------------------------------------------------------------------------------------------

    async def object(self, *, may_be_empty: bool = False) -> dict[str, Any]:
        """The body, which must be an object; its fields are checked by whoever reads them."""
        raw = await read_body(self.request)
        if may_be_empty and not raw.strip():
            return {}
        value = loads_strict(raw)
        if not isinstance(value, dict):
            raise Invalid("The body must be a JSON object.", code="invalid_body")
        return value

    async def fields(
        self, allowed: Iterable[str], *, required: Iterable[str] = (), may_be_empty: bool = False
    ) -> dict[str, Any]:
        """The members of the body, which must be an object with these fields alone."""
        raw = await read_body(self.request)
        if may_be_empty and not raw.strip():
            return {}
        return checked_fields(loads_strict(raw), allowed, required=required)


def _read_query(raw: bytes, names: frozenset[str], multiple: frozenset[str]) -> dict[str, list[str]]:
    query: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise Invalid("The query cannot be read; encode its values as UTF-8 and percent signs.") from None
    for name, value in pairs:
        if name not in names:
            close = near_matches(name, names, limit=1)
            hint = f" Did you mean {close[0]}?" if close else f" Known are: {', '.join(sorted(names)) or 'none'}."
            raise Invalid(f"There is no parameter {name[:100]!r} here.{hint}", code="unknown_parameter", field=name)
        if "\x00" in value or len(value) > MAX_QUERY_CHARS:
            raise Invalid(f"{name} is too long or contains the character NUL.", code="invalid_text", field=name)
        if name in query and name not in multiple:
            raise Invalid(f"{name} is given twice; give it once.", code="duplicate_parameter", field=name)
        query.setdefault(name, []).append(value)
    return query


async def read_body(request: Request) -> bytes:
    """The whole body, or a refusal as soon as it is known to be too large."""
    length: bytes | None = request.scope[HEADERS].get(b"content-length")
    if length is not None and length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    # How long this may take is the server's to limit: it cuts the connection of a client that is too slow.
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise Malformed("The client went away before its request was complete.")
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body"):
            return part if not parts else b"".join([*parts, part])
        parts.append(part)


def _too_large() -> TooLarge:
    return TooLarge(
        f"The body is larger than {MAX_BODY_BYTES:,} bytes; store the data elsewhere and pass a reference to it.",
        code="body_too_large",
    )
