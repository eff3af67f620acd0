"""A port for `/metrics` alone, for processes that serve no API (OPS-05).

Guards the work beside it: it runs in threads of its own, reads nothing that a client sends but the first line and the
headers, and a client that says nothing is dropped. There are no keys here, so it listens on loopback unless it is told
otherwise.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdbeat.domain.errors import SettingsError

log = logging.getLogger("holdbeat.metrics")

TIMEOUT_S = 10.0
Exposition = Callable[[], tuple[bytes, str]]


class MetricsServer:
    """Binds when it is made, so that a taken port is known before anything else has begun."""

    def __init__(self, host: str, port: int, exposition: Exposition) -> None:
        bare = host.strip("[]")
        try:
            family, _, _, _, address = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0]
            self._server = _server_on(family, address, exposition)
        except OSError as error:
            raise SettingsError(
                f"Metrics cannot be served on {bare}:{port}: {error.strerror or error}. Choose another --metrics-port.",
                field="metrics_port",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdbeat-metrics", daemon=True)

    @property
    def address(self) -> str:
        """The URL at which it can be scraped."""
        host, port = self._server.server_address[:2]
        bracketed = f"[{host!s}]" if ":" in str(host) else host
        return f"http://{bracketed!s}:{port}/metrics"

    def start(self) -> None:
        self._thread.start()
        log.info("metrics on %s", self.address)

    def close(self) -> None:
        """Serves no more; a scrape under way may be cut off."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _server_on(family: int, address: Any, exposition: Exposition) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = socket.AddressFamily(family)
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            log.debug("a scrape broke off", exc_info=True)

    class Answer(BaseHTTPRequestHandler):
        timeout = TIMEOUT_S
        server_version = "holdbeat"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._send(404, b"There is only /metrics here.\n", "text/plain; charset=utf-8")
                return
            self._send(200, *exposition())

        do_HEAD = do_GET

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

    return Server(address, Answer)
