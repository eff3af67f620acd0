"""Gates: requests that are passed on to an upstream while a slot of a resource is held (GATE-01, GATE-02).

Guards CON-002 for programs that know nothing of Holdbeat: the upstream sees no more of their requests at once than the
resource has slots, together with all jobs on it. A slot is free when the last byte has gone, or the client has; not
before the connection to the upstream is closed. Host, key and origin of a request were checked by the access
middleware, as of every other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie

import httpcore2
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holdbeat.api.context import ApiContext
from holdbeat.api.problem import problem
from holdbeat.api.request import HEAD_ONLY
from holdbeat.api.request_body import StreamedBody
from holdbeat.api.sessions import COOKIE
from holdbeat.api.stream_access import KEY_ID, SESSION
from holdbeat.domain.api_key import Scope as KeyScope
from holdbeat.domain.errors import Forbidden, HoldbeatError, Unavailable
from holdbeat.domain.gate import Gate, end_to_end, rest_of_path, wants_websocket
from holdbeat.domain.reservation import ReservationOutcome, gate_type
from holdbeat.engine.direct_execution import HeldSlot, WaitedTooLong
from holdbeat.handlers.upstream import Upstream, UpstreamFailure

SANDBOX = (b"content-security-policy", b"default-src 'none'; sandbox; frame-ancestors 'none'")
"""What an upstream sends comes from this server's origin; it must not act there as the dashboard does."""
DROPPED_ANSWERS = frozenset(
    {b"content-security-policy", b"x-content-type-options", b"referrer-policy", b"date", b"server"}
)
LONGEST_RETRY_S = 30


class UpstreamAway(HoldbeatError):
    """The upstream of a gate cannot be reached, or does not answer (HTTP 502)."""

    default_code = "upstream_away"


class UpstreamSilent(HoldbeatError):
    """The upstream of a gate took a request and sent nothing (HTTP 504)."""

    default_code = "upstream_silent"


