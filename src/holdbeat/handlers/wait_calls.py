"""How handlers sleep, wait, ask people and make children: awaited in async handlers, plainly in threads and processes.

A wait below `suspend_s` happens in place. A longer one ends the run: the handler is called again when it is over, its
kept steps are not, and it passes the wait.

Each call is written once, as a generator that yields what it needs next; a loop or a thread gets that for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdbeat.domain.bounds import Duration, check_instant, check_printable_name
from holdbeat.domain.clock import from_iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.waits import SLEEP, Wait, WaitKind, check_question, wait_s
from holdbeat.handlers.step_calls import StepState
from holdbeat.handlers.to_json import as_params
from holdbeat.handlers.waits import SignalTimeout

if TYPE_CHECKING:
    from holdbeat.handlers.steps import Request

SIGNAL = "$signal:"
QUESTION = "$ask:"
CHILD = "$child:"


Call = Generator["Request | float | Wait | None", Any, Any]
"""Yields a request to the store and is sent the reply, or yields None to have read what the chain has kept, the seconds
of a sleep, or the Wait for which the run ends."""


class ChildFailed(Exception):
    """The child that a handler waited for has ended otherwise than COMPLETED."""

    def __init__(self, job_id: str, status: str, error: str | None) -> None:
        super().__init__(f"The child {job_id} is {status}: {error or 'no reason was given'}")
        self.job_id = job_id
        """The first job of the child's chain."""
        self.status = status
        self.error = error


class WaitState(StepState):
    """The calls, without the waiting."""

    @property
    def remaining_s(self) -> float | None:
        raise NotImplementedError

    def _refuse_direct(self, why: str) -> None:
        if self.keeper is None:
            raise Invalid(f"{why} Submit it as a job.", code="direct_cannot_wait")

    def _sleep(self, delay_s: float | None, until: datetime | None) -> Call:
        self.checkpoint()
        steps = self._steps
        key = steps.number(SLEEP)
        yield None
        kept = steps.kept_wait(key)
        if kept is not None:
            until = from_iso(kept["until"])
        left_s = delay_s if until is None else (until - self._clock.now()).total_seconds()
        assert left_s is not None
        wait = Wait(WaitKind.SLEEP, key, until if kept is not None else None, left_s if kept is None else None)
        left_s = max(0.0, left_s)
        if self._sleeps_in_place(left_s):
            yield left_s
            return
        yield wait

    def _sleeps_in_place(self, left_s: float) -> bool:
        if self.keeper is not None:
            return left_s == 0 or left_s < self.suspend_s
        remaining_s = self.remaining_s
        if remaining_s is not None and left_s > remaining_s:
            self._refuse_direct(f"A direct request cannot sleep for {left_s:g} s: it has {remaining_s:g} s left.")
        return True

    def _wait_for(self, name: str, timeout: Duration | None) -> Call:
        self.checkpoint()
        check_printable_name(name, "signal")
        timeout_s = None if timeout is None else wait_s(timeout, "timeout")
        self._refuse_direct("A direct request cannot wait for a signal: nobody could send it one.")
        steps = self._steps
        key = steps.begin(SIGNAL + name)
        try:
            number = steps.signals_taken(name) + 1
            request = {"do": "signal", "key": key, "name": name, "number": number}
            standing = yield request
            if standing.get("is_due") or (timeout_s == 0 and standing.get("until", "") is None):
                standing = yield {**request, "do": "give_up"}
            if "timed_out" in standing:
                raise SignalTimeout(f"The signal {name!r} did not come in time.")
            if "until" not in standing:
                steps.take_signal(name)
                return standing["payload"]
            wait = Wait(WaitKind.SIGNAL, key, None, timeout_s, name, number)
            until = standing["until"]
            yield wait if until is None else replace(wait, until=from_iso(until), delay_s=None)
        finally:
            steps.end(SIGNAL + name)

    def _ask(self, question: str, choices: Sequence[Any] | None, schema: dict[str, Any] | None) -> Call:
        self.checkpoint()
        self._refuse_direct("A direct request cannot wait for a person.")
        check_question(question, choices, schema)
        offered = None if choices is None else list(choices)
        # Keyed by the question, not by its number: questions that are asked in parallel keep their answers.
        digest = hashlib.blake2b(dumps([question, offered, schema]).encode(), digest_size=8).hexdigest()
        key = self._steps.number(f"{QUESTION}{digest}")
        standing = yield {"do": "question", "key": key, "question": question, "choices": offered, "schema": schema}
        if standing["is_answered"]:
            return standing["answer"]
        yield Wait(WaitKind.QUESTION, key, name=standing["id"])

    def _child(self, target: Any, params: dict[str, Any], *, is_awaited: bool) -> Call:
        self.checkpoint()
        self._refuse_direct("A direct request has no children.")
        request = _request_of(target, params)
        is_detached = bool(request.pop("detached", False))
        # Keyed by the request, not by its number: children that are made in parallel keep their keys over retries.
        digest = hashlib.blake2b(dumps(request).encode(), digest_size=8).hexdigest()
        key = self._steps.number(f"{CHILD}{request.get('type') or request.get('template')}:{digest}")
        job_id = yield {
            "do": "child", "key": key, "request": request, "is_detached": is_detached, "is_awaited": is_awaited,
        }  # fmt: skip
        if not is_awaited:
            return job_id
        standing = yield {"do": "child_state", "job_id": job_id}
        if standing["is_over"]:
            if standing["status"] != "COMPLETED":
                raise ChildFailed(job_id, standing["status"], standing["error"])
            return standing["result"]
        yield Wait(WaitKind.CHILD, key, name=job_id)


