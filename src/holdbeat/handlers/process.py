"""The handler for functions in a process of their own, one fresh process for each run.

Guards EXE-02 where a thread could not: a segfault, an exhausted memory or os._exit ends the child and nothing
else, and its end is always read as one Outcome. `handlers/process_child.py` is the other side of the talk.

The child gets what it needs in a file, and speaks in JSON lines on a pipe apart from its stdout. Artifacts
are answered, because the handler may delete the file as soon as `ctx.artifact` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdbeat.domain.clock import from_iso
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.params import storable_text
from holdbeat.domain.run import ErrorKind, Outcome, RunStatus
from holdbeat.domain.waits import Wait
from holdbeat.handlers.context import Cancelled, Context
from holdbeat.handlers.current_run import log_output
from holdbeat.handlers.handler import run_process, stopped_before_start
from holdbeat.handlers.job_message import job_message
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.outcome import MAX_ERROR_LENGTH, MAX_RESULT_BYTES, describe
from holdbeat.handlers.output import LogPipe, Output
from holdbeat.handlers.process_group import ProcessGroup, describe_exit, despite_left_behind, note_left_behind
from holdbeat.handlers.stop import StopSignal
from holdbeat.handlers.threads import in_own_thread

_MAX_LINE = 2 * MAX_RESULT_BYTES
_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from holdbeat.handlers.process_child import main; main(*sys.argv[1:4])"
)


class ProcessHandler:
    def __init__(self, job_type: JobType, *, exit_grace_s: float = 5.0) -> None:
        """`exit_grace_s`: how long a child may take to exit once it has reported its outcome."""
        self._job_type = job_type
        self._exit_grace_s = exit_grace_s

    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        early = stopped_before_start(stop)
        if early is not None:
            return early
        scratch = Path(tempfile.gettempdir()) / f"holdbeat-{secrets.token_hex(16)}"
        try:
            return await run_process(stop, self._run(ctx, params, stop, scratch))
        finally:
            if scratch.exists():
                shutil.rmtree(scratch, ignore_errors=True)

    async def _run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal, scratch: Path) -> Outcome:
        with contextlib.ExitStack() as cleanup:
            talk = _Talk(ctx)
            logs = [
                LogPipe(partial(write_output, ctx, stream), lambda: ctx.is_log_full) for stream in ("stdout", "stderr")
            ]
            outputs = [opened(cleanup, Output(log.feed)) for log in logs]
            messages = opened(cleanup, Output(talk.feed))
            replies_fd, talk.reply_fd = os.pipe()
            cleanup.callback(talk.close)
            cleanup.callback(os.close, replies_fd)
            os.set_blocking(talk.reply_fd, False)
            init_fd = memory_file(json.dumps(self._init(ctx, params, scratch)).encode())
            cleanup.callback(os.close, init_fd)
            fds = (init_fd, messages.write_fd, replies_fd)
            group = await ProcessGroup.start(
                [sys.executable, "-P", "-c", _BOOT, _ROOT, *map(str, fds)],
                run_id=ctx.run_id,
                stdout=outputs[0],
                stderr=outputs[1],
                env=os.environ,
                pass_fds=fds,
            )
            messages.begin()
            talk.on_outcome = lambda: group.kill_after(self._exit_grace_s)
            talk.on_nonsense = group.kill
            code = await group.wait(stop, tell_group=False)
            await messages.end(1.0)
            await talk.finish()
            for log in logs:
                log.finish()
            ctx.write_log("stderr", note_left_behind(group.left_behind))
            outcome = talk.outcome or _ended_without_outcome(code, group.was_killed)
            return despite_left_behind(outcome, group.left_behind)

    def _init(self, ctx: Context, params: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
        target = self._job_type.target
        assert target is not None
        return {
            "parent": os.getpid(),
            "upstream": ctx.upstream.entries,
            "path": [str(entry) for entry in sys.path],
            "argv": sys.argv,
            "module": target.module,
            "qualname": target.qualname,
            "script": target.script,
            "type": ctx.type,
            "params": dict(params),
            "job": None if ctx.job is None else job_message(ctx.job),
            "run_id": ctx.run_id,
            "fence": ctx.fence,
            "slots": ctx.slots,
            "suspend_s": ctx.suspend_s,
            "deadline": None if ctx.deadline is None else ctx.deadline.isoformat(),
            "remaining_s": ctx.remaining_s,
            "scratch": str(scratch),
            "log_level": min(logging.INFO, logging.getLogger().getEffectiveLevel()),
        }


def write_output(ctx: Context, stream: str, text: str) -> None:
    """Adds what a process printed to its run's log and to the log of the worker."""
    ctx.write_log(stream, text)
    log_output(ctx, stream, text)


