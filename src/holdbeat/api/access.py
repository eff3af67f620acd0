"""Access middleware: the checks of every request before any route sees it, and the headers of every answer.

Guards SEC-02 and SEC-03 in one place, for routes, static files, streams and paths that do not exist alike:
the name of this server (421), a key (401), the page that a write comes from and the key's scope (403). A request that
is refused here is refused with the same words whatever its path, so nothing can be learned from the difference.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from holdbeat.api import legacy
from holdbeat.api.context import ApiContext
from holdbeat.api.problem import Misdirected, problem, refusal, wrong_method
from holdbeat.api.request import HEAD_ONLY, HEADERS, path_of
from holdbeat.api.routes import Serve
from holdbeat.api.sessions import Session, login_before
from holdbeat.api.stream_access import KEY_ID, SESSION
from holdbeat.domain.api_key import ApiKey, Scope
from holdbeat.domain.errors import (
    Forbidden,
    HoldbeatError,
    Malformed,
    StoreDown,
    StoreRefused,
    Unauthorized,
    Unavailable,
)
from holdbeat.settings import Settings
from holdbeat.store.access.exposed_servers import note_proxy

log = logging.getLogger("holdbeat.api")

OPEN_PATHS = frozenset({"/healthz", "/login", "/logout"})
WITHOUT_KEY = "a caller without a key"
"""The actor on record for requests to a server of this machine alone that has no keys."""
OPEN_PREFIX = "/static/"
"""What the login page is made of."""
ASKS_NOBODY = frozenset({"/healthz", "/logout"})
"""Paths that are the same for everyone: who asks is not looked up, so they answer without the store too (API-05)."""
PROXY_HEADERS = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
"""A request with one of these came through a proxy, so perhaps from another machine."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LINGER_BYTES = 32 * 1024 * 1024
"""How much of a refused body is taken and dropped, so that the client reads the answer before the line is cut."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_COMMON = [*SECURITY_HEADERS, (b"cache-control", b"no-store")]
_COMMON_NAMES = frozenset(name for name, _ in _COMMON)


class AnswerCutOffError(Exception):
    """Ends a connection whose answer cannot be finished."""


ServedPaths = Mapping[str, Mapping[str, Serve]]
"""For each path without parameters, what serves its methods."""


class AccessMiddleware:
    """Checks host, key and origin of each request, and passes the allowed ones on."""

    def __init__(self, app: ASGIApp, context: ApiContext, served_paths: ServedPaths) -> None:
        self._app = app
        self.context = context
        self._served_paths = served_paths
        self._hosts = HostList(context.settings)
        self._is_on_loopback = context.settings.is_on_loopback
        self._judges_proxies = context.settings.exposed == "auto"

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = _Answer(send, receive)
        if scope["method"] == "HEAD":
            # Answered like GET. The server below knows what was asked for, and sends the head alone.
            scope = {**scope, "method": "GET", HEAD_ONLY: True}
        if b"%2f" in scope.get("raw_path", b"").lower():
            scope = {**scope, "path": path_of(scope["raw_path"])}
        try:
            response = await self._refused(scope)
            if response is None:
                known = self._served_paths.get(scope["path"])
                if known is not None:
                    response = await self._serve_known_path(known, scope, receive, answer.send)
            if response is None:
                await self._app(scope, receive, answer.send)
            else:
                await response(scope, receive, answer.send)
        except Exception as error:
            await self._failed(error, scope, receive, answer)
        except asyncio.CancelledError:
            if answer.has_begun or not self.context.is_stopping:
                raise
            await self._failed(_not_answered(), scope, receive, answer)

    async def _serve_known_path(
        self, known: Mapping[str, Serve], scope: AsgiScope, receive: Receive, send: Send
    ) -> Response | None:
        """Serves a path without parameters, for which no router need search. That keeps words such as `batch` from
        being read as ids, too: with a method that is not theirs they are a 405."""
        serve = known.get(scope["method"])
        if serve is not None:
            return await serve(Request(scope, receive, send))
        path = scope["path"]
        if path.startswith("/api/"):
            return wrong_method(known)
        if path.startswith("/jobs/"):
            return legacy.deprecated(wrong_method(known), path, self.context)
        return None

    async def _refused(self, scope: AsgiScope) -> Response | None:
        """The answer to a request that must not come in; None if it may."""
        headers: dict[bytes, bytes] = {}
        hosts = 0
        for name, value in scope["headers"]:
            hosts += name == b"host"
            headers[name] = value
        scope[HEADERS] = headers
        try:
            host = headers.get(b"host", b"").decode("latin-1")
            if hosts != 1 or not self._hosts.knows(host, scope.get("server")):
                raise Misdirected(
                    "This server does not go by the name in the Host header. Use its address, or add the name to "
                    "allowed_hosts in its settings."
                )
            if b"content-length" in headers and b"transfer-encoding" in headers:
                raise Malformed(
                    "Content-Length and Transfer-Encoding contradict each other; send one of them.",
                    code="malformed_request",
                )
            is_write = scope["method"] not in SAFE_METHODS
            if is_write:
                _check_site(headers, host)
            is_proxied = self._judges_proxies and not PROXY_HEADERS.isdisjoint(headers)
            await self._admit(scope, headers, is_write, is_proxied)
            if is_proxied and not self.context.is_exposed and scope[KEY_ID] is not None:
                self.context.refuse_local()
                await self.context.store.write(note_proxy, self.context.supervisor.worker.id)
        except (Unavailable, StoreRefused) as error:
            # Who asks is not known yet, so the answer says nothing about the store: neither host nor file.
            log.warning("keys cannot be looked up: %s", error)
            return refusal(
                Unavailable("Keys cannot be looked up: the store does not answer. Try again.", code=error.code)
            )
        except HoldbeatError as error:
            if isinstance(error, Unauthorized) and self._leads_to_login(scope, headers):
                return RedirectResponse(login_before(_address(scope)), 303)
            return refusal(error)
        return None

    async def _admit(self, scope: AsgiScope, headers: dict[bytes, bytes], is_write: bool, is_proxied: bool) -> None:
        path = scope["path"]
        scope[KEY_ID] = scope[SESSION] = None
        if path in ASKS_NOBODY or path.startswith(OPEN_PREFIX):
            scope["holdbeat.scope"], scope["holdbeat.caller"] = Scope.READ, None
            return
        keys = self.context.keys
        if not keys.is_fresh:
            await keys.refresh()
        if self._is_on_loopback and not keys.any_exists:
            if is_proxied:
                raise Unauthorized(
                    "This request came through a proxy, and the server has no API key yet. Make one with `holdbeat "
                    "keys create`, or set exposed = false if the proxy serves this machine alone."
                )
            scope["holdbeat.scope"], scope["holdbeat.caller"] = Scope.ADMIN, WITHOUT_KEY
            return
        key, scope[SESSION] = await self._key(headers)
        if key is None:
            if path not in OPEN_PATHS:
                if b"authorization" in headers:
                    raise Unauthorized("This API key is not known here. `holdbeat keys create` makes one.")
                raise Unauthorized(
                    "This needs an API key: send it as `Authorization: Bearer <key>`. `holdbeat keys create` makes one."
                )
            scope["holdbeat.scope"], scope["holdbeat.caller"] = Scope.READ, None
            return
        scope[KEY_ID] = key.id
        if is_write and path not in OPEN_PATHS and not key.scope.covers(Scope.WRITE):
            raise Forbidden("This key may only read; a change needs one with the scope write.", code="needs_write")
        scope["holdbeat.scope"], scope["holdbeat.caller"] = key.scope, key.name

    async def _key(self, headers: dict[bytes, bytes]) -> tuple[ApiKey | None, Session | None]:
        """The key of a request, and the session that it came as."""
        authorization = headers.get(b"authorization")
        if authorization is not None:
            scheme, _, token = authorization.decode("latin-1").partition(" ")
            # A key in the header that is not known is refused, even beside a session that is.
            key = await self.context.keys.find(token.strip()) if scheme.lower() == "bearer" and token else None
            return key, None
        cookies = headers.get(b"cookie")
        session = await self.context.sessions.find(cookies.decode("latin-1")) if cookies is not None else None
        return None if session is None else session.key, session

    def _leads_to_login(self, scope: AsgiScope, headers: dict[bytes, bytes]) -> bool:
        return (
            self.context.has_dashboard
            and scope["method"] == "GET"
            and b"authorization" not in headers
            and b"text/html" in headers.get(b"accept", b"")
            and not scope["path"].startswith("/api/")
        )

    async def _failed(self, error: Exception, scope: AsgiScope, receive: Receive, answer: _Answer) -> None:
        """The end of a request that nobody foresaw: an id for the client, everything else for the log (I15)."""
        if isinstance(error, HoldbeatError):
            response = refusal(error)
        else:
            fault = secrets.token_hex(8)
            log.error("fault %s in %s %r", fault, scope["method"], scope["path"], exc_info=error)
            response = problem(
                500, "internal_error", f"Something went wrong in the server; its log says more under {fault}.", id=fault
            )
        if answer.has_begun:
            # Too late for a status: the line is cut, so that nobody takes half an answer for a whole one. The server
            # below logs what it gets; the fault itself is in our log, with secrets taken out.
            raise AnswerCutOffError from None
        await response(scope, receive, answer.send)


def _not_answered() -> StoreDown:
    return StoreDown(
        "This server ends, and the store has not answered this request. Whether it has stored something is not known: "
        "look before you try again, or use an idempotency key.",
        code="commit_unknown",
    )


class _Answer:
    """Adds what every answer carries, and lets a client finish sending what was refused unread."""

    __slots__ = ("_lingers", "_receive", "_send", "has_begun")

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send = send
        self._receive = receive
        self.has_begun = False
        self._lingers = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = list(message.get("headers", ()))
            names = {name for name, _ in headers}
            headers += (
                _COMMON if names.isdisjoint(_COMMON_NAMES) else [header for header in _COMMON if header[0] not in names]
            )
            if message["status"] == 413:
                self._lingers = True
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif self._lingers and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._drop_rest_of_request()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _drop_rest_of_request(self) -> None:
        received = 0
        while received < LINGER_BYTES:
            message = await self._receive()
            received += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body"):
                return


def _check_site(headers: dict[bytes, bytes], host: str) -> None:
    """Refuses a write that a page of another site makes a browser send (CSRF)."""
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in (b"same-origin", b"none"):
        raise _foreign()
    if origin is not None:
        try:
            parts = urlsplit(origin.decode("latin-1"))
            its_host = bare_host(parts.netloc), parts.port
        except ValueError:
            raise _foreign() from None
        defaults = {"http": 80, "https": 443}
        if parts.scheme not in defaults:
            raise _foreign()
        own_address = urlsplit(f"//{host}")
        own_port = own_address.port or defaults[parts.scheme]
        if (its_host[0], its_host[1] or defaults[parts.scheme]) != (bare_host(host), own_port):
            raise _foreign()


def _foreign() -> Forbidden:
    return Forbidden(
        "This change was asked for by a page of another site, and is refused. Use the API from its own pages, or from "
        "a program that is not a browser.",
        code="cross_site",
    )


def _address(scope: AsgiScope) -> str:
    """The path with its query, as the client sent it."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return (path + b"?" + query if query else path).decode("latin-1")


