"""A pipe from a child process, read as fast as it writes and kept only as far as the run's log allows.

Guards A10 of a handler's misdeeds: a gigabyte of output neither blocks the child nor grows the worker.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
from collections.abc import Callable

from holdbeat.domain.params import storable_text

_CHUNK = 65_536
_LINE_LIMIT = 8192
TAIL_BYTES = 8192


class Output:
    """Reads one pipe in the event loop and hands on its bytes.

    `write_fd` goes to the child; after `begin` our copy of it is closed, so that the pipe ends with its
    writers. Always `close` in the end; that is idempotent.
    """

    def __init__(self, on_bytes: Callable[[bytes], None]) -> None:
        self._on_bytes = on_bytes
        self._read_fd, self.write_fd = os.pipe()
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

    def begin(self) -> None:
        self._close_writer()
        os.set_blocking(self._read_fd, False)
        self._loop.add_reader(self._read_fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._read_fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_bytes(data)
        else:
            self.close()

    async def end(self, timeout_s: float) -> None:
        """Waits for the pipe's end, but not for a stray that holds it open; then closes it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        self.close()

    def _close_writer(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def close(self) -> None:
        self._close_writer()
        if self._read_fd >= 0:
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1
        self._ended.set()


class LogPipe:
    """Turns bytes into lines for the log, and remembers the tail for the result."""

    def __init__(self, write: Callable[[str], None], is_full: Callable[[], bool]) -> None:
        self._write = write
        self._is_full = is_full
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._partial = ""
        self._tail = b""

    def feed(self, data: bytes) -> None:
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        if self._is_full():
            self._partial = ""
            return
        text = self._partial + self._decode(data)
        lines, newline, self._partial = text.rpartition("\n")
        if len(self._partial) > _LINE_LIMIT:
            lines, newline, self._partial = text, "", ""
        if lines or newline:
            self._write(lines + newline)

    def finish(self) -> None:
        rest = self._partial + self._decode(b"", True)
        self._partial = ""
        if rest:
            self._write(rest)

    @property
    def tail(self) -> str:
        """The last few kilobytes, whether or not the log still had room for them."""
        return storable_text(self._tail.decode("utf-8", "replace"))