class WaitCalls(WaitState):
    """Waits in async handlers."""

    async def sleep(self, duration: Duration) -> None:
        """Sleeps without holding a slot, over restarts too. The instant is kept when the handler first comes here."""
        await self._awaited(self._sleep(wait_s(duration), None))

    async def sleep_until(self, at: datetime) -> None:
        """Sleeps until an instant, as `sleep` does."""
        await self._awaited(self._sleep(None, _aware(at)))

    async def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """The payload of the next signal of this name, without holding a slot meanwhile.

        A signal that was sent before counts. Raises SignalTimeout if none comes in time.
        """
        return await self._awaited(self._wait_for(name, timeout))

    async def ask(
        self, question: str, choices: Sequence[Any] | None = None, schema: dict[str, Any] | None = None
    ) -> Any:
        """Asks people, and returns the answer; no slot is held meanwhile.

        The dashboard, `holdbeat questions` and `GET /api/questions` list the question. The answer is one of `choices`,
        or fits the JSON Schema `schema`; without either it is any JSON.
        """
        return await self._awaited(self._ask(question, choices, schema))

    async def enqueue(self, target: Any, /, **params: Any) -> str:
        """Submits a child once in the whole chain, and returns its id.

        `target` is a job type, by its function or its name, or `app.with_options(…).call(…)`. If this job is cancelled,
        its unfinished children are, unless they were made with `detached=True`.
        """
        job_id: str = await self._awaited(self._child(target, params, is_awaited=False))
        return job_id

    async def run(self, target: Any, /, **params: Any) -> Any:
        """Submits a child once in the whole chain, and returns its result when it has ended; no slot is held meanwhile.

        Raises ChildFailed if it ended otherwise than COMPLETED, retries included.
        """
        return await self._awaited(self._child(target, params, is_awaited=True))

    async def _awaited(self, call: Call) -> Any:
        steps, reply = self._steps, None
        try:
            while True:
                need = call.send(reply)
                reply = None
                if isinstance(need, dict):
                    assert self.keeper is not None
                    with steps.in_progress():
                        reply = await self.keeper.ask_async(need)
                elif need is None:
                    with steps.in_progress():
                        await steps.load_async()
                elif isinstance(need, Wait):
                    await steps.suspend_async(need)
                elif need:
                    import asyncio  # here, because the processes of most runs need none

                    with steps.in_progress():
                        await asyncio.sleep(need)
        except StopIteration as end:
            return end.value
        finally:
            call.close()


class PlainWaitCalls(WaitState):
    """Waits in threads and processes."""

    def sleep(self, duration: Duration) -> None:
        """As `Context.sleep`, without await."""
        self._called(self._sleep(wait_s(duration), None))

    def sleep_until(self, at: datetime) -> None:
        """As `Context.sleep_until`, without await."""
        self._called(self._sleep(None, _aware(at)))

    def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """As `Context.wait_for`, without await."""
        return self._called(self._wait_for(name, timeout))

    def ask(self, question: str, choices: Sequence[Any] | None = None, schema: dict[str, Any] | None = None) -> Any:
        """As `Context.ask`, without await."""
        return self._called(self._ask(question, choices, schema))

    def enqueue(self, target: Any, /, **params: Any) -> str:
        """As `Context.enqueue`, without await."""
        job_id: str = self._called(self._child(target, params, is_awaited=False))
        return job_id

    def run(self, target: Any, /, **params: Any) -> Any:
        """As `Context.run`, without await."""
        return self._called(self._child(target, params, is_awaited=True))

    def _called(self, call: Call) -> Any:
        steps, reply = self._steps, None
        try:
            while True:
                need = call.send(reply)
                reply = None
                if isinstance(need, dict):
                    assert self.keeper is not None
                    reply = self.keeper.ask(need)
                elif need is None:
                    steps.load()
                elif isinstance(need, Wait):
                    steps.suspend(need)
                else:
                    self._stop.wait(need)
                    self.checkpoint()
        except StopIteration as end:
            return end.value
        finally:
            call.close()


def _aware(at: datetime) -> datetime:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise Invalid("sleep_until needs an instant with a time zone, such as datetime.now(UTC).", field="at")
    return check_instant(at, "at")


_names: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def name_function(function: Callable[..., Any], type_name: str) -> None:
    """Lets handlers name a job type by its function."""
    _names[function] = type_name


def _request_of(target: Any, params: dict[str, Any]) -> dict[str, Any]:
    as_request = getattr(target, "as_request", None)
    if as_request is not None:
        if params:
            raise Invalid("Give the params to app.call, not to both.", code="invalid_params", field="params")
        request: dict[str, Any] = as_request()
        return request
    name = target if isinstance(target, str) else _names.get(target)
    if name is None:
        raise Invalid(
            f"{getattr(target, '__name__', target)!s} is not a job type. Decorate it with @app.job.",
            code="unknown_type",
            field="type",
        )
    return {"type": name, "params": as_params(params)}
