"""Middleware: context managers of an App around each run of its functions (FRM-04).

They are entered in the order in which they were registered and left in reverse, in the thread, loop or process of the
handler. The list of an App is attached to its functions, because the process of an isolated run knows only those.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from holdbeat.handlers.context import Context

Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
Middleware = Callable[[Context], Manager]

_attached: weakref.WeakKeyDictionary[Callable[..., Any], Sequence[Middleware]] = weakref.WeakKeyDictionary()


def attach(function: Callable[..., Any], middleware: Sequence[Middleware]) -> None:
    """Lets each run of the function be surrounded by what is in the list then."""
    _attached[function] = middleware


def middleware_of(function: Callable[..., Any]) -> Sequence[Middleware]:
    return _attached.get(function, ())


def as_middleware(function: Callable[..., Any]) -> Middleware:
    """A function that yields once becomes a context manager; any other must return one."""
    if inspect.isasyncgenfunction(function):
        return contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextlib.contextmanager(function)
    return function


async def call_async(middleware: Sequence[Middleware], ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:
    """Calls an async handler within its middleware."""
    async with contextlib.AsyncExitStack() as stack:
        for make in middleware:
            manager = make(ctx)
            if isinstance(manager, AbstractAsyncContextManager):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        return await call()
    return None  # a middleware swallowed the handler's exception


def call_plain(middleware: Sequence[Middleware], ctx: Context, call: Callable[[], Any]) -> Any:
    """Calls a plain handler within its middleware; what is async has an event loop in the handler's thread."""
    with contextlib.ExitStack() as stack:
        for make in middleware:
            manager = make(ctx)
            if isinstance(manager, AbstractAsyncContextManager):
                stack.enter_context(_in_own_loop(manager))
            else:
                stack.enter_context(manager)
        return call()
    return None


@contextlib.contextmanager
def _in_own_loop(manager: AbstractAsyncContextManager[Any]) -> Iterator[None]:
    """An async context manager for code without an event loop."""

    async def enter() -> None:
        await manager.__aenter__()

    async def leave(error: BaseException | None) -> bool | None:
        if error is None:
            return await manager.__aexit__(None, None, None)
        return await manager.__aexit__(type(error), error, error.__traceback__)

    with asyncio.Runner() as runner:
        runner.run(enter())
        try:
            yield
        except BaseException as error:
            if not runner.run(leave(error)):
                raise
        else:
            runner.run(leave(None))
