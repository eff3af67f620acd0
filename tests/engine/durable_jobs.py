"""Durable handlers that run in processes of their own, and so must be importable."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdbeat import ChildFailed, Context, SyncContext


def note(path: str, line: str) -> str:
    """Writes a line as a real effect that a test can count."""
    with Path(path).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    return line.upper()


async def note_async(path: str, line: str) -> str:
    await asyncio.sleep(0)
    return note(path, line)


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def plain(ctx: SyncContext, path: str, fail_at: int = 0) -> list[Any]:
    """Two steps and a failure between them at the first attempt."""
    first = ctx.step("one", note, path, "one")
    if ctx.attempt < fail_at:
        raise RuntimeError("between the steps")
    return [first, ctx.step("two", note, path, "two"), ctx.step("two", note, path, "two again")]


async def coroutine(ctx: Context, path: str, fail_at: int = 0) -> list[Any]:
    first = await ctx.step("one", note_async, path, "one")
    if ctx.attempt < fail_at:
        raise RuntimeError("between the steps")
    return [first, await ctx.step("two", note, path, "two"), await ctx.step("two", note, path, "two again")]


def large(ctx: SyncContext, path: str) -> int:
    """A kept value that is longer than a pipe holds."""
    value = ctx.step("large", lambda: note(path, "large") and ["x" * 1000] * 2000)
    if ctx.attempt == 0:
        raise RuntimeError("after the large step")
    return len(value)


def waiter(ctx: SyncContext, path: str) -> Any:
    """A step, a sleep, a wait and another step."""
    note(path, "call")
    ctx.step("one", note, path, "one")
    ctx.sleep(0.2)
    try:
        answer = ctx.wait_for("go", timeout=60)
    except Exception as error:
        return repr(error)
    return [ctx.step("two", note, path, "two"), answer]


async def async_waiter(ctx: Context, path: str) -> Any:
    note(path, "call")
    await ctx.step("one", note, path, "one")
    await ctx.sleep(0.2)
    try:
        answer = await ctx.wait_for("go", timeout=60)
    except Exception as error:
        return repr(error)
    return [await ctx.step("two", note, path, "two"), answer]


def reads_upstream(ctx: SyncContext) -> list[Any]:
    """What a dependent sees of a job that completed and of one that failed."""
    return [ctx.upstream["pages"], ctx.upstream["broken"], ctx.upstream.status("broken"), list(ctx.upstream)]


async def reads_upstream_async(ctx: Context) -> list[Any]:
    await asyncio.sleep(0)
    return reads_upstream(ctx.for_plain_calls)


def parent(ctx: SyncContext, path: str) -> list[Any]:
    """Waits for two children, the second of which fails."""
    note(path, "call")
    doubled = ctx.run("double", n=4)
    try:
        ctx.run("breaks")
    except ChildFailed as error:
        return [doubled, error.status, ctx.enqueue("double", n=5)]
    raise AssertionError


async def parent_async(ctx: Context, path: str) -> list[Any]:
    note(path, "call")
    doubled = await ctx.run("double", n=4)
    try:
        await ctx.run("breaks")
    except ChildFailed as error:
        return [doubled, error.status, await ctx.enqueue("double", n=5)]
    raise AssertionError


def asks(ctx: SyncContext) -> list[Any]:
    return [ctx.ask("Send it?", choices=["yes", "no"]), ctx.ask("How many?", schema={"type": "integer"})]


async def asks_async(ctx: Context) -> list[Any]:
    return [await ctx.ask("Send it?", choices=["yes", "no"]), await ctx.ask("How many?", schema={"type": "integer"})]


def _fail_when_told(path: str) -> str:
    """Fails once a byte can be read from the named pipe."""
    with Path(path).open("rb", buffering=0) as pipe:
        pipe.read(1)
    raise RuntimeError("told to fail")


def held_step(ctx: SyncContext, path: str) -> str:
    """A step, and one that lasts until a byte is written to the named pipe."""
    ctx.step("first", str, 1)
    return ctx.step("held", _fail_when_told, path)


async def held_step_async(ctx: Context, path: str) -> str:
    await ctx.step("first", str, 1)
    return await ctx.step("held", _fail_when_told, path)
