"""LocalBackend: a store of this machine behind the methods of the client.

A method of the client is the operation of the same name, run in this process. Written out here is only what is no
single operation: waiting, following, direct requests, artifacts and test calls.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from holdbeat.actors import this_person
from holdbeat.operations import find_operation
from holdbeat.operations.operation import OperationContext

if TYPE_CHECKING:
    from holdbeat.client.slot_loan import SlotLoan
    from holdbeat.domain.address import OutboundPolicy
    from holdbeat.settings import Settings
    from holdbeat.store.adapter import PersistenceAdapter
    from holdbeat.store.transaction import Transaction

POLL_S = 1.0
PAGE = 500


class _Namespace:
    """`backend.schedules` or `backend.endpoints`."""

    def __init__(self, backend: LocalBackend, name: str) -> None:
        self._backend = backend
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return self._backend.method(f"{self._name}.{method}")

    def test(self, reference: str) -> Any:
        """Calls an endpoint at once."""
        import asyncio

        from holdbeat.handlers.outbound import Outbound
        from holdbeat.operations.endpoint_test import test_endpoint

        store = self._backend.store
        outbound = Outbound(store.read_sync(self._backend.outbound_policy))
        return asyncio.run(test_endpoint(store, outbound, reference))


class LocalBackend:
    """A store of this machine, as the blocking client."""

    def __init__(self, store: PersistenceAdapter, settings: Settings, *, traceparent: str | None = None) -> None:
        self.store = store
        self.settings = settings
        self.url = store.url
        self.context = OperationContext(this_person(), True, self.outbound_policy, traceparent=traceparent)
        self.schedules = _Namespace(self, "schedules")
        self.endpoints = _Namespace(self, "endpoints")

    def __getattr__(self, name: str) -> Any:
        return self.method(name)

    def method(self, name: str) -> Any:
        """The operation as a method of the client."""
        operation = find_operation(name)
        if operation is None:
            raise AttributeError(f"there is no operation {name}")
        return partial(operation.run_sync, self.store, self.context)

    def close(self) -> None:
        self.store.close()

    def outbound_policy(self, tx: Transaction) -> OutboundPolicy:
        """The policy by which workers of this store call addresses: that of the most exposed server on it (SEC-04)."""
        from holdbeat.domain.address import OutboundPolicy
        from holdbeat.store.access.exposed_servers import is_exposed

        is_private = not self.settings.is_exposed and not is_exposed(tx)
        return OutboundPolicy(is_private, self.settings.outbound_allow)

    # --- waiting and following ----------------------------------------------------------------------------

    @contextmanager
    def _woken(self) -> Iterator[threading.Event]:
        """Set by each commit."""
        woken = threading.Event()
        unsubscribe = self.store.listen(lambda topics: woken.set())
        try:
            yield woken
        finally:
            unsubscribe()

    def wait_job(self, job_id: str, *, timeout_s: float | None = None, with_retries: bool = True) -> Any:
        """Waits until the job has ended, and with it every automatic retry; returns the last of them."""
        clock = self.store.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        with self._woken() as woken:
            while True:
                woken.clear()
                job = self.get_job(job_id)
                if job["status"] not in ("QUEUED", "RUNNING"):
                    following = job["continued_by"] or (job["retried_by"] if with_retries else None)
                    if following is None:
                        return job
                    job_id = following
                    continue
                left_s = POLL_S if until is None else min(POLL_S, until - clock.monotonic())
                if left_s <= 0:
                    raise TimeoutError(f"job {job_id} has not ended within {timeout_s:g} s; it goes on")
                woken.wait(left_s)

    def follow_logs(self, job_id: str, *, after: int = 0) -> Generator[Any, None, None]:
        """Lines as they are written, each once, until the run has ended."""
        from holdbeat.operations.output import job_output, line_json

        yield from self._follow(job_output, line_json, job_id, after, False)

    def follow_chunks(self, job_id: str, *, after: int = 0) -> Generator[Any, None, None]:
        """Yields everything that the handler emits, as it does so, until the run has ended."""
        from holdbeat.operations.output import chunk_json, job_output

        yield from self._follow(job_output, chunk_json, job_id, after, True)

    def follow_reservation_chunks(self, reservation_id: str, *, after: int = 0) -> Generator[Any, None, None]:
        """Yields everything that the handler of a direct request emits, until the request has ended."""
        from holdbeat.operations.output import chunk_json, reservation_output

        yield from self._follow(reservation_output, chunk_json, reservation_id, after, True)

    def _follow(self, read: Any, form: Any, id_: str, after: int, emitted: bool) -> Generator[Any, None, None]:
        with self._woken() as woken:
            while True:
                woken.clear()
                output = self.store.read_sync(read, id_, after, PAGE, emitted)
                for line in output.lines:
                    after = line.sequence
                    yield form(line)
                if output.lines:
                    continue
                if output.is_whole:
                    return
                woken.wait(POLL_S)

    def events(
        self, *, after: str | None = None, name: Sequence[str] | None = None, job_id: str | None = None
    ) -> Generator[Any, None, None]:
        """Events as they happen, for ever; from the beginning of the log with `after="0"`."""
        from holdbeat.domain.views import event_json
        from holdbeat.operations.system import place_of
        from holdbeat.store.reads.event_log import latest_cursor, read_events

        place = self.store.read_sync(latest_cursor) if after is None else place_of(after)
        names = list(name) if name else None
        with self._woken() as woken:
            while True:
                woken.clear()
                events = self.store.read_sync(read_events, place, job_id=job_id, names=names, limit=PAGE)
                for logged in events:
                    place = logged.cursor
                    yield event_json(logged.event)
                if not events:
                    woken.wait(POLL_S)

    # --- what needs more than the store -------------------------------------------------------------------

    def direct(
        self,
        type: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_s: float | None = None,
        preempt: bool = False,
    ) -> Any:
        """Runs a job type in the next free slot, ahead of the queue, and waits for its result."""
        import asyncio

        from holdbeat.cli.local_direct import run_direct_locally

        return asyncio.run(run_direct_locally(self, type, dict(params or {}), wait_s, preempt))

    def stream_direct(
        self,
        type: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_s: float | None = None,
        preempt: bool = False,
    ) -> Generator[Any, None, None]:
        """The same as a stream of messages: how it waits, what it emits, its result."""
        from holdbeat.cli.local_direct import stream

        yield from stream(self, type, dict(params or {}), wait_s, preempt)

    def slot(self, resource: str, *, ttl_s: float = 60, wait_s: float | None = None) -> SlotLoan:
        """A slot of the resource for work of your own, held while a `with` block runs."""
        from holdbeat.client.local_lender import local_slot

        return local_slot(lambda: self.store, self.settings, resource, ttl_s=ttl_s, wait_s=wait_s)

    def reserve_slot(self, resource: str, *, ttl_s: float | None = None, wait_s: float | None = None) -> Any:
        """Borrows the next free slot of a resource. It is lost after `ttl_s` unless it is extended."""
        import asyncio

        from holdbeat.client.local_lender import LocalLender

        async def reserve() -> Any:
            async with LocalLender(self.store, self.settings, self.context) as lender:
                return await lender.reserve_slot(resource, ttl_s=ttl_s, wait_s=wait_s)

        return asyncio.run(reserve())

    def get_artifact(self, run_id: str, name: str) -> bytes:
        import os

        from holdbeat.engine.supervisor import artifact_folder
        from holdbeat.operations.runs import find_artifact, open_artifact

        artifact = self.store.read_sync(find_artifact, run_id, name)
        if artifact.data is not None:
            return artifact.data
        folder = artifact_folder(self.store, self.settings)
        with os.fdopen(open_artifact(folder, artifact, run_id, name), "rb") as file:
            return file.read()
