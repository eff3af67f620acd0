"""Artifacts that are written while the event loop of their async handler goes on.

Guards LEASE-04: a write to a store that does not answer must not stop the loop through which handlers are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future


class ArtifactWrite:
    """What `ctx.artifact` returns. Await it to know that the artifact is stored, or why it is not."""

    def __init__(self, future: Future[None] | None = None) -> None:
        self.future = future
        """None: it was written before it was returned."""
        self.is_awaited = False

    def __await__(self) -> Generator[object, None, None]:
        self.is_awaited = True
        if self.future is not None:
            yield from asyncio.wrap_future(self.future).__await__()


class ArtifactWrites:
    """Writes one artifact after the other, in the order of the calls, in a daemon thread that ends with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes: list[ArtifactWrite] = []
        self._waiting: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._is_writing = False

    def begin(self, write: Callable[[], None]) -> ArtifactWrite:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._waiting.append((write, future))
            if not self._is_writing:
                threading.Thread(target=self._write_all, name="holdbeat-artifacts", daemon=True).start()
                self._is_writing = True
        self._writes.append(ArtifactWrite(future))
        return self._writes[-1]

    def _write_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_writing = False
                    return
                write, future = self._waiting.popleft()
            try:
                write()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

    async def finish(self) -> BaseException | None:
        """Waits for the writes under way. Returns the first failure that the handler did not wait for."""
        failure: BaseException | None = None
        for write in self._writes:
            assert write.future is not None
            with contextlib.suppress(BaseException):
                await asyncio.shield(asyncio.wrap_future(write.future))
            if not write.future.done():
                raise asyncio.CancelledError  # the task of the worker itself is being ended
            failure = failure or (None if write.is_awaited else write.future.exception())
        return failure
