"""A line to PostgreSQL that is cut at the worst instant: while a COMMIT, or another statement, is under way."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, get_args
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before the commit arrives", "after the commit is done"]
CUTS: tuple[Cut, ...] = get_args(Cut)


class FaultProxy:
    """Passes everything on, until it is armed; then the next COMMIT, or what it is told to look for, cuts the line."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = ("127.0.0.1", parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{port}"))
        self._cut: Cut | None = None
        self._mark = b""
        self._lock = threading.Lock()
        self.cuts = 0
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: Cut, mark: bytes = b"COMMIT\0") -> None:
        """Cuts the line at the next request, or the next answer, in which `mark` stands."""
        with self._lock:
            self._cut = cut
            self._mark = mark

    def swallow(self) -> None:
        """From now on nothing arrives and nothing is refused: connections stay open and silent."""
        self._passes.clear()

    def refuse(self) -> None:
        """From now on there are no new connections."""
        self._listener.shutdown(socket.SHUT_RDWR)

    def deliver(self) -> None:
        """Ends `swallow`; what was held back arrives."""
        self._passes.set()

    def close(self) -> None:
        self._passes.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()  # the server is away: so is this line to it
                continue
            for source, target, is_request in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, target, is_request), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                if self._cuts_here(data, is_request):
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _cuts_here(self, data: bytes, is_request: bool) -> bool:
        expected: Cut = "before the commit arrives" if is_request else "after the commit is done"
        with self._lock:
            if self._cut != expected or self._mark not in data:
                return False
            self._cut = None
            self.cuts += 1
            return True
