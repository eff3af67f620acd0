"""Handlers that do what handlers should not. They live in a module, where another process can find them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from holdbeat.handlers.context import Cancelled, Context, PermanentFailure, Skip


class Tone(Enum):
    DRY = "dry"
    WARM = "warm"


@dataclass
class Plot:
    title: str
    due: datetime


def typed(ctx: Context, words: int, tone: Tone, plot: Plot, pause: timedelta = timedelta(0)) -> dict[str, Any]:
    return {
        "kinds": [type(words).__name__, type(tone).__name__, type(plot).__name__, type(plot.due).__name__],
        "pause_s": pause.total_seconds(),
        "plot": plot,
    }


def talks(ctx: Context) -> dict[str, Any]:
    assert ctx.job is not None
    ctx.progress(0.5, "half")
    ctx.log("hello", 42)
    ctx.artifact("notes.txt", "from bytes")
    path = Path(f"/tmp/holdbeat-test-{ctx.run_id}")
    path.write_text("from a path")
    ctx.artifact("page.html", path)
    path.unlink()
    print("printed")
    print("complained", file=sys.stderr)
    sys.stdout.write("without an end of line")
    return {
        "job": ctx.job.id,
        "labels": ctx.job.labels,
        "created_at": ctx.job.created_at,
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "run_id": ctx.run_id,
        "has_time": (ctx.remaining_s or 0) > 10,
        "pid": os.getpid(),
        "mark": os.environ["HOLDBEAT_RUN_ID"] == ctx.run_id,
    }


def keeps_refused_artifact(ctx: Context) -> str:
    try:
        ctx.artifact("refused", b"x")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "kept"


async def gathers(ctx: Context, n: int) -> int:
    async def one(i: int) -> int:
        await asyncio.sleep(0)
        return i

    ctx.log("async in a process")
    return sum(await asyncio.gather(*(one(i) for i in range(n))))


def raises_value_error() -> None:
    raise ValueError("bad \x00 value \ud800")


def raises_skip() -> None:
    raise Skip("nothing new")


def raises_permanent_failure() -> None:
    raise PermanentFailure("no such page")


def calls_sys_exit(code: Any = 0) -> None:
    sys.exit(code)


def raises_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def raises_cancelled_error() -> None:
    raise asyncio.CancelledError("by itself")


def raises_cancelled() -> None:
    raise Cancelled("by itself")


def raises_generator_exit() -> None:
    raise GeneratorExit


def raises_group() -> None:
    raise BaseExceptionGroup("two at once", [ValueError("one"), KeyboardInterrupt("two")])


async def calls_sys_exit_async(code: Any = 0) -> None:
    await asyncio.sleep(0)
    sys.exit(code)


def os_exit(code: int = 0) -> None:
    os._exit(code)


def segfaults() -> None:
    ctypes.string_at(0)


def aborts() -> None:
    os.abort()


def killed_from_outside() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def eats_memory() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (300_000_000, 300_000_000))
    return len(bytearray(2_000_000_000))


def exhausts_descriptors() -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []
    while True:
        kept.append(open("/dev/null"))  # noqa: SIM115


def closes_every_descriptor() -> int:
    os.closerange(0, 256)
    return 1


def returns_bytes() -> bytes:
    return b"raw"


def returns_object() -> object:
    return threading.Lock()


def returns_nan() -> float:
    return float("nan")


def returns_equal_keys() -> dict[Any, str]:
    return {1: "one", "1": "another"}


def returns_nul() -> dict[str, str]:
    return {"text": "a\x00b"}


def returns_cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def waits_for_stop(ctx: Context) -> str:
    ctx.log("waiting")
    while not ctx.cancelled:
        time.sleep(0.005)
    return "finished in time"


def sleeps(ctx: Context, seconds: float = 60) -> str:
    try:
        ctx.log("waiting")
        time.sleep(seconds)
    finally:
        ctx.log("cleaned up")
    return "slept"


def eats_exceptions(ctx: Context) -> int:
    """The loop that everyone writes: whatever goes wrong with one item, take the next."""
    eaten = 0
    while True:
        try:
            ctx.log("waiting")
            time.sleep(0.002)
            ctx.checkpoint()
        except Exception:
            eaten += 1


def floods_reports(ctx: Context) -> None:
    ctx.log("waiting")
    while True:
        ctx.progress(0.1, "x" * 300)


async def awaits(ctx: Context) -> None:
    try:
        ctx.log("waiting")
        await asyncio.sleep(60)
    finally:
        ctx.log("cleaned up")


def never_ends(ctx: Context) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    ctx.log("waiting")
    while True:
        time.sleep(0.01)


def swallows_cancelled(ctx: Context) -> str:
    try:
        ctx.log("waiting")
        time.sleep(60)
    except Cancelled:
        return "made it"
    return "slept"


def leaves_children(ctx: Context) -> dict[str, int]:
    plain = subprocess.Popen(["sleep", "300"])
    daemon = subprocess.Popen(["sleep", "300"], start_new_session=True)
    return {"plain": plain.pid, "daemon": daemon.pid}


def leaves_a_child_that_goes() -> None:
    """As multiprocessing does with the process that watches over its shared memory."""
    subprocess.Popen(["sleep", "0.1"])


def leaves_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(300,)).start()
    return "done"


def prints_for_ever(megabytes: int) -> int:
    chunk = b"x" * 1023 + b"\n"
    for _ in range(megabytes * 16):
        os.write(1, chunk * 64)
    return megabytes


def dirties_the_process() -> str:
    os.chdir("/")
    os.umask(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.environ["DIRT"] = "left behind"
    sys.stdout.close()
    return os.getcwd()


def inspects_the_process() -> dict[str, Any]:
    return {
        "cwd": os.getcwd(),
        "dirt": os.environ.get("DIRT"),
        "sigchld": int(signal.getsignal(signal.SIGCHLD)),  # type: ignore[arg-type]
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def forks_a_bomb(ctx: Context) -> None:
    """Six generations of forks: 64 processes, each in a session of its own."""
    end = time.monotonic() + 20
    for _ in range(6):
        if os.fork() == 0:
            os.setsid()
    ctx.log("waiting")
    while time.monotonic() < end:
        time.sleep(0.01)


def returns_twice(ctx: Context) -> str:
    """Forks, and lets both halves return."""
    child = os.fork()
    if child == 0:
        ctx.log("from the fork")
        return "the fork"
    os.waitpid(child, 0)
    return "the handler"
