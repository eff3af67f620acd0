"""The HTTP server inside our own event loop.

Guards SEC-01 before a socket is bound, and the process against clients that hold a connection and send nothing. The
signals belong to whoever runs the process: this server stops when it is told to.

It runs in the event loop of a thread of its own: an async handler that blocks its loop must not block `/healthz`, the
queue or the cancel.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdbeat.api.access import SECURITY_HEADERS
from holdbeat.api.app import Api
from holdbeat.api.context import ApiContext
from holdbeat.api.event_feed import EventFeed
from holdbeat.api.key_ring import KeyRing
from holdbeat.api.problem import problem
from holdbeat.api.sessions import Sessions
from holdbeat.domain.errors import SettingsError
from holdbeat.engine.supervisor import Supervisor
from holdbeat.engine.watched_outbound import WatchedOutbound
from holdbeat.store.access.exposed_servers import forget_proxy, is_behind_proxy, note_server

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and returns its result here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, action: Callable[[], None]) -> None:
        """Calls a function in that loop soon."""
        self._loop.call_soon_threadsafe(action)

    def close(self) -> None:
        """Ends the loop after what it is doing now."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()


BACKLOG = 2048
KEEP_ALIVE_S = 75
REQUEST_TIMEOUT_S = 20.0
"""How long a client may take to send a request, once it has begun to or has just connected."""
READ_TIMEOUT_S = 20.0
"""How long a client may take nothing of an answer that waits for it."""
GRACEFUL_S = 10
MAX_HEAD_BYTES = 65_536


class OneWrite:
    """A transport that sends an answer's head together with its body.

    Each send lets another thread take the interpreter, and while the store works it does: one send less for each
    answer is worth a tenth of the requests per second. What is held goes out in the same iteration of the loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif len(data) < MAX_HEAD_BYTES and data.startswith(b"HTTP/1.1 "):
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose request does not arrive in time: a client sends nothing, or too slowly (I13)."""

    _alarm: asyncio.TimerHandle | None = None
    _write_alarm: asyncio.TimerHandle | None = None
    _unsent: int = 0
    _is_in_head: bool = False
    _unparsed: int = 0
    """How much has come since the last whole head or part of a body: of a head, of trailers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self._arm()

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > MAX_HEAD_BYTES:
            self.send_400_response("too large")
        if self._is_waiting:
            self._arm()
        elif self._alarm is not None:
            self._disarm()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are dropped: they must not come to headers that were checked.
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._unparsed = 0
        if self.parser.get_http_version() == "1.1" and sum(name == b"host" for name, _ in self.headers) != 1:
            raise ValueError("a request needs one Host header")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP. The access middleware never sees it, but the answer has the same form (API-01)."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # A whole request came before it, and is answered.
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            if cycle.response_started:
                self.transport.close()
                return
        refused = problem(
            400, "malformed_request", "This is no HTTP request that can be read; check its first line and its headers."
        )
        headers = [*refused.raw_headers, *SECURITY_HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
        head = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(refused.body))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching_reader()

    def _watch_reader(self) -> None:
        """Looks later whether the client has taken any of the answer in the meantime."""
        self._unsent = self.transport.get_write_buffer_size()
        self._write_alarm = self.loop.call_later(READ_TIMEOUT_S, self._check_reader)

    def _check_reader(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unsent:
            self.transport.abort()
        else:
            self._watch_reader()

    def _stop_watching_reader(self) -> None:
        if self._write_alarm is not None:
            self._write_alarm.cancel()
            self._write_alarm = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_watching_reader()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        """Whether it is the client's turn to send: a request's head, or the rest of its body."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        # A body that we do not read on is not the client's delay.
        return bool(self.cycle.more_body) and not self.flow.read_paused

    def _arm(self) -> None:
        """Starts the clock. What trickles in does not start it again."""
        if self._alarm is None:
            self._alarm = self.loop.call_later(REQUEST_TIMEOUT_S, self._too_slow)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _too_slow(self) -> None:
        self._alarm = None
        if self._is_waiting:
            self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn, without its handlers for the process's signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_config(app: ASGIApp) -> uvicorn.Config:
    """The settings with which every application is served."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACEFUL_S,
        backlog=BACKLOG,
    )


class ApiServer:
    """Binds, serves and stops; one per process."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        add_dashboard: Callable[[Any, ApiContext], None] | None = None,
        metrics: Callable[[], tuple[bytes, str]] | None = None,
        count_legacy_call: Callable[[str], None] | None = None,
    ) -> None:
        store = supervisor.store
        keys = KeyRing(store)
        settings = supervisor.settings
        outbound = WatchedOutbound(settings, lambda: store)
        self.context = ApiContext(store, settings, supervisor, keys, Sessions(store, keys), EventFeed(store), outbound)
        if metrics is not None:
            self.context.metrics = metrics
        if count_legacy_call is not None:
            self.context.count_legacy_call = count_legacy_call
        app = Api(self.context)
        if add_dashboard is not None:
            self.context.has_dashboard = True
            add_dashboard(app, self.context)
        self.app: ASGIApp = app
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None
        self._ending: asyncio.Future[None] | None = None

    async def check_access(self) -> None:
        """Refuses to serve beyond this machine without a key (SEC-01), then takes the address, so that a taken port
        is known before anything else has begun."""
        settings = self.context.settings
        if not settings.is_on_loopback or settings.exposed == "true":
            await self.context.keys.refresh()
            if not self.context.keys.any_opens:
                raise SettingsError(
                    f"host = {settings.host} can be reached from other machines, and there is no API key yet. Make "
                    "one with `holdbeat keys create`, or serve on 127.0.0.1 without exposed = true.",
                    field="host",
                )
        if self._socket is None:
            self._socket = _bound(settings.host, settings.port)
            await self._note_exposure()

    async def _note_exposure(self) -> None:
        """Tells every worker of the store whether requests may come from other machines (SEC-04)."""
        store = self.context.store
        settings = self.context.settings
        if settings.exposed == "false":
            await store.write(forget_proxy)
        is_exposed = settings.is_exposed or (settings.exposed == "auto" and await store.read(is_behind_proxy))
        if is_exposed:
            self.context.refuse_local()
        await store.write(
            note_server,
            self.context.supervisor.worker.id,
            is_exposed=is_exposed,
            dead=await store.find_dead(),
        )

    async def start(self) -> None:
        """Returns once connections are accepted."""
        await self.check_access()
        assert self._socket is not None
        self._server = _Server(http_config(self.app))
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="holdbeat-api")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise SettingsError("The HTTP server ended before it had begun; its log says why.", field="port")
            await asyncio.sleep(0.005)

    @property
    def port(self) -> int:
        """The port that is really bound."""
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        host = self.context.settings.host.strip("[]")
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def begin_to_stop(self) -> None:
        """Says at `/readyz` that the end is near and ends streams; everything else is answered until `stop`."""
        self.context.is_stopping = True
        self._ending = asyncio.ensure_future(self.context.feed.close())

    async def stop(self) -> None:
        """Answers what has been asked, then closes. Safe to call twice, and before start."""
        self.context.is_stopping = True
        await self.context.feed.close()
        self.context.keys.close()
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
            self._task = None
        if self._socket is not None:
            self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket, or the reason why there is none."""
    bare = host.strip("[]")
    try:
        addresses = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(f"host = {host} cannot be served on: {error.strerror or error}.", field="host") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"{bare}:{port} cannot be served on: {error.strerror or error}. Choose another port with --port.",
            field="port",
        ) from error
    return bound
