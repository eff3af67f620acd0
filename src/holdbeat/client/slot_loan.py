"""A slot to borrow, held while a block runs.

Guards LIM-12 for the holder: one thread with an event loop of its own waits for the slot, extends it while the block
runs, whatever the program's own threads and loops do meanwhile, and gives it back. If the slot cannot be extended in
time the holder can see so (`is_held`, `check`), before others may have the slot.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import Conflict, HoldbeatError

EXTEND_SHARE = 3
"""A slot is extended so many times within its ttl."""


class Lender(Protocol):
    """The lender of slots: a store, or a server."""

    def reserve_slot(
        self, resource: str, *, ttl_s: float | None = None, wait_s: float | None = None
    ) -> Awaitable[Any]: ...
    def extend_reservation(self, reservation_id: str, ttl_s: float | None = None) -> Awaitable[Any]: ...
    def release_reservation(self, reservation_id: str) -> Awaitable[Any]: ...


class SlotLoan:
    """`with app.slot("gpu") as slot:` or `async with app.slot("gpu") as slot:`."""

    def __init__(
        self,
        open_lender: Callable[[], AbstractAsyncContextManager[Lender]],
        resource: str,
        *,
        ttl_s: float,
        wait_s: float | None = None,
    ) -> None:
        self._open_lender = open_lender
        self.resource = resource
        self._ttl_s = ttl_s
        self._wait_s = wait_s
        self._clock = SystemClock()
        self._granted: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._lock = threading.Lock()
        self._extended_at = 0.0
        self._loss: str | None = None
        self.id = ""
        """The id of the reservation."""
        self.number: int | None = None
        """The number of the slot within its resource, from 0; None where nothing limits the slots of the resource."""
        self.fence = 0
        """Grows with every start of work in the store. What refuses smaller ones is safe from holders that are late."""

    @property
    def is_held(self) -> bool:
        """Whether nobody else can have the slot: it was extended in time, and not taken away."""
        return self._loss is None and self._clock.monotonic() < self._extended_at + self._ttl_s

    def check(self) -> None:
        """Raises Conflict if the slot is not held any more. Call it before what must not happen twice at once."""
        if not self.is_held:
            why = self._loss or "it could not be extended in time"
            raise Conflict(f"The slot of {self.resource} was lost: {why}.", code="slot_lost", reservation_id=self.id)

    # --- the block ----------------------------------------------------------------------------------------

    def __enter__(self) -> SlotLoan:
        self._start()
        try:
            self._granted.result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._ended.result()

    async def __aenter__(self) -> SlotLoan:
        self._start()
        try:
            await asyncio.wrap_future(self._granted)
        except BaseException:
            self._end()
            await asyncio.shield(asyncio.wrap_future(self._ended))
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _start(self) -> None:
        if self._granted.done() or self._loop is not None:
            raise Conflict("This slot has been used already; call slot() for each block.", code="already_used")
        threading.Thread(target=self._run, name=f"holdbeat-slot-{self.resource}", daemon=True).start()

    def _end(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._loop is not None and self._task is not None:
                with contextlib.suppress(RuntimeError):  # it has been closed just now
                    self._loop.call_soon_threadsafe(self._task.cancel)

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            if self._granted.set_running_or_notify_cancel():
                self._granted.set_exception(error)
        finally:
            self._ended.set_result(None)

    async def _live(self) -> None:
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self._is_cancelled:
                return
        async with self._open_lender() as lender:
            slot = await lender.reserve_slot(self.resource, ttl_s=self._ttl_s, wait_s=self._wait_s)
            self.id, self.number, self.fence = slot["id"], slot["slot"], slot["fence"]
            self._extended_at = self._clock.monotonic()
            try:
                if self._granted.set_running_or_notify_cancel():
                    self._granted.set_result(slot)
                await self._extend(lender)
            finally:
                await asyncio.shield(self._release(lender))

    async def _extend(self, lender: Lender) -> None:
        pause_s = self._ttl_s / EXTEND_SHARE
        while True:
            await asyncio.sleep(pause_s)
            began = self._clock.monotonic()
            try:
                await lender.extend_reservation(self.id, self._ttl_s)
            except HoldbeatError as error:
                if error.code in ("slot_lost", "not_found"):
                    self._loss = error.detail
                    # What the block does in the slot may go on: it is given back when the block has ended.
                    await asyncio.Event().wait()
                pause_s = min(1.0, self._ttl_s / EXTEND_SHARE)
            else:
                self._extended_at, pause_s = began, self._ttl_s / EXTEND_SHARE

    async def _release(self, lender: Lender) -> None:
        try:
            await lender.release_reservation(self.id)
        except HoldbeatError as error:
            # Taken away meanwhile, or the lender is out of reach: then the slot ends by its time.
            self._loss = self._loss or error.detail


def remote_slot(url: str, key: str | None, resource: str, *, ttl_s: float, wait_s: float | None) -> SlotLoan:
    """A slot that a server lends."""
    from holdbeat.client.async_client import AsyncClient

    return SlotLoan(lambda: AsyncClient(url, key=key), resource, ttl_s=ttl_s, wait_s=wait_s)
