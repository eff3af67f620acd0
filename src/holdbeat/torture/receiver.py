"""A webhook receiver that writes down what it accepted, and refuses some messages once."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSE_EVERY = 7
"""Every seventh message is refused the first time it comes."""


class Receiver:
    """Listens on loopback until it is closed."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.refused = 0
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                is_accepted = receiver._take(self.headers.get("webhook-id") or "")
                self.send_response(204 if is_accepted else 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: thousands of messages come."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, name="torture-receiver", daemon=True)
        self._thread.start()

    def _take(self, delivery: str) -> bool:
        with self._lock:
            times = self._seen[delivery] = self._seen.get(delivery, 0) + 1
            if times == 1 and len(self._seen) % REFUSE_EVERY == 0:
                self.refused += 1
                return False
            self.accepted.append(delivery)
            return True

    @property
    def doubles(self) -> int:
        """Messages that came again after they were accepted: allowed, and counted."""
        return len(self.accepted) - len(set(self.accepted))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
