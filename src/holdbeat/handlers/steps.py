"""Steps of one run: which are kept, which are open, and how they are called and kept.

Guards STEP-01 and STEP-02 in the handler's process: a kept step is not called again, a name belongs to one open step at
a time, and a value is on disk before the handler sees it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import FunctionType
from typing import Any, NoReturn, Protocol

from holdbeat.domain.bounds import Duration, duration_s
from holdbeat.domain.clock import Clock
from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.steps import RESERVED, check_step_name, numbered
from holdbeat.domain.waits import Wait
from holdbeat.handlers.outcome import step_value
from holdbeat.handlers.threads import in_own_thread
from holdbeat.handlers.waits import Suspended

Request = dict[str, Any]
"""What a handler asks of the store, as JSON: `do` says what, the other members are its arguments."""


class Keeper(Protocol):
    """Keeps the results of a run for its chain. Requests and replies are JSON, because some cross a pipe.

    Raises Cancelled if the run has lost its lease.
    """

    def ask(self, request: Request) -> Any:
        """Blocks the calling thread until the store has answered."""

    async def ask_async(self, request: Request) -> Any:
        """The same for an event loop."""

    def keep(self, name: str, value: str, started_at: datetime, duration_s: float) -> str | None:
        """Keeps the value of a step, as JSON text. Returns the one that is kept if that is another, otherwise None."""

    async def keep_async(self, name: str, value: str, started_at: datetime, duration_s: float) -> str | None:
        """The same for an event loop."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a step is repeated inside its run."""

    retries: int = 0
    delay_s: float = 0.0
    timeout_s: float | None = None

    @staticmethod
    def taken_from(kwargs: dict[str, Any]) -> StepOptions:
        """Takes the options of the step out of the arguments of its function."""
        retries = kwargs.pop("retries", 0)
        delay: Duration = kwargs.pop("delay", 0)
        timeout: Duration | None = kwargs.pop("timeout", None)
        if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 1000:
            raise Invalid("retries of a step is a number from 0 to 1000.", code="out_of_range", field="retries")
        return StepOptions(
            retries,
            duration_s(delay, field="delay"),
            None if timeout is None else duration_s(timeout, field="timeout"),
        )


ONCE = StepOptions()
_TURNS_TO_GO_ON = 10
"""Of the event loop: enough for the end of a step or wait to reach a handler through a few tasks."""
_STEPS_AROUND: ContextVar[tuple[str, ...]] = ContextVar("holdbeat_steps_around", default=())
"""The steps inside whose functions a task of an async handler is."""