def opened(cleanup: contextlib.ExitStack, output: Output) -> Output:
    cleanup.callback(output.close)
    return output


def memory_file(content: bytes) -> int:
    """A descriptor from which a child can read `content` from its beginning."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("holdbeat")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(fd, left) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _ended_without_outcome(code: int, was_killed: bool) -> Outcome:
    if was_killed:
        text = "killed after its grace."
    elif code == 0:
        text = "The process ended without a result (exit code 0, as os._exit would)."
    else:
        text = f"The process ended without a result: {describe_exit(code)}."
    return Outcome.failed(ErrorKind.EXIT, text, exit_code=code)


class _Talk:
    """The worker's side of the talk with one child."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._buffer = bytearray()
        self._keeping: set[asyncio.Task[None]] = set()
        self._replying = asyncio.Lock()
        self._is_over = False
        self.reply_fd = -1
        self.outcome: Outcome | None = None
        self.on_outcome: Callable[[], None] = lambda: None
        self.on_nonsense: Callable[[], None] = lambda: None

    def feed(self, data: bytes) -> None:
        """Takes what came through the pipe; half a line, from a child that died writing, stays unread."""
        self._buffer += data
        if b"\n" in data:
            *lines, rest = self._buffer.split(b"\n")
            self._buffer = rest
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                    self._take(json.loads(line))
        elif len(self._buffer) > _MAX_LINE:
            self._buffer.clear()
            self.on_nonsense()

    def _take(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "progress":
                self._ctx.progress(message["fraction"], message["message"])
            case "step":
                name, started_at = storable_text(message["name"], 220), message["started_at"]
                if started_at is None:
                    self._ctx.open_steps().pop(name, None)
                else:
                    self._ctx.open_steps()[name] = from_iso(started_at)
            case "record":
                self._ctx.write_log("log", message["text"])
                log_output(self._ctx, message["name"], message["text"], message["level"])
            case "log":
                self._ctx.write_log(message["stream"], message["text"])
            case "artifact":
                task = asyncio.create_task(self._keep(message["id"], message["name"], Path(message["path"])))
                self._keeping.add(task)
            case "ask":
                self._keeping.add(asyncio.create_task(self._ask(message["id"], message["request"])))
            case "outcome" if self.outcome is None:
                self._ctx.traceback = message["traceback"]
                self.outcome = Outcome(
                    status=RunStatus(message["status"]),
                    result=message["result"],
                    error=message["error"],
                    error_kind=ErrorKind(message["error_kind"]) if message["error_kind"] else None,
                    waits=tuple(Wait.of(wait) for wait in message["waits"]),
                    retry_after_s=message["retry_after_s"],
                )
                self.on_outcome()

    async def _keep(self, number: int, name: str, path: Path) -> None:
        error: str | None = None
        try:
            await in_own_thread(lambda: self._ctx.artifact(name, path), name="artifact")
        except (Exception, Cancelled) as failure:
            error = storable_text(str(failure) or describe(failure), MAX_ERROR_LENGTH)
        await self._reply({"id": number, "error": error})

    async def _ask(self, number: int, request: dict[str, Any]) -> None:
        """Passes on what the handler asks of the store."""
        reply: dict[str, Any] = {"id": number, "error": None}
        try:
            if self._ctx.keeper is not None:
                reply["value"] = await self._ctx.keeper.ask_async(request)
        except Cancelled as failure:
            reply |= {"error": str(failure), "code": "lease_lost"}
        except Exception as failure:
            code = failure.code if isinstance(failure, HoldbeatError) else "keeping_failed"
            reply |= {"error": storable_text(str(failure) or describe(failure), MAX_ERROR_LENGTH), "code": code}
        await self._reply(reply)

    async def _reply(self, reply: dict[str, Any]) -> None:
        """Writes a reply without blocking the event loop: one may be longer than the pipe holds."""
        data = memoryview(json.dumps(reply).encode() + b"\n")
        async with self._replying:
            with contextlib.suppress(OSError):
                while data and not self._is_over:
                    try:
                        data = data[os.write(self.reply_fd, data) :]
                    except BlockingIOError:
                        await asyncio.sleep(0.001)

    async def finish(self) -> None:
        """Waits until the artifacts and steps that were sent are kept or refused."""
        self._is_over = True
        if self._keeping:
            await asyncio.wait(self._keeping)

    def close(self) -> None:
        if self.reply_fd >= 0:
            os.close(self.reply_fd)
            self.reply_fd = -1
