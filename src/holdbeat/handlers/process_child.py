"""The child's side of an isolated run: finds the function, calls it, reports one outcome.

Guards that SIGTERM reaches the handler in the form it knows: Cancelled raised in the main thread for a plain
function, cancellation of its task for a coroutine, `ctx.cancelled` for both. It never interrupts a report on
its way through the pipe, which would garble all later ones.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from holdbeat.handlers.die_with_parent import die_with, forget_inherited_signals

if TYPE_CHECKING:
    from holdbeat.handlers.context import Context

_MAIN = "__holdbeat_main__"
"""The name under which a script is imported: not `__main__`, so that it does not start a second worker."""


def main(init_fd: str, messages_fd: str, replies_fd: str) -> NoReturn:
    with open(int(init_fd), "rb") as file:
        init = json.load(file)
    die_with(init["parent"])
    forget_inherited_signals()
    pipe = _Pipe(int(messages_fd), int(replies_fd), Path(init["scratch"]))
    stopper = _Stopper(pipe)
    signal.signal(signal.SIGTERM, stopper.on_signal)
    sys.path[:] = init["path"]
    sys.argv[:] = init["argv"]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    outcome = _run(init, pipe, stopper)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the handler closed it
            stream.flush()
    pipe.send(
        {
            "kind": "outcome",
            "status": outcome.status,
            "result": outcome.result,
            "error": outcome.error,
            "error_kind": outcome.error_kind,
            "traceback": pipe.traceback,
            "waits": [wait.message() for wait in outcome.waits],
            "retry_after_s": outcome.retry_after_s,
        }
    )
    sys.exit(0)


def _run(init: dict[str, Any], pipe: _Pipe, stopper: _Stopper) -> Any:
    # Imported after die_with, which must not wait for them.
    from holdbeat.domain.clock import SystemClock, seconds
    from holdbeat.domain.run import ErrorKind, Outcome
    from holdbeat.handlers.context import Context
    from holdbeat.handlers.handler import bound
    from holdbeat.handlers.job_message import job_of
    from holdbeat.handlers.job_type import JobType
    from holdbeat.handlers.outcome import failed_with, outcome_of_value, traceback_text
    from holdbeat.handlers.upstreams import Upstreams

    deadline = None
    if init["deadline"] is not None:
        # What counts is the time left by the worker's clock, also if the wall clock jumped on the way.
        deadline = min(datetime.fromisoformat(init["deadline"]), SystemClock().now() + seconds(init["remaining_s"]))
    job = None if init["job"] is None else job_of(init["job"])
    ctx = Context(
        run_id=init["run_id"],
        type=init["type"],
        fence=init["fence"],
        slots=init["slots"],
        reports=pipe,
        stop=stopper.stop,
        job=job,
        deadline=deadline,
        keeper=None if job is None else pipe,
        suspend_s=init["suspend_s"],
        upstream=Upstreams(init["upstream"], None if job is None else job.on_upstream),
    )
    _log_to(pipe, init["log_level"])
    try:
        try:
            function = _find(init)
            job_type = JobType.from_function(function, init["type"])
        except Exception as error:
            ctx.write_log("stderr", traceback_text(error))
            text = f"{init['module']}:{init['qualname']} could not be imported: {type(error).__name__}: {error}"
            return Outcome.failed(ErrorKind.ERROR, text)
        kwargs = bound(job_type, init["params"], ctx)
        if isinstance(kwargs, Outcome):
            return kwargs
        ctx.checkpoint()
        if job_type.is_async:
            return outcome_of_value(ctx, stopper.run_coroutine(lambda: _awaited(function, kwargs, ctx)))
        with stopper.raising():
            value = _called(function, kwargs, ctx)
        return outcome_of_value(ctx, value)
    except BaseException as error:
        stopper.is_raising = False
        return failed_with(ctx, error)
    finally:
        pipe.traceback = ctx.traceback


def _log_to(pipe: _Pipe, level: int) -> None:
    """Sends the worker all log records of this process, unless the handler's module decides otherwise."""
    import logging

    from holdbeat.handlers.current_run import record_text

    class PipeHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            pipe.send({"kind": "record", "name": record.name, "level": record.levelno, "text": record_text(record)})

    root = logging.getLogger()
    root.addHandler(PipeHandler())
    root.setLevel(level)