class Steps:
    """The steps of one run. Every thread and task of the handler may use it."""

    def __init__(
        self,
        keeper: Keeper | None,
        clock: Clock,
        shown: Callable[[], MutableMapping[str, datetime]],
        *,
        is_first: bool,
    ) -> None:
        """Without a keeper, as in a direct request, steps run and are not kept. The first job of a chain has no kept
        steps, so they are not read. `shown` makes the mapping of open steps that others see."""
        self._keeper = keeper
        self._clock = clock
        self._make_shown = shown
        self._shown: MutableMapping[str, datetime] = {}
        """The open steps, by key, and when they began; made when the first one begins."""
        self._is_any_shown = False
        self._failed: set[str] = set()
        """The steps that raised, and are shown as open: the run may be about to fail in them."""
        self._kept: dict[str, str] | None = {} if is_first or keeper is None else None
        self._lock = threading.Lock()
        self._open: set[str] = set()
        self._used: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._waits: list[Wait] = []
        self._is_suspended = False
        self._ended: asyncio.Event | None = None
        """Set when a step ends, or a wait has its answer, where waits of the same event loop wait for that."""
        self._waiting: set[str] = set()
        """The open steps whose functions wait themselves: they end with the run, so no wait waits for them."""
        self._in_progress = 0
        """How many waits have asked the store how they stand and have no answer yet, or sleep in place."""
        self._ended_count = 0
        """How often something has ended for which a wait would have waited."""

    def begin(self, name: str) -> str:
        """The key of this use of the name. After the run was suspended it begins nothing any more."""
        with self._lock:
            if self._is_suspended:
                raise Suspended(self._waits)
            if name in self._open:
                raise Conflict(
                    f"Two steps named {name!r} are open at once, and a later attempt could not tell them apart. Give "
                    "each its own name, such as one with the number of its item.",
                    code="step_open",
                    step=name,
                )
            self._open.add(name)
            return self._key(name)

    def end(self, name: str) -> None:
        with self._lock:
            self._open.discard(name)
        self._note_end()

    def number(self, name: str) -> str:
        """The key of a use of the name that need not end before the next begins."""
        with self._lock:
            if self._is_suspended:
                raise Suspended(self._waits)
            return self._key(name)

    def _key(self, name: str) -> str:
        used = self._used
        if name not in used:
            used[name] = 1
            return name
        used[name] += 1
        return numbered(name, used[name])

    def load(self) -> dict[str, str]:
        """The kept results of the chain, read when they are first needed."""
        if self._kept is None:
            assert self._keeper is not None
            self._kept = self._keeper.ask({"do": "kept"})
        return self._kept

    async def load_async(self) -> dict[str, str]:
        if self._kept is None:
            assert self._keeper is not None
            self._kept = await self._keeper.ask_async({"do": "kept"})
        return self._kept

    # --- waits ------------------------------------------------------------------------------------------

    def kept_wait(self, key: str) -> dict[str, Any] | None:
        """How a wait stands that began in an earlier run."""
        text = (self._kept or {}).get(key)
        return None if text is None else json.loads(text)

    def signals_taken(self, name: str) -> int:
        return self._taken.get(name, 0)

    def take_signal(self, name: str) -> None:
        self._taken[name] = self._taken.get(name, 0) + 1

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """Around a wait that is still open: its request to the store, or a sleep in place."""
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1
            self._note_end()

    def suspend(self, wait: Wait) -> NoReturn:
        """Ends the run for a wait; the waits of other tasks and threads are noted with it."""
        self._waits.append(wait)
        raise self._suspended()

    async def suspend_async(self, wait: Wait) -> NoReturn:
        """`suspend`, once the handler does nothing else. If it cancels the wait before, the run goes on without it."""
        self._waits.append(wait)
        task = asyncio.current_task()
        assert task is not None
        # A handler that waits for the first of its tasks does not ask how the others ended; the loop would log that.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await self._nothing_in_progress()
        except BaseException:
            if not self._is_suspended:
                self._waits.remove(wait)
                self._note_end()
            raise
        raise self._suspended()

    def _suspended(self) -> Suspended:
        with self._lock:
            self._is_suspended = True
            return Suspended(self._waits)

    async def _nothing_in_progress(self) -> None:
        """Waits for the steps that are open beside a wait, and for the waits that have no answer yet.

        What those steps did, and what those waits wait for, would be lost with the run. A handler that waits for the
        first of several may be about to end, or to go on: it gets some turns after each that has ended.
        """
        if around := _STEPS_AROUND.get():
            self._waiting.update(around)
            self._note_end()
        seen = None
        while seen != self._ended_count:
            seen = self._ended_count
            for _ in range(_TURNS_TO_GO_ON):
                await asyncio.sleep(0)
            while self._in_progress or any(
                not name.startswith(RESERVED) and name not in self._waiting for name in self._open
            ):
                if self._ended is None or self._ended.is_set():
                    self._ended = asyncio.Event()
                await self._ended.wait()

    def _note_end(self) -> None:
        self._ended_count += 1
        if self._ended is not None:
            self._ended.set()

    @property
    def waits_of_suspension(self) -> list[Wait] | None:
        """What the run waits for if it was suspended, whatever its handler made of that."""
        return self._waits if self._is_suspended else None

    # --- in a thread or a process -----------------------------------------------------------------------

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        wait: Callable[[float], None],
    ) -> Any:
        """The kept value, or that of the call once it is kept. `wait` sleeps and raises if the run shall end.

        The options of the step are taken out of `kwargs`.
        """
        options = StepOptions.taken_from(kwargs) if kwargs else ONCE
        key = self.begin(check_step_name(name))
        try:
            kept = self.load()
            if key in kept:
                return json.loads(kept[key])
            if options.timeout_s is not None:
                raise _no_timeout(name)
            call = partial(function, *args, **kwargs)
            if self._keeper is None:
                return step_value(name, self._repeated(call, options, wait))[0]
            began = self._show(key)
            try:
                started = self._clock.monotonic()
                value, text = step_value(name, self._repeated(call, options, wait))
                earlier = self._keeper.keep(key, text, began, self._clock.monotonic() - started)
            except BaseException:
                self._failed.add(key)
                raise
            del self._shown[key]
            return value if earlier is None else json.loads(earlier)
        finally:
            self.end(name)

    @staticmethod
    def _repeated(call: Callable[[], Any], options: StepOptions, wait: Callable[[float], None]) -> Any:
        for left in range(options.retries, -1, -1):
            try:
                return call()
            except Exception:
                if not left:
                    raise
            wait(options.delay_s)
        raise AssertionError

    # --- in an event loop -------------------------------------------------------------------------------

    async def run_async(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`run` for an event loop; a plain function is called in a thread of its own."""
        options = StepOptions.taken_from(kwargs) if kwargs else ONCE
        key = self.begin(check_step_name(name))
        around = _STEPS_AROUND.set((*_STEPS_AROUND.get(), name))
        try:
            kept = self._kept if self._kept is not None else await self.load_async()
            if key in kept:
                return json.loads(kept[key])
            is_async = is_async_function(function)
            if options.timeout_s is not None and not is_async:
                raise _no_timeout(name)
            keeper = self._keeper
            if keeper is not None:
                began = self._show(key)
            try:
                started = self._clock.monotonic()
                if is_async and options is ONCE:
                    result = await function(*args, **kwargs)
                else:
                    result = await _repeated_async(name, partial(function, *args, **kwargs), options, is_async)
                value, text = step_value(name, result)
                if keeper is None:
                    return value
                earlier = await keeper.keep_async(key, text, began, self._clock.monotonic() - started)
            except BaseException:
                self._failed.add(key)
                raise
            del self._shown[key]
            return value if earlier is None else json.loads(earlier)
        finally:
            _STEPS_AROUND.reset(around)
            self.end(name)

    def _show(self, key: str) -> datetime:
        """Shows a step as open. One that raised stays open until the handler begins another."""
        if not self._is_any_shown:
            with self._lock:
                if not self._is_any_shown:
                    self._shown, self._is_any_shown = self._make_shown(), True
        if self._failed:
            with self._lock:
                failed, self._failed = self._failed, set()
            for name in failed:
                del self._shown[name]
        began = self._shown[key] = self._clock.now()
        return began


def is_async_function(function: Callable[..., Any]) -> bool:
    """Whether a call of it must be awaited, as far as can be told without the call."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    inner = function
    while isinstance(getattr(inner, "func", None), Callable):  # type: ignore[arg-type]
        inner = inner.func  # type: ignore[attr-defined]
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


async def _repeated_async(name: str, call: Callable[[], Any], options: StepOptions, is_async: bool) -> Any:
    for left in range(options.retries, -1, -1):
        try:
            if not is_async:
                return await _in_thread(name, call)
            async with asyncio.timeout(options.timeout_s):
                return await call()
        except Exception:
            if not left:
                raise
        await asyncio.sleep(options.delay_s)
    raise AssertionError


async def _in_thread(name: str, call: Callable[[], Any]) -> Any:
    """Calls a plain function in a thread. It cannot be stopped: a task that is cancelled waits for its end."""
    ended = asyncio.ensure_future(in_own_thread(call, name=f"step-{name}"))
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.wait([ended])
        if not ended.cancelled():
            ended.exception()
        raise


def _no_timeout(name: str) -> Invalid:
    return Invalid(
        f"The step {name!r} calls a plain function, which cannot be stopped at a timeout. Give the timeout to what it "
        "calls, or make it an async function.",
        code="step_timeout",
        field="timeout",
    )
