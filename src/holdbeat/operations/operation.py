"""How an operation is declared and run, in a program with an event loop or without."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdbeat.operations.kept_kinds import KeptKinds

if TYPE_CHECKING:
    from holdbeat.domain.address import OutboundPolicy
    from holdbeat.store.adapter import PersistenceAdapter
    from holdbeat.store.transaction import Transaction

Mode = Literal["read", "write", "steps"]


@dataclass(slots=True)
class OperationContext:
    """The caller, and the parts of the deployment that an answer depends on.

    Nothing changes it. It is not frozen, because a frozen object takes three times as long to make, for each request.
    """

    caller: str | None
    """Who it is, for the record: the name of the key, or the person at the command line."""
    is_admin: bool
    """Whether shell jobs and secrets are allowed (SEC-05)."""
    outbound_policy: Callable[[Transaction], OutboundPolicy]
    """Which addresses this deployment calls (SEC-04)."""
    strict_policy: OutboundPolicy | None = None
    """On an exposed server: calls that it refuses are refused when they are submitted."""
    traceparent: str | None = None
    """The trace that a submitted job continues."""
    kinds: KeptKinds = field(default_factory=KeptKinds, repr=False)
    """The kinds of jobs that were submitted to this store before."""


class Step(NamedTuple):
    """One transaction of an operation in several steps."""

    verb: Callable[..., Any]
    args: tuple[Any, ...]
    read_only: bool = False


class Written:
    """The answer to a submission, which is JSON already."""

    __slots__ = ("id", "is_new", "text")

    def __init__(self, text: str, id: str | None = None, *, is_new: bool = True) -> None:
        self.text = text
        self.id = id
        """The id of the job, if the answer has one job."""
        self.is_new = is_new
        """Whether a job was created."""

    def read(self) -> Any:
        """The answer as a value."""
        return json.loads(self.text)


Steps = Generator[Step | None, Any, Any]
"""The transactions of an operation; None where the other requests of the event loop may go on for a moment."""


class Operation:
    """A function of a transaction, a context and plain arguments that returns the JSON answer.

    An operation of the mode `steps` is a generator without a transaction: it yields Steps. Submitting needs that: the
    store merges the waiting submissions of many clients into one commit, and reads and renders none of them while the
    others wait.
    """

    def __init__(self, function: Callable[..., Any], mode: Mode, extra: tuple[Any, ...] = ()) -> None:
        self._function = function
        self._extra = extra
        self.mode = mode
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def bound(self, *extra: Any, name: str, doc: str) -> Operation:
        """The same with further leading arguments."""
        operation = Operation(self._function, self.mode, extra)
        operation.__name__, operation.__doc__ = name, doc
        return operation

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The plain arguments: those of the client's method."""
        leading = len(self._extra) + (1 if self.mode == "steps" else 2)
        every = list(inspect.signature(self._function).parameters.items())
        return dict(every[leading:])

    def __call__(self, tx: Transaction, context: OperationContext, *args: Any, **kwargs: Any) -> Any:
        """Runs within the caller's transaction."""
        return self._function(tx, context, *self._extra, *args, **kwargs)

    def _act(self, tx: Transaction, context: OperationContext, *args: Any, **kwargs: Any) -> Any:
        """Runs in the name of the caller: all Events that it records name that caller (AUD-01)."""
        tx.actor = context.caller
        try:
            return self(tx, context, *args, **kwargs)
        finally:
            tx.actor = None

    async def run(self, store: PersistenceAdapter, context: OperationContext, *args: Any, **kwargs: Any) -> Any:
        """Runs in a transaction of its own. What it answers may be `Written`."""
        if self.mode == "read":
            return await store.read_for_client(self._function, context, *self._extra, *args, **kwargs)
        if self.mode == "write":
            return await store.write(self._act, context, *args, **kwargs)
        steps: Steps = self._function(context, *args, **kwargs)
        result = None
        try:
            while True:
                step = steps.send(result)
                if step is None:
                    await _yield_to_loop()
                    continue
                run = store.read if step.read_only else store.write
                result = await run(step.verb, *step.args)
        except StopIteration as end:
            return end.value

    def run_sync(self, store: PersistenceAdapter, context: OperationContext, *args: Any, **kwargs: Any) -> Any:
        """`run` for programs without an event loop."""
        if self.mode == "read":
            return store.read_sync(self._function, context, *self._extra, *args, **kwargs)
        if self.mode == "write":
            return store.write_sync(self._act, context, *args, **kwargs)
        steps: Steps = self._function(context, *args, **kwargs)
        result = None
        try:
            while True:
                step = steps.send(result)
                if step is None:
                    continue
                run = store.read_sync if step.read_only else store.write_sync
                result = run(step.verb, *step.args)
        except StopIteration as end:
            return end.value.read() if isinstance(end.value, Written) else end.value


async def _yield_to_loop() -> None:
    # A command that reads a store need not wait for this import.
    import asyncio

    await asyncio.sleep(0)


def reads(function: Callable[..., Any]) -> Operation:
    """Declares an operation that only reads."""
    return Operation(function, "read")


def writes(function: Callable[..., Any]) -> Operation:
    """Declares an operation that is one transaction."""
    return Operation(function, "write")


def in_steps(function: Callable[..., Steps]) -> Operation:
    """Declares an operation that yields its transactions."""
    return Operation(function, "steps")
