"""LogFile: the stream of a log that several processes write to, whose lines stay whole.

A pipe takes a write of up to PIPE_BUF bytes in one piece, so lines are written together up to that size. A longer line
is a write of its own; a pipe that is full may take it in parts.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable, Iterator

PIPE_BUF = 4096
"""What Linux takes in one piece; select.PIPE_BUF of other systems is at least 512."""


class LogFile(io.TextIOBase):
    """Writes whole lines to a descriptor, without a buffer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writing = threading.Lock()
        os.register_at_fork(after_in_child=self._unlock)

    def _unlock(self) -> None:
        """Replaces the lock in a forked child: the thread that held it is not there."""
        self._writing = threading.Lock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str) -> int:
        with self._writing:
            for piece in _pieces(text.encode(errors="backslashreplace").splitlines(keepends=True)):
                while piece:
                    piece = piece[os.write(self._descriptor, piece) :]
        return len(text)


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, joined as long as they fit into one write."""
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > PIPE_BUF:
            yield piece
            piece = b""
        piece += line
    yield piece
