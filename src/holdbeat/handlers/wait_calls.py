"""How handlers sleep, wait, ask people and make children: awaited in async handlers, plainly in threads and processes.

A wait below `suspend_s` happens in place. A longer one ends the run: the handler is called again when it is over, its
kept steps are not, and it passes the wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdbeat.domain.bounds import Duration, check_instant
from holdbeat.domain.clock import from_iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.waits import SLEEP, Wait, WaitKind, check_question, check_signal_name, wait_s
from holdbeat.handlers.step_calls import StepState
from holdbeat.handlers.to_json import as_params
from holdbeat.handlers.waits import SignalTimeout

if TYPE_CHECKING:
    from holdbeat.handlers.steps import Request

SIGNAL = "$signal:"


class WaitState(StepState):
    """What both kinds of calls share: the decisions, without the waiting."""

    @property
    def remaining_s(self) -> float | None:
        raise NotImplementedError

    def _sleep_of(self, key: str, delay_s: float | None, until: datetime | None) -> tuple[float, Wait]:
        """How long is left to sleep, and the wait that ends the run if that is long."""
        kept = self._steps.kept_wait(key)
        if kept is not None:
            until = from_iso(kept["until"])
        left_s = delay_s if until is None else (until - self._clock.now()).total_seconds()
        assert left_s is not None
        wait = Wait(WaitKind.SLEEP, key, until if kept is not None else None, left_s if kept is None else None)
        return max(0.0, left_s), wait

    def _sleeps_in_place(self, left_s: float) -> bool:
        if self._keeper is not None:
            return left_s == 0 or left_s < self._suspend_s
        remaining_s = self.remaining_s
        if remaining_s is not None and left_s > remaining_s:
            raise Invalid(
                f"A direct request cannot sleep for {left_s:g} s: it has {remaining_s:g} s left. Submit it as a job.",
                code="direct_cannot_wait",
            )
        return True

    def _wait_of(self, name: str, timeout: Duration | None) -> tuple[Wait, Request]:
        """The wait for the next signal of a name, and what to ask of the store."""
        check_signal_name(name)
        timeout_s = None if timeout is None else wait_s(timeout, "timeout")
        if self._keeper is None:
            raise Invalid(
                "A direct request cannot wait for a signal: nobody could send it one. Submit it as a job.",
                code="direct_cannot_wait",
            )
        steps = self._steps
        key = steps.begin(SIGNAL + name)
        number = steps.signals_taken(name) + 1
        wait = Wait(WaitKind.SIGNAL, key, None, timeout_s, name, number)
        return wait, {"do": "signal", "key": key, "name": name, "number": number}

    @staticmethod
    def _must_give_up(wait: Wait, standing: dict[str, Any]) -> bool:
        return bool(standing.get("is_due")) or (wait.delay_s == 0 and standing.get("until", "") is None)

    def _answered(self, wait: Wait, standing: dict[str, Any]) -> Any:
        """The payload, if there is one."""
        assert wait.name is not None
        if "timed_out" in standing:
            raise SignalTimeout(f"The signal {wait.name!r} did not come in time.")
        self._steps.take_signal(wait.name)
        return standing["payload"]

    @staticmethod
    def _as_kept(wait: Wait, standing: dict[str, Any]) -> Wait:
        """The wait with the instant that was kept when it began."""
        until = standing["until"]
        return wait if until is None else replace(wait, until=from_iso(until), delay_s=None)


class WaitCalls(WaitState):
    """Waits in async handlers."""

    async def sleep(self, duration: Duration) -> None:
        """Sleeps without holding a slot, over restarts too. The instant is kept when the handler first comes here."""
        await self._sleep(wait_s(duration), None)

    async def sleep_until(self, at: datetime) -> None:
        """Sleeps until an instant, as `sleep` does."""
        await self._sleep(None, _aware(at))

    async def _sleep(self, delay_s: float | None, until: datetime | None) -> None:
        self.checkpoint()
        steps = self._steps
        key = steps.number(SLEEP)
        await steps.load_async()
        left_s, wait = self._sleep_of(key, delay_s, until)
        if self._sleeps_in_place(left_s):
            if left_s:
                import asyncio  # here, because the processes of most runs need none

                await asyncio.sleep(left_s)
            return
        steps.add_wait(wait)
        await steps.others_ended()
        raise steps.suspended()

    async def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """The payload of the next signal of this name, without holding a slot meanwhile.

        A signal that was sent before counts. Raises SignalTimeout if none comes in time.
        """
        self.checkpoint()
        wait, request = self._wait_of(name, timeout)
        steps = self._steps
        assert self._keeper is not None
        try:
            standing = await self._keeper.ask_async(request)
            if self._must_give_up(wait, standing):
                standing = await self._keeper.ask_async({**request, "do": "give_up"})
            if "until" not in standing:
                return self._answered(wait, standing)
            steps.add_wait(self._as_kept(wait, standing))
            await steps.others_ended()
            raise steps.suspended()
        finally:
            steps.end(SIGNAL + name)


class PlainWaitCalls(WaitState):
    """Waits in threads and processes."""

    def sleep(self, duration: Duration) -> None:
        """As `Context.sleep`, without await."""
        self._sleep(wait_s(duration), None)

    def sleep_until(self, at: datetime) -> None:
        """As `Context.sleep_until`, without await."""
        self._sleep(None, _aware(at))

    def _sleep(self, delay_s: float | None, until: datetime | None) -> None:
        self.checkpoint()
        steps = self._steps
        key = steps.number(SLEEP)
        steps.load()
        left_s, wait = self._sleep_of(key, delay_s, until)
        if self._sleeps_in_place(left_s):
            self._stop.wait(left_s)
            self.checkpoint()
            return
        steps.add_wait(wait)
        raise steps.suspended()

    def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """As `Context.wait_for`, without await."""
        self.checkpoint()
        wait, request = self._wait_of(name, timeout)
        steps = self._steps
        assert self._keeper is not None
        try:
            standing = self._keeper.ask(request)
            if self._must_give_up(wait, standing):
                standing = self._keeper.ask({**request, "do": "give_up"})
            if "until" not in standing:
                return self._answered(wait, standing)
            steps.add_wait(self._as_kept(wait, standing))
            raise steps.suspended()
        finally:
            steps.end(SIGNAL + name)


def _aware(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise Invalid("sleep_until needs an instant with a time zone, such as datetime.now(UTC).", field="at")
    return check_instant(at, "at")


QUESTION = "$ask:"


class QuestionState(StepState):
    """What both kinds of calls share."""

    def _question(self, question: str, choices: Sequence[Any] | None, schema: dict[str, Any] | None) -> dict[str, Any]:
        if self._keeper is None:
            raise Invalid("A direct request cannot wait for a person. Submit it as a job.", code="direct_cannot_wait")
        check_question(question, choices, schema)
        offered = None if choices is None else list(choices)
        # By what is asked, not by its turn: questions that are asked in parallel keep their answers.
        digest = hashlib.blake2b(dumps([question, offered, schema]).encode(), digest_size=8).hexdigest()
        key = self._steps.number(f"{QUESTION}{digest}")
        return {"do": "question", "key": key, "question": question, "choices": offered, "schema": schema}

    def _wait(self, request: dict[str, Any], standing: dict[str, Any]) -> None:
        self._steps.add_wait(Wait(WaitKind.QUESTION, request["key"], name=standing["id"]))


class QuestionCalls(QuestionState):
    """Questions of async handlers."""

    async def ask(
        self, question: str, choices: Sequence[Any] | None = None, schema: dict[str, Any] | None = None
    ) -> Any:
        """Asks people, and returns the answer; no slot is held meanwhile.

        The dashboard, `holdbeat questions` and `GET /api/questions` list the question. The answer is one of `choices`,
        or fits the JSON Schema `schema`; without either it is any JSON.
        """
        self.checkpoint()
        request = self._question(question, choices, schema)
        assert self._keeper is not None
        standing = await self._keeper.ask_async(request)
        if standing["is_answered"]:
            return standing["answer"]
        self._wait(request, standing)
        await self._steps.others_ended()
        raise self._steps.suspended()


class PlainQuestionCalls(QuestionState):
    """Questions of handlers in threads and processes."""

    def ask(self, question: str, choices: Sequence[Any] | None = None, schema: dict[str, Any] | None = None) -> Any:
        """As `Context.ask`, without await."""
        self.checkpoint()
        request = self._question(question, choices, schema)
        assert self._keeper is not None
        standing = self._keeper.ask(request)
        if standing["is_answered"]:
            return standing["answer"]
        self._wait(request, standing)
        raise self._steps.suspended()


CHILD = "$child:"
_names: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def name_function(function: Callable[..., Any], type_name: str) -> None:
    """Lets handlers name a job type by its function."""
    _names[function] = type_name


class ChildFailed(Exception):
    """The child that a handler waited for has ended otherwise than COMPLETED."""

    def __init__(self, job_id: str, status: str, error: str | None) -> None:
        super().__init__(f"The child {job_id} is {status}: {error or 'no reason was given'}")
        self.job_id = job_id
        """The first job of the child's chain."""
        self.status = status
        self.error = error


