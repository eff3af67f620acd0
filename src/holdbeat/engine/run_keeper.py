"""The Keeper of one run: what its handler keeps for the chain goes into the store under the run's lease.

Guards LEASE-03 for steps: a run whose lease is gone is told to stop, and its handler ends at the step that was refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import from_iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import Job
from holdbeat.domain.lease import Lease
from holdbeat.handlers.context import Cancelled
from holdbeat.handlers.steps import Request
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.children import look_for_child
from holdbeat.store.durable.questions import Asked, ask_question
from holdbeat.store.durable.signals import SignalWait, give_up_waiting, look_for_signal
from holdbeat.store.durable.steps import LeaseGone, StepEntry, keep_step, kept_values
from holdbeat.store.jobs.children import ChildCall, make_child


class RunKeeper:
    """Called from whatever thread or event loop the handler uses."""

    __slots__ = ("_chain_id", "_job", "_lease", "_stop", "_store")

    def __init__(self, store: PersistenceAdapter, lease: Lease, job: Job, stop: StopSignal) -> None:
        self._store = store
        self._lease = lease
        self._job = job
        self._chain_id = job.chain_id
        self._stop = stop

    def ask(self, request: Request) -> Any:
        is_read, verb, argument, answer = self._verb(request)
        try:
            call = self._store.read_sync if is_read else self._store.write_sync
            return answer(call(verb, argument))
        except LeaseGone as error:
            raise self._stopped(error) from error

    async def ask_async(self, request: Request) -> Any:
        is_read, verb, argument, answer = self._verb(request)
        try:
            call = self._store.read if is_read else self._store.write
            return answer(await call(verb, argument))
        except LeaseGone as error:
            raise self._stopped(error) from error

    def keep(self, name: str, value: str, started_at: datetime, duration_s: float) -> str | None:
        try:
            earlier = self._store.write_sync(keep_step, self._step(name, value, started_at, duration_s))
        except LeaseGone as error:
            raise self._stopped(error) from error
        return None if earlier == value else earlier

    async def keep_async(self, name: str, value: str, started_at: datetime, duration_s: float) -> str | None:
        try:
            entry = self._step(name, value, started_at, duration_s)
            earlier = await self._store.insert(asyncio.get_running_loop(), keep_step, entry)
        except LeaseGone as error:
            raise self._stopped(error) from error
        return None if earlier == value else earlier

    def _step(self, name: str, value: str, started_at: datetime, duration_s: float) -> StepEntry:
        lease = self._lease
        return StepEntry(lease.id, lease.worker_id, lease.fence, self._chain_id, name, value, started_at, duration_s)

    def _stopped(self, error: LeaseGone) -> Cancelled:
        self._stop.set(StopReason.LOST)
        return Cancelled(str(error))

    def _verb(self, request: Request) -> tuple[bool, Any, Any, Callable[[Any], Any]]:
        """Whether it only reads, the verb of the store with its argument, and what its result means to the handler."""
        match request["do"]:
            case "kept":
                return True, kept_values, self._chain_id, _as_it_is
            case "keep":
                text = request["value"]
                entry = self._step(request["name"], text, from_iso(request["started_at"]), request["duration_s"])
                return False, keep_step, entry, lambda kept: None if kept == text else kept
            case "signal":
                return True, look_for_signal, SignalWait(*self._fields(request, "name", "number")), _as_it_is
            case "give_up":
                return False, give_up_waiting, SignalWait(*self._fields(request, "name", "number")), _as_it_is
            case "child":
                fields = self._fields(request, "request", "is_detached", "is_awaited")
                return False, make_child, ChildCall(*fields), _as_it_is
            case "question":
                fields = self._fields(request, "question", "choices", "schema")
                return False, ask_question, Asked(*fields), _as_it_is
            case "child_state":
                return True, look_for_child, request["job_id"], _as_it_is
        raise Invalid(f"A handler cannot ask for {request['do']!r}.")

    def _fields(self, request: Request, *names: str) -> list[Any]:
        """The fields of a ChainCall, and then those of the request."""
        lease = self._lease
        fields = [lease.id, lease.worker_id, lease.fence, self._job.id, self._chain_id, request["key"]]
        return [*fields, *(request[name] for name in names)]


def _as_it_is(result: Any) -> Any:
    return result
