"""Two or more callers at the same instant, and a transaction that is held open on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from holdbeat.store.work import Work

T = TypeVar("T")


def together(acts: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Runs the acts in threads that start at the same instant; what each returned or raised."""
    barrier = threading.Barrier(len(acts))
    results: list[Any] = [None] * len(acts)

    def run(index: int, act: Callable[[], T]) -> None:
        barrier.wait()
        try:
            results[index] = act()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_step(*queues: Sequence[Callable[[], T]]) -> list[list[T | Exception]]:
    """Runs the first act of each queue at the same instant, then the second of each, and so on: what each returned or
    raised."""
    barrier = threading.Barrier(len(queues))
    results: list[list[Any]] = [[] for _ in queues]

    def run(acts: Sequence[Callable[[], T]], kept: list[Any]) -> None:
        for act in acts:
            barrier.wait(60)
            try:
                kept.append(act())
            except Exception as error:
                kept.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(queues, results, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class HeldOpen:
    """A transaction that has done its work and waits with its commit until the test says so."""

    def __init__(self, store: PersistenceAdapter, verb: Callable[..., Any], *arguments: Any) -> None:
        self._go = threading.Event()
        self._done = threading.Event()
        work = Work(self._hold, (verb, arguments), {})
        assert work.future is not None
        self._future: Future[Any] = work.future
        store.submit(work, read_only=False)

    def _hold(self, tx: Transaction, verb: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        result = verb(tx, *arguments)
        # What travels together with later statements must have arrived.
        tx.rows("SELECT 1")
        self._done.set()
        assert self._go.wait(30)
        return result

    def __enter__(self) -> Self:
        assert self._done.wait(30), self._future
        return self

    def commit(self) -> Any:
        self._go.set()
        return self._future.result(30)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._go.set()
        self._future.exception(30)


def in_background(act: Callable[[], T]) -> Future[T]:
    """The act in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
