"""A line to a server that is cut when the test says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Relay:
    """Passes bytes on to a server. Its first connection is cut once `is_enough` has heard enough of the answers."""

    def __init__(self, port: int, is_enough: Callable[[bytes], bool]) -> None:
        self._port = port
        self._is_enough = is_enough
        self._count = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._count += 1
                threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, self._count == 1), daemon=True).start()

    def _pass(self, source: socket.socket, goal: socket.socket, is_cut: bool) -> None:
        heard = b""
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                goal.sendall(part)
                heard += part
                if is_cut and self._is_enough(heard):
                    break
        for end in (source, goal):
            # Not only closed: the other thread still waits on it, and would keep the line open.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