def bare_host(netloc: str) -> str:
    """The name in a Host header: without port, brackets and the root's dot, in small letters."""
    name = netloc.rpartition("@")[2].strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


class HostList:
    """The names by which this server may be called (DNS rebinding: SEC-03)."""

    def __init__(self, settings: Settings) -> None:
        self._names = frozenset(
            {"localhost", bare_host(settings.host), *(bare_host(name) for name in settings.allowed_hosts)}
        )
        self._remembered: dict[tuple[str, str], bool] = {}

    def knows(self, host: str, server: Iterable[object] | None) -> bool:
        """Whether a Host header names this server. An address is a name only if the request came in through it:
        no page can make a browser send another one's address."""
        address = str(next(iter(server))) if server else ""
        remembered = self._remembered.get((host, address))
        if remembered is None:
            remembered = self._judge(host, address)
            if len(self._remembered) < 1000:
                self._remembered[host, address] = remembered
        return remembered

    def _judge(self, host: str, address: str) -> bool:
        if not host or any(sign in host for sign in "/@\\ \t?#,%"):
            return False
        try:
            urlsplit(f"//{host}").port  # noqa: B018  (refuses what is no port)
        except ValueError:
            return False
        if host.startswith("[") and not re.fullmatch(r"\[[0-9a-fA-F:.]+\](:[0-9]*)?", host):
            return False
        name = bare_host(host)
        if name in self._names:
            return True
        try:
            literal = ipaddress.ip_address(name)
        except ValueError:
            return False
        return literal.is_loopback or name == address
