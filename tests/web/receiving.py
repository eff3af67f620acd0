"""A receiver of webhooks that a test listens at."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def receiver_at(path: str = "/hook", *, refuses: int = 1) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Its address, and what it was sent. The first messages are refused for good, all others taken."""
    taken: list[dict[str, object]] = []

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append(json.loads(body))
            self.send_response(410 if len(taken) <= refuses else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receive)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{path}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
