"""The program that makes records of what is written to standard output and standard error of a process (LOG-01).

It reads two pipes and writes to the log of the process until all who can write to the pipes have ended. It is a process
of its own because a thread could not read while native code writes with the interpreter's lock held, nor after a crash.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import logging
import os
import select
import socket
import struct
import termios

from holdbeat.domain.redaction import without_secrets
from holdbeat.observe.log_file import PIPE_BUF, LogFile
from holdbeat.observe.log_formats import JsonFormatter

LINE_LIMIT = 8192
"""A line that is longer becomes several records."""


class LinePipe:
    """One of the two pipes: its bytes become records, one for each line."""

    def __init__(self, descriptor: int, source: str, log: LogFile) -> None:
        self._descriptor = descriptor
        self._source = source
        self._log = log
        self._format = JsonFormatter().format
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._partial = ""

    def fileno(self) -> int:
        return self._descriptor

    def read(self, size: int = 65_536) -> bool:
        """Makes records of what has come. False at the pipe's end."""
        data = os.read(self._descriptor, size)
        text = self._partial + self._decode(data)
        *lines, self._partial = text.split("\n")
        if len(self._partial) > LINE_LIMIT:
            lines, self._partial = [*lines, self._partial], ""
        self._write(lines)
        return bool(data)

    def read_all(self) -> None:
        """Makes records of what is in the pipe now, half a line included."""
        size = struct.unpack("i", fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)))[0]
        if size:
            self.read(size)
        self.end_line()

    def end_line(self) -> None:
        rest = self._partial + self._decode(b"", True)
        self._partial = ""
        if rest:
            self._write([rest])

    def _write(self, lines: list[str]) -> None:
        records = [
            record
            for line in lines
            for begin in range(0, max(1, len(line)), LINE_LIMIT)
            for record in self._records(without_secrets(line[begin : begin + LINE_LIMIT].removesuffix("\r")))
        ]
        if records:
            # A log that is gone or full must not block the processes that write to it.
            with contextlib.suppress(OSError):
                self._log.write("".join(records))

    def _records(self, text: str) -> list[str]:
        record = logging.LogRecord("holdbeat.output", logging.INFO, __file__, 0, "%s", (text,), None)
        record.source = self._source
        line = self._format(record) + "\n"
        if len(line) <= PIPE_BUF or len(text) == 1:
            return [line]
        half = len(text) // 2
        return self._records(text[:half]) + self._records(text[half:])


def main(output: str, error: str, log: str, control: str) -> None:
    """Reads the pipes to their end. A byte from `control` asks for all that is in them now, and is sent back then."""
    log_file = LogFile(int(log))
    pipes = [LinePipe(int(output), "stdout", log_file), LinePipe(int(error), "stderr", log_file)]
    asking: list[socket.socket] = [socket.socket(fileno=int(control))]
    while pipes:
        waiting: list[LinePipe | socket.socket] = [*pipes, *asking]
        ready, _, _ = select.select(waiting, [], [])
        for pipe in [pipe for pipe in pipes if pipe in ready]:
            if not pipe.read():
                pipe.end_line()
                pipes.remove(pipe)
        if asking and asking[0] in ready:
            with contextlib.suppress(OSError):
                request = asking[0].recv(1)
                for pipe in pipes:
                    pipe.read_all()
                if request:
                    asking[0].send(request)
                    continue
            asking.clear()  # the process has ended; what it started may still write
