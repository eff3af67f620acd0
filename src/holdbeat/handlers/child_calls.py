"""How handlers make children: `ctx.enqueue` hands a job over, `ctx.run` waits for its result without holding a slot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.handlers.step_calls import StepState
from holdbeat.handlers.to_json import as_params

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