class GateProxy:
    """Serves the paths of one gate."""

    def __init__(self, gate: Gate, context: ApiContext) -> None:
        self.gate = gate
        self._context = context
        self._upstream = Upstream(gate.upstream, gate.timeout_s, gate.settle_s)

    def serves(self, path: str) -> bool:
        return path == self.gate.path or path.startswith(self.gate.path + "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._serve(scope, receive, send)
        if response is not None:
            await response(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Passes a request on, or says why not. None if an answer has been sent."""
        rest = rest_of_path(self.gate, scope.get("raw_path") or scope["path"].encode())
        if rest is None:
            return problem(400, "bad_path", "A path through a gate must not contain the parts `.` and `..`.")
        if wants_websocket(scope["headers"]):
            sentence = "A gate passes no WebSocket on; use the upstream's requests over HTTP, which may stream."
            return problem(501, "no_websocket", sentence)
        body = StreamedBody(receive, int(self.gate.max_body_mb * 1_000_000))
        reading = asyncio.ensure_future(body.read())
        work = asyncio.ensure_future(self._pass_on(scope, rest, body, send))
        disconnected = asyncio.ensure_future(body.gone.wait())
        try:
            await asyncio.wait({work, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                return None
            return await work
        finally:
            for task in (work, disconnected, reading):
                task.cancel()
            await asyncio.gather(work, disconnected, reading, return_exceptions=True)

    async def _pass_on(self, scope: Scope, rest: tuple[bytes, str], body: StreamedBody, send: Send) -> Response | None:
        has_body = await body.begun()
        method = "HEAD" if HEAD_ONLY in scope else scope["method"]
        query: bytes = scope.get("query_string", b"")
        target = rest[0] + (b"?" + query if query else b"")
        exchange = Exchange(self._upstream, method, target, self._headers(scope, has_body), body, has_body)
        clock = self._context.store.clock
        asked_at = clock.monotonic()
        recorder = self._context.supervisor.recorder
        if self.gate.is_free(rest[1]):
            await exchange.relay(send)
            recorder.gate_passed(self.gate.path, "free", 0.0, clock.monotonic() - asked_at)
            return None
        if not scope["holdbeat.scope"].covers(KeyScope.WRITE):
            raise Forbidden(
                "This key may only read; what takes a slot needs one with the scope write.", code="needs_write"
            )
        outcome, granted_at = "refused", None
        try:
            async with self._context.supervisor.direct.hold(
                self.gate.resource,
                gate_type(self.gate.path),
                wait_s=self.gate.wait_s,
                title=_line(f"{method} {rest[1]}", 120),
                client=_client(scope),
            ) as slot:
                granted_at = clock.monotonic()
                try:
                    await self._relay_in_slot(exchange, slot, send)
                finally:
                    outcome = slot.outcome.lower()
        except WaitedTooLong:
            retry_s = max(1, min(LONGEST_RETRY_S, round(self.gate.wait_s)))
            return problem(
                503,
                "gate_busy",
                f"No slot of {self.gate.resource} became free within {self.gate.wait_s:g} s. Try again later.",
                headers={"Retry-After": str(retry_s)},
            )
        except (UpstreamAway, UpstreamSilent) as error:
            if exchange.has_begun:
                raise
            return problem(502 if isinstance(error, UpstreamAway) else 504, error.code, error.detail)
        finally:
            ended_at = clock.monotonic()
            begun_at = ended_at if granted_at is None else granted_at
            recorder.gate_passed(self.gate.path, outcome, begun_at - asked_at, ended_at - begun_at)
        return None

    async def _relay_in_slot(self, exchange: Exchange, slot: HeldSlot, send: Send) -> None:
        """Passes the request on; cut off when the client has gone or the slot must be given back.

        Ends only after the connection to the upstream is closed, however often this task is cancelled meanwhile.
        """
        relaying = asyncio.ensure_future(exchange.relay(send))
        loop = asyncio.get_running_loop()

        def cut() -> None:
            if not relaying.cancelling():  # a second cancellation would end the wait for the upstream
                relaying.cancel()

        def cut_from_thread() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(cut)

        unsubscribe = slot.stop.subscribe(cut_from_thread)
        interruption: asyncio.CancelledError | None = None
        while not relaying.done():
            try:
                await asyncio.wait({relaying})
            except asyncio.CancelledError as cancelled:
                interruption = cancelled
                cut()
        unsubscribe()
        error = None if relaying.cancelled() else relaying.exception()
        if interruption is not None:
            raise interruption
        if relaying.cancelled():
            reason = str(slot.stop.reason)
            slot.end(ReservationOutcome.CANCELLED, f"it was ended: {reason}", reason)
            raise Unavailable(f"This request was ended while it had its slot: {reason}.", code=reason)
        if error is not None:
            slot.end(ReservationOutcome.FAILED, str(error), "upstream")
            raise error
        if relaying.result() >= 500:
            slot.end(ReservationOutcome.FAILED, f"the upstream answered {relaying.result()}", "upstream")

    def _headers(self, scope: Scope, has_body: bool) -> list[tuple[bytes, bytes]]:
        """The headers for the upstream: all except those of this connection and our own secrets."""
        dropped = {b"host", b"expect", b"cookie"}
        if scope[KEY_ID] is not None and scope[SESSION] is None:
            dropped.add(b"authorization")  # it is a key of this server
        headers = [(b"host", self._upstream.host), *end_to_end(scope["headers"], dropped)]
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        if cookie_parts := [part for value in cookies for part in value.split(b";") if not _is_ours(part)]:
            headers.append((b"cookie", b";".join(cookie_parts).strip()))
        names = {name.lower() for name, _ in headers}
        if has_body and b"content-length" not in names:
            headers.append((b"transfer-encoding", b"chunked"))
        return [*headers, (b"connection", b"close")]


class Exchange:
    """One request to the upstream and its answer."""

    def __init__(
        self,
        upstream: Upstream,
        method: str,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: StreamedBody,
        has_body: bool,
    ) -> None:
        self._upstream = upstream
        self._method, self._target, self._headers = method, target, headers
        self._body, self._has_body = body, has_body
        self.has_begun = False
        """Whether the client has got the head of an answer."""

    async def relay(self, send: Send) -> int:
        """Sends the answer on, chunk by chunk as it comes. Returns its status."""
        content = self._body.chunks() if self._has_body else None
        try:
            async with self._upstream.request(self._method, self._target, self._headers, content) as response:
                self.has_begun = True
                await send(_head(response))
                async with contextlib.aclosing(response.aiter_stream()) as chunks:
                    async for chunk in chunks:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._body.is_answered = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return response.status
        except UpstreamFailure as failure:
            kind = UpstreamSilent if failure.is_late else UpstreamAway
            raise kind(f"The upstream of this gate failed: {failure.reason}.") from failure


def _head(response: httpcore2.Response) -> Message:
    headers = [
        (name.lower(), value)
        for name, value in end_to_end(response.headers, DROPPED_ANSWERS)
        if not name.lower().startswith(b"access-control-") and not (name.lower() == b"set-cookie" and _is_ours(value))
    ]
    return {"type": "http.response.start", "status": response.status, "headers": [*headers, SANDBOX]}


def _is_ours(cookie: bytes) -> bool:
    """Whether a cookie is the dashboard's session; one that cannot be read is not passed on either."""
    try:
        return COOKIE in SimpleCookie(cookie.decode("latin-1"))
    except CookieError:
        return True


def _client(scope: Scope) -> str:
    """The sender of a request: the name of the key or the address, and the program."""
    address = (scope.get("client") or ("unknown",))[0]
    client = address if scope[KEY_ID] is None else scope["holdbeat.caller"]
    agents = [value.decode("latin-1") for name, value in scope["headers"] if name == b"user-agent"]
    program = agents[0].split()[0] if agents and agents[0].split() else ""
    return _line(f"{client} {program}".strip(), 120)


def _line(text: str, longest: int) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:longest]


def gate_proxies(context: ApiContext) -> list[GateProxy]:
    """The gates of a server, those with the longest paths first."""
    gates = sorted(context.settings.declared_gates, key=lambda gate: -len(gate.path))
    return [GateProxy(gate, context) for gate in gates]
