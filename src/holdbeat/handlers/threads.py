"""Work in a daemon thread of its own.

Guards against the default executor: its handful of threads is shared with everything else in the process, and
a few endless calls would stop all of it. Daemon, so that no thread can keep the process from ending. A fresh
one each time, so that nothing thread-local (a database session, say) passes from one job to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T], *, name: str) -> T:
    """Returns or raises as `work` does; RuntimeError or MemoryError if no thread can be started."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=contextvars.copy_context().run, args=(body,), name=name, daemon=True).start()
    return await ended