def _called(function: Callable[..., Any], kwargs: dict[str, Any], ctx: Context) -> Any:
    if not _has_middleware(function):
        return function(**kwargs)
    from holdbeat.handlers.middleware import call_plain, middleware_of

    return call_plain(middleware_of(function), ctx, lambda: function(**kwargs))


def _has_middleware(function: Callable[..., Any]) -> bool:
    """Whether the module of the handler has an App with middleware; without one, nothing is loaded for it."""
    middleware = sys.modules.get("holdbeat.handlers.middleware")
    return middleware is not None and bool(middleware.middleware_of(function))


async def _awaited(function: Callable[..., Any], kwargs: dict[str, Any], ctx: Context) -> Any:
    """Returns the result of the handler, once its artifacts are stored."""
    failure: BaseException | None = None
    try:
        if _has_middleware(function):
            from holdbeat.handlers.middleware import call_async, middleware_of

            value = await call_async(middleware_of(function), ctx, lambda: function(**kwargs))
        else:
            value = await function(**kwargs)
    finally:
        failure = await ctx.artifacts_written()
    if failure is not None:
        raise failure
    return value


def _find(init: dict[str, Any]) -> Callable[..., Any]:
    """The function, whatever decorator of ours stands in its place in the module."""
    from holdbeat.handlers.job_type import JobType

    if init["script"] is None:
        target: Any = importlib.import_module(init["module"])
    else:
        spec = importlib.util.spec_from_loader(_MAIN, SourceFileLoader(_MAIN, init["script"]))
        assert spec is not None and spec.loader is not None
        target = importlib.util.module_from_spec(spec)
        sys.modules[_MAIN] = target
        spec.loader.exec_module(target)
    for name in init["qualname"].split("."):
        target = getattr(target, name)
    target = getattr(target, "job_type", target)
    function = target.function if isinstance(target, JobType) else target
    if not callable(function):
        raise TypeError(f"{init['qualname']} is not a function")
    return function


def _keeping(name: str, value: str, started_at: datetime, duration_s: float) -> dict[str, Any]:
    from holdbeat.domain.clock import iso

    return {"do": "keep", "name": name, "value": value, "started_at": iso(started_at), "duration_s": duration_s}