class ChildState(StepState):
    """What both kinds of calls share."""

    def _child_request(self, target: Any, params: dict[str, Any], *, is_awaited: bool) -> dict[str, Any]:
        if self._keeper is None:
            raise Invalid("A direct request has no children. Submit it as a job.", code="direct_cannot_wait")
        request = _request_of(target, params)
        is_detached = bool(request.pop("detached", False))
        # By what it is, not by its turn: children that are made in parallel keep their places over retries.
        digest = hashlib.blake2b(dumps(request).encode(), digest_size=8).hexdigest()
        key = self._steps.number(f"{CHILD}{request.get('type') or request.get('template')}:{digest}")
        return {"do": "child", "key": key, "request": request, "is_detached": is_detached, "is_awaited": is_awaited}

    @staticmethod
    def _result(job_id: str, standing: dict[str, Any]) -> Any:
        if standing["status"] != "COMPLETED":
            raise ChildFailed(job_id, standing["status"], standing["error"])
        return standing["result"]

    @staticmethod
    def _wait_for_child(request: dict[str, Any], job_id: str) -> Wait:
        return Wait(WaitKind.CHILD, request["key"], name=job_id)


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


class ChildCalls(ChildState):
    """Children of async handlers."""

    async def enqueue(self, target: Any, /, **params: Any) -> str:
        """Submits a child once in the whole chain, and returns its id.

        `target` is a job type, by its function or its name, or `app.with_options(…).call(…)`. If this job is cancelled,
        its unfinished children are, unless they were made with `detached=True`.
        """
        self.checkpoint()
        request = self._child_request(target, params, is_awaited=False)
        assert self._keeper is not None
        job_id: str = await self._keeper.ask_async(request)
        return job_id

    async def run(self, target: Any, /, **params: Any) -> Any:
        """Submits a child once in the whole chain, and returns its result when it has ended; no slot is held meanwhile.

        Raises ChildFailed if it ended otherwise than COMPLETED, retries included.
        """
        self.checkpoint()
        request = self._child_request(target, params, is_awaited=True)
        assert self._keeper is not None
        job_id: str = await self._keeper.ask_async(request)
        standing = await self._keeper.ask_async({"do": "look", "job_id": job_id})
        if standing["is_over"]:
            return self._result(job_id, standing)
        steps = self._steps
        steps.add_wait(self._wait_for_child(request, job_id))
        await steps.others_ended()
        raise steps.suspended()


class PlainChildCalls(ChildState):
    """Children of handlers in threads and processes."""

    def enqueue(self, target: Any, /, **params: Any) -> str:
        """As `Context.enqueue`, without await."""
        self.checkpoint()
        request = self._child_request(target, params, is_awaited=False)
        assert self._keeper is not None
        job_id: str = self._keeper.ask(request)
        return job_id

    def run(self, target: Any, /, **params: Any) -> Any:
        """As `Context.run`, without await."""
        self.checkpoint()
        request = self._child_request(target, params, is_awaited=True)
        assert self._keeper is not None
        job_id: str = self._keeper.ask(request)
        standing = self._keeper.ask({"do": "look", "job_id": job_id})
        if standing["is_over"]:
            return self._result(job_id, standing)
        steps = self._steps
        steps.add_wait(self._wait_for_child(request, job_id))
        raise steps.suspended()
