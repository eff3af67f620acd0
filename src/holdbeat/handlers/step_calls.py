"""How handlers call steps: awaited in async handlers, plainly in threads and processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdbeat.domain.bounds import Duration
from holdbeat.domain.clock import Clock
from holdbeat.domain.job import Job
from holdbeat.handlers.stop import StopSignal

if TYPE_CHECKING:
    from holdbeat.domain.waits import Wait
    from holdbeat.handlers.steps import Keeper, Steps

P = ParamSpec("P")
T = TypeVar("T")


class StepState:
    """The attributes of the Context that both kinds of calls need."""

    job: Job | None
    keeper: Keeper | None
    _clock: Clock
    _stop: StopSignal
    suspend_s: float

    def checkpoint(self) -> None:
        raise NotImplementedError

    def open_steps(self) -> MutableMapping[str, datetime]:
        raise NotImplementedError

    @property
    def _steps(self) -> Steps:
        """Made at the first step: a run without steps pays nothing for them."""
        steps: Steps | None = self.__dict__.get("_steps_of_run")
        if steps is not None:
            return steps
        from holdbeat.handlers.steps import Steps as Kept

        is_first = self.job is None or self.job.retry_of is None
        steps = Kept(self.keeper, self._clock, self.open_steps, is_first=is_first)
        kept_steps: Steps = self.__dict__.setdefault("_steps_of_run", steps)
        return kept_steps

    @property
    def waits_of_suspension(self) -> list[Wait] | None:
        """What the run waits for if it was suspended, whatever its handler made of that."""
        steps: Steps | None = self.__dict__.get("_steps_of_run")
        return None if steps is None else steps.waits_of_suspension


class StepCalls(StepState):
    """Steps in async handlers."""

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        retries: int,
        delay: Duration = 0,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        retries: int,
        delay: Duration = 0,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, timeout: Duration, **kwargs: Any
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self, name: str, function: Callable[..., T], /, *args: Any, timeout: Duration, **kwargs: Any
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...
    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Calls the function at most once to its end in the whole chain, and returns its value as JSON has it.

        The value is on disk before it is returned: a later attempt gets it and does not call. If the function raises,
        nothing is kept; `retries` and `delay` repeat it within this run, `timeout` ends an async one.
        """
        if self._stop.is_set:
            self.checkpoint()
        return self._steps.run_async(name, function, args, kwargs)


class PlainStepCalls(StepState):
    """Steps in threads and processes."""

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        retries: int,
        delay: Duration = 0,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    def step(self, name: str, function: Callable[..., T], /, *args: Any, timeout: Duration, **kwargs: Any) -> T: ...
    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As `Context.step`, without await. A plain function cannot be ended by a `timeout`."""
        self.checkpoint()
        return self._steps.run(name, function, args, kwargs, self._pause)

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)
        self.checkpoint()