class _Pipe:
    """The child's Reports: JSON lines to the worker."""

    def __init__(self, messages_fd: int, replies_fd: int, scratch: Path) -> None:
        os.set_inheritable(messages_fd, False)
        os.set_inheritable(replies_fd, False)
        self._fd = messages_fd
        self._pid = os.getpid()
        self._replies = open(replies_fd, encoding="utf-8")  # noqa: SIM115 - open as long as the process
        self._scratch = scratch
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._count = 0
        self.is_sending = False
        """While the main thread sends, where signals are handled."""
        self.after_sending: Callable[[], None] | None = None
        self.traceback: str | None = None

    def send(self, message: dict[str, Any]) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the handler's: only one process speaks for the run
        is_main = threading.current_thread() is threading.main_thread()
        self.is_sending = self.is_sending or is_main
        try:
            line = memoryview(json.dumps(message).encode() + b"\n")
            with self._lock:
                while line:
                    line = line[os.write(self._fd, line) :]
        finally:
            if is_main:
                self.is_sending = False
                then, self.after_sending = self.after_sending, None
                if then is not None:
                    then()

    def progress(self, fraction: float | None, message: str | None) -> None:
        self.send({"kind": "progress", "fraction": fraction, "message": message})

    def open_steps(self) -> _SentSteps:
        return _SentSteps(self)

    def log(self, stream: str, text: str) -> None:
        self.send({"kind": "log", "stream": stream, "text": text})

    def artifact(self, name: str, data: bytes | Path) -> None:
        from holdbeat.domain.errors import Invalid

        if os.getpid() != self._pid:
            raise Invalid("A fork of the handler cannot keep artifacts; keep them in the handler itself.")
        with self._asking:
            number = self._next_number()
            path = data.resolve(strict=True) if isinstance(data, Path) else self._scratch / str(number)
            if isinstance(data, bytes):
                self._scratch.mkdir(mode=0o700, exist_ok=number > 1)
                path.write_bytes(data)
            self.send({"kind": "artifact", "id": number, "name": name, "path": str(path)})
            reply = self._reply_to(number)
            if isinstance(data, bytes):
                path.unlink(missing_ok=True)
        if reply["error"] is not None:
            raise Invalid(reply["error"], code="artifact_refused", field=name)

    def ask(self, request: dict[str, Any]) -> Any:
        """Asks the store through the worker: the child's Keeper."""
        from holdbeat.domain.errors import Conflict, Invalid
        from holdbeat.handlers.context import Cancelled

        if os.getpid() != self._pid:
            raise Invalid("A fork of the handler cannot keep steps; call them in the handler itself.")
        with self._asking:
            number = self._next_number()
            self.send({"kind": "ask", "id": number, "request": request})
            reply = self._reply_to(number)
        if reply["error"] is None:
            return reply.get("value")
        if reply["code"] == "lease_lost":
            raise Cancelled(reply["error"])
        raise Conflict(reply["error"], code=reply["code"])

    async def ask_async(self, request: dict[str, Any]) -> Any:
        from holdbeat.handlers.threads import in_own_thread

        return await in_own_thread(lambda: self.ask(request), name="ask")

    def keep(self, name: str, value: str, started_at: datetime, duration_s: float) -> str | None:
        earlier: str | None = self.ask(_keeping(name, value, started_at, duration_s))
        return earlier

    async def keep_async(self, name: str, value: str, started_at: datetime, duration_s: float) -> str | None:
        earlier: str | None = await self.ask_async(_keeping(name, value, started_at, duration_s))
        return earlier

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    def _reply_to(self, number: int) -> dict[str, Any]:
        reply: dict[str, Any] = {"id": None}
        # One that Cancelled interrupted while it waited has left its reply behind.
        while reply["id"] != number:
            line = self._replies.readline()
            if not line:
                raise OSError("the worker is gone")
            reply = json.loads(line)
        return reply


class _SentSteps(dict[str, datetime]):
    """Open steps of which the worker is told."""

    def __init__(self, pipe: _Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def __setitem__(self, name: str, started_at: datetime) -> None:
        from holdbeat.domain.clock import iso

        super().__setitem__(name, started_at)
        self._send(name, iso(started_at))

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._send(name, None)

    def _send(self, name: str, started_at: str | None) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, and this process will be
            self._pipe.send({"kind": "step", "name": name, "started_at": started_at})


class _Stopper:
    """Turns SIGTERM into what the handler understands."""

    def __init__(self, pipe: _Pipe) -> None:
        from holdbeat.handlers.stop import StopSignal

        self.stop = StopSignal()
        self.is_raising = False
        self._is_told = False
        self._pipe = pipe
        self._cancel_task: Callable[[], object] | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_told:
            return
        self._is_told = True
        self.stop.set("cancelled", grace_s=None)
        if self._cancel_task is not None:
            self._cancel_task()
        elif self.is_raising and self._pipe.is_sending:
            self._pipe.after_sending = self._raise
        elif self.is_raising:
            self._raise()

    def _raise(self) -> None:
        from holdbeat.handlers.context import Cancelled

        if self.is_raising:
            self.is_raising = False
            raise Cancelled("told to end by SIGTERM")

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Within it, SIGTERM raises Cancelled in the main thread, once."""
        self.is_raising = True
        if self.stop.is_set:
            self._raise()
        try:
            yield
        finally:
            self.is_raising = False

    def run_coroutine(self, call: Callable[[], Any]) -> Any:
        """Runs a coroutine function; SIGTERM cancels its task, once."""
        import asyncio

        async def body() -> tuple[Any, BaseException | None]:
            # What it raises is carried out as a value: asyncio treats SystemExit and its kin in its own way.
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
            if self.stop.is_set:
                task.cancel()
            try:
                return await call(), None
            except BaseException as error:
                return None, error

        value, error = asyncio.run(body())
        self._cancel_task = None
        if error is not None:
            raise error
        return value
