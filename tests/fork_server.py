"""Starts `python -m ...` commands as forks of one interpreter that has imported Holdbeat.

A new interpreter spends about 0.1 s of processor time on imports, and the tests start thousands of commands. A forked
command is still a process of its own: its pid, signals, working directory, environment, streams, threads and end are
its own. Only the start of Python itself is shared. Tests of that start use `subprocess` directly.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[1]
WARNINGS = "error::DeprecationWarning:holdbeat"
LENGTH = struct.Struct("!I")
NOT_LOADED = {"holdbeat.__main__", "holdbeat.testing"}
"""Modules that a command does not import: the entry point, which the fork runs, and the pytest plugin."""


def start_module(module: str, *args: object, **options: Any) -> subprocess.Popen[Any]:
    """What `subprocess.Popen([sys.executable, "-m", module, *args], **options)` gives, at a fraction of the cost.

    A command whose environment changes how Python starts gets a new interpreter.
    """
    if _for_python(options.get("env") or os.environ) != _for_python(os.environ):
        return subprocess.Popen([sys.executable, "-m", module, *map(str, args)], **options)
    return Forked(module, *args, **options)


def _for_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if (name.startswith("PYTHON") and name != "PYTHONWARNINGS") or name == "LD_PRELOAD"
    }


class Forked(subprocess.Popen[Any]):
    """A `subprocess.Popen` of `module` with arguments whose process is a fork of the server's."""

    def __init__(self, module: str, *args: object, **options: Any) -> None:
        self._status: int | None = None
        super().__init__([module, *map(str, args)], **options)

    def _execute_child(self, command: list[str], *rest: Any) -> None:
        # The order of subprocess.Popen: executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        # creationflags, shell, then the ends of the three pipes.
        cwd, env = rest[4], rest[5]
        pipes = rest[9:15]
        streams = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {"argv": command, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        status, theirs = os.pipe()
        try:
            self.pid = _server().fork(request, [*streams, theirs])
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(theirs)
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._status = status
        self._child_created = True

    def _internal_poll(self, _deadstate: int | None = None, **_more: Any) -> int | None:
        if self.returncode is None and self._status is not None and select.select([self._status], [], [], 0)[0]:
            self._read_status()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            assert self._status is not None
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._read_status()
        return self.returncode

    def _read_status(self) -> None:
        assert self._status is not None
        answer = os.read(self._status, 16)
        os.close(self._status)
        self._status = None
        assert answer, "the fork server is gone"
        self.returncode = int(answer)


class _Client:
    """The test process's connection to its fork server."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOLDBEAT_", "PYTEST"))
        }
        self.owner = os.getpid()
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from tests.fork_server import serve; serve({theirs.fileno()})"],
            cwd=ROOT,
            env={**environment, "PYTHONWARNINGS": WARNINGS},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        atexit.register(self.close)

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """Starts a process and gives its pid."""
        body = json.dumps(request).encode()
        socket.send_fds(self._socket, [LENGTH.pack(len(body))], files)
        self._socket.sendall(body)
        return LENGTH.unpack(_read(self._socket, LENGTH.size))[0]  # type: ignore[no-any-return]

    def close(self) -> None:
        if self.owner == os.getpid():
            self._socket.close()
            self._process.wait()


@cache
def _server_of(_pid: int) -> _Client:
    return _Client()


def _server() -> _Client:
    return _server_of(os.getpid())


def _read(source: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = source.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


# --- in the process of the server -------------------------------------------------------------------------------


def serve(number: int) -> None:
    """Forks commands until the test process is gone; in a fork, runs the command instead."""
    import holdbeat

    for module in pkgutil.walk_packages(holdbeat.__path__, "holdbeat."):
        if module.name not in NOT_LOADED:
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=number)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([number, wake], [], [])
        if wake in ready:
            os.read(wake, 512)
            _report_ended(children)
        if number in ready:
            try:
                request, files = _next_request(requests)
            except EOFError:
                return
            pid = os.fork()
            if pid == 0:
                for unneeded in (wake, woken, requests.detach(), files[3], *children.values()):
                    os.close(unneeded)
                _become(request, files[:3])
                return
            for file in files[:3]:
                os.close(file)
            children[pid] = files[3]
            requests.sendall(LENGTH.pack(pid))


def _next_request(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    header, files, _, _ = socket.recv_fds(requests, LENGTH.size, 4)
    if not header:
        raise EOFError
    request: dict[str, Any] = json.loads(_read(requests, LENGTH.unpack(header)[0]))
    return request, files


def _report_ended(children: dict[int, int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            file = children.pop(pid)
            os.write(file, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(file)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Runs the command in the forked process as a new interpreter would, and lets the interpreter end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, file in enumerate(files):
        os.dup2(file, target)
    for file in files:
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    module, *args = request["argv"]
    sys.path[0] = request["cwd"]
    sys.argv = [module, *args]
    _open_streams()
    importlib.invalidate_caches()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _end(end.code)
        raise


def _open_streams() -> None:
    """Makes sys.stdin, sys.stdout and sys.stderr anew, with the buffering that the interpreter gives them."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", "strict", is_line_buffered=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", "strict", is_line_buffered=os.isatty(1))  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace", is_line_buffered=True)  # type: ignore[misc]


def _stream(number: int, mode: Literal["r", "w"], errors: str, *, is_line_buffered: bool) -> io.TextIOWrapper:
    raw = io.FileIO(number, mode, closefd=False)
    binary = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(binary, encoding="utf-8", errors=errors, line_buffering=is_line_buffered)


def _end(code: int) -> None:
    """Ends the process as the interpreter does, but leaves its memory to the kernel: to free it takes 60 ms."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # The interpreter reports a stream that nobody reads.
    with contextlib.suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
