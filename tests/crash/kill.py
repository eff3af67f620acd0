"""Death at a chosen step of the storage: SIGKILL before, in the middle of, or after the n-th one.

For SQLite the steps are the writes, syncs, truncations and deletions of its file layer; for PostgreSQL the exchanges
on the wire. Nothing of Holdbeat is replaced: the file layer and the driver underneath it are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any, Literal

import apsw

Where = Literal["before", "middle", "after"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


class Countdown:
    """Counts steps, and ends the process at the n-th; 0 only counts."""

    def __init__(self, at: int, where: Where = "before") -> None:
        self.count = 0
        self.where: Where = where
        self._at = at
        self._lock = threading.Lock()

    def is_now(self) -> bool:
        with self._lock:
            self.count += 1
            return self.count == self._at


class _File(apsw.VFSFile):
    def __init__(self, countdown: Countdown, base: str, filename: Any, flags: list[int]) -> None:
        super().__init__(base, filename, flags)
        self._countdown = countdown

    def xWrite(self, data: bytes, offset: int) -> None:
        if not self._countdown.is_now():
            return super().xWrite(data, offset)
        if self._countdown.where == "middle":
            super().xWrite(data[: len(data) // 2], offset)
        elif self._countdown.where == "after":
            super().xWrite(data, offset)
        return die()

    def xSync(self, flags: int) -> None:
        if self._countdown.is_now():
            if self._countdown.where == "after":
                super().xSync(flags)
            die()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        if self._countdown.is_now():
            if self._countdown.where == "after":
                super().xTruncate(size)
            die()
        super().xTruncate(size)


class DeadlyFiles(apsw.VFS):
    """SQLite's own file layer, with a countdown."""

    def __init__(self, countdown: Countdown) -> None:
        self._countdown = countdown
        self._base = apsw.vfs_names()[0]
        super().__init__("deadly", self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._countdown, self._base, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        if self._countdown.is_now():
            if self._countdown.where == "after":
                super().xDelete(name, sync)
            die()
        super().xDelete(name, sync)


def arm_wire(countdown: Countdown) -> None:
    """Lets every exchange with PostgreSQL count."""
    import psycopg

    from holdbeat.store.postgres.loop_link import LoopLink
    from holdbeat.store.postgres.pipeline import StatementPipeline

    exchange = psycopg.Connection.wait

    def counted(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if not countdown.is_now():
            return exchange(self, generator, *args, **kwargs)
        if countdown.where == "middle":
            # What is to be sent goes out; nobody reads the answer.
            with contextlib.suppress(Exception):
                next(generator)
                generator.send(psycopg.waiting.Ready.W)
        elif countdown.where == "after":
            exchange(self, generator, *args, **kwargs)
        return die()

    psycopg.Connection.wait = counted  # type: ignore[method-assign,assignment]
    synchronise = StatementPipeline.sync

    def counted_sync(self: StatementPipeline) -> None:
        if not countdown.is_now():
            return synchronise(self)
        if countdown.where == "middle":
            self.send_sync()
            self.flush()
        elif countdown.where == "after":
            synchronise(self)
        return die()

    StatementPipeline.sync = counted_sync  # type: ignore[method-assign]
    begin = LoopLink.begin

    def counted_begin(
        self: LoopLink, loop: Any, sql: str, params: Any, ended: Any, *, notice: Any = None, idle_loop: Any = None
    ) -> None:
        if not countdown.is_now():
            return begin(self, loop, sql, params, ended, notice=notice, idle_loop=idle_loop)
        if countdown.where == "middle":
            begin(self, loop, sql, params, ended, notice=notice)
        elif countdown.where == "after":
            return begin(self, loop, sql, params, lambda _: die(), notice=notice)
        return die()

    LoopLink.begin = counted_begin  # type: ignore[method-assign]


def arm(url: str, countdown: Countdown) -> object:
    """Starts the countdown in this process; the returned object must be kept."""
    if url.startswith("sqlite"):
        return DeadlyFiles(countdown)
    arm_wire(countdown)
    return countdown
