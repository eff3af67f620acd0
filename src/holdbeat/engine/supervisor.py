"""The Supervisor: one process's worth of Holdbeat, started and stopped in order.

Guards CON-003: a shutdown claims nothing more, keeps beating, lets work finish, then asks it to end, then settles what
is left as `interrupted`, with its retry, as the last act. A second request ends the grace.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from holdbeat import __version__
from holdbeat.domain import events
from holdbeat.domain.errors import HoldbeatError, StoreRefused
from holdbeat.domain.lease import Claim
from holdbeat.domain.redaction import without_secrets
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.worker import WorkerKind
from holdbeat.engine.artifact_sweep import ArtifactSweep
from holdbeat.engine.clock_watch import ClockWatchService
from holdbeat.engine.direct_execution import DirectExecutionHandler
from holdbeat.engine.dispatcher import Dispatcher
from holdbeat.engine.executor import Executor
from holdbeat.engine.heartbeat import Heartbeat
from holdbeat.engine.report_flush import ReportFlush
from holdbeat.engine.retention import Retention
from holdbeat.engine.run_reports import RunReports
from holdbeat.engine.running import settlement_of
from holdbeat.engine.service import Service
from holdbeat.engine.watches import CancelWatch, OpenReaderWatch, PreemptionWatch, SchemaWatch, StarvationWatch
from holdbeat.engine.worker_identity import this_worker
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.handlers.handler import make_handler
from holdbeat.handlers.job_type import JobType
from holdbeat.observe.handler_output import capture
from holdbeat.observe.recorder import SILENT, Recorder
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.running.settle import settle
from holdbeat.store.running.shared_terms import note_terms
from holdbeat.store.running.unsettled_claims import held_claims
from holdbeat.store.running.workers import begin_stopping, register_worker, stop_worker
from holdbeat.store.transaction import Transaction

log = logging.getLogger("holdbeat.engine")

EXIT_RESULTS_NOT_STORED = 5
SETTLE_TIMEOUT_S = 10.0
KILL_MARGIN_S = 2.0
STORE_TIMEOUT_S = 3.0
"""How long a shutdown waits for a store that does not answer, for each call."""
STOPPING_RECONNECT_S = 1.0
"""How long, during a shutdown, a call waits for a database that is away. What matters is tried again anyway."""


class Supervisor:
    def __init__(
        self,
        store: PersistenceAdapter,
        settings: Settings,
        job_types: Sequence[JobType],
        *,
        kind: str = "embed",
        resources: Sequence[str] | None = None,
        has_worker: bool = True,
        more_services: Sequence[Service] = (),
        recorder: Recorder = SILENT,
    ) -> None:
        self.store = store
        self.settings = settings
        self.recorder = recorder
        self._job_types = list(job_types)
        terms = settings.lease_terms
        names = tuple(name for job_type in job_types for name in job_type.names) if has_worker else ()
        self.worker = this_worker(
            kind,
            slots=settings.slots if has_worker else 0,
            http_slots=settings.http_slots if has_worker else 0,
            types=names,
            resources=resources,
            version=__version__,
        )
        self.reports = RunReports(store, artifact_folder(store, settings))
        handlers = {name: make_handler(job_type) for job_type in job_types for name in job_type.names}
        executor = Executor(handlers, self.reports, store.clock, on_overdue=self._overdue, suspend_s=settings.suspend_s)
        self.dispatcher = Dispatcher(
            store, self.worker, executor, terms, settings.affinity_terms, on_refused=self._refused, recorder=recorder
        )
        self.heartbeat = Heartbeat(
            store,
            self.worker.id,
            terms,
            self.dispatcher.running,
            self.dispatcher.running.tell,
            known=self.dispatcher.known,
            on_unknown=self._check_claims_from_thread,
            recorder=recorder,
        )
        self.dispatcher.renewed_at = self.heartbeat.renewed_at
        self.recovery = ZombieRecovery(store, terms, settings.recover_s)
        self.direct = self._direct_execution()
        self.services = [*self._own_services(), *more_services]
        if not any(service.watches_clock for service in self.services):
            self.services.append(ClockWatchService(store))
        for service in self.services:
            service.worker = self.worker
        self.on_refused: Callable[[StoreRefused], None] = lambda error: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._grace_ended = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self.is_stopping = False
        self._end_capture: Callable[[], None] = lambda: None

    def _direct_execution(self) -> DirectExecutionHandler:
        """It shares with the dispatcher what is held here, so that the heartbeat and a shutdown see both."""
        settings = self.settings
        direct = DirectExecutionHandler(
            self.store,
            self.worker.id,
            direct_wait_s=settings.direct_wait_s,
            reservation_s=settings.reservation_s,
            lease_s=settings.lease_s,
        )
        direct.running, direct.forget_lease = self.dispatcher.running, self.dispatcher.forget_lease
        return direct

    def _own_services(self) -> list[Service]:
        """The services that every process with a worker or an API runs beside the dispatcher."""
        folder = artifact_folder(self.store, self.settings)
        is_own = not self.settings.artifact_dir
        sweep = None if folder is None else ArtifactSweep(self.store, folder, is_own=is_own)
        return [
            self.recovery,
            CancelWatch(self.store, self.worker.id, self.dispatcher),
            ReportFlush(self.reports),
            Retention(self.store, self.settings.retention_days, sweep),
            OpenReaderWatch(self.store),
            StarvationWatch(self.store, self.settings.starved_s),
            PreemptionWatch(self.store),
            SchemaWatch(self.store),
        ]

    # --- start -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Announces itself and its job types, recovers what others left, then begins to work."""
        self._loop = asyncio.get_running_loop()
        self._end_capture = capture(is_own_process=self.worker.kind is not WorkerKind.EMBED)
        self.store.announce_alive(self.worker.id)
        await self.store.write(announce, [announcement(job_type) for job_type in self._job_types])
        await self.store.write(register_worker, self.worker, self.settings.lease_terms)
        await self.store.write(_note_settings, self.worker.id, self.settings)
        works = bool(self.worker.slots or self.worker.http_slots)
        await self.store.write(note_terms, works=works)
        await self.store.write(
            declare_limits,
            self.settings.concurrency_policy.limits(),
            self.settings.named_limits,
            by=self.worker.id,
            works=works,
        )
        await self.recovery.step()
        self.heartbeat.start()
        for service in [*self.services, self.direct]:
            service.on_refused = self._refused
            await service.start()
        if self.worker.slots or self.worker.http_slots:
            await self.dispatcher.start()

    # --- stop --------------------------------------------------------------------------------------------

    @property
    def owes_results(self) -> bool:
        """Whether results of runs are not stored; after a shutdown, recovery finds these runs."""
        return self.dispatcher.results.any_left

    def end_grace(self) -> None:
        """Ends the grace of a shutdown under way."""
        self._grace_ended.set()

    async def stop(self, grace_s: float | None = None) -> None:
        """Shuts down as CON-003 says; returns once everything this process held is given back."""
        if self.is_stopping:
            return
        self.is_stopping = True
        reconnect_s, self.store.reconnect_s = self.store.reconnect_s, min(self.store.reconnect_s, STOPPING_RECONNECT_S)
        try:
            is_noted = await self._stop(self.settings.shutdown_grace_s if grace_s is None else grace_s)
        finally:
            self.store.reconnect_s = reconnect_s
            self._end_capture()
        self.store.withdraw_alive(self.worker.id, is_stopped=is_noted and not self.dispatcher.owes)

    async def _stop(self, grace_s: float) -> bool:
        """Whether the store knows of the end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        self.dispatcher.stop_claiming()
        async with _briefly():
            await self.store.write(begin_stopping, self.worker.id)
            await self.store.write(_note, events.SHUTDOWN_BEGUN, self.worker.id)
        self.direct.close()
        left_s = max(0.0, until - loop.time())
        # With nothing to finish, only the answer to the last cycle is awaited: not worth the whole grace.
        if not await self._drained(left_s if self.dispatcher.owes else min(left_s, STORE_TIMEOUT_S)):
            until = loop.time() if self._grace_ended.is_set() else until
            await self._interrupt()
        stopping = asyncio.gather(*(service.stop() for service in reversed([self.direct, *self.services])))
        await self.within_grace(stopping, until - loop.time() - STORE_TIMEOUT_S)
        async with _briefly():
            await stopping
        async with _briefly():
            await self.reports.flush()
        # It waits for the beat under way, and the event loop may be needed for that.
        await asyncio.to_thread(self.heartbeat.stop)
        async with _briefly():
            await self.store.write(_note, events.SHUTDOWN_ENDED, self.worker.id)
            await self.store.write(stop_worker, self.worker.id)
            return True
        return False

    async def _drained(self, within_s: float) -> bool:
        """Waits until all work has ended and is settled; False if the time is over or the grace was ended first."""
        draining = asyncio.ensure_future(self.dispatcher.drained())
        try:
            return await self.within_grace(draining, within_s)
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)

    async def within_grace(self, awaited: asyncio.Future[Any], within_s: float) -> bool:
        """Waits until it is done; False if the time is over or the grace was ended first."""
        ending = asyncio.ensure_future(self._grace_ended.wait())
        try:
            await asyncio.wait({awaited, ending}, timeout=max(0.0, within_s), return_when=asyncio.FIRST_COMPLETED)
            return awaited.done()
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _interrupt(self) -> None:
        """Asks what still runs to end, waits its grace, and settles the rest as interrupted."""
        grace_s = self.dispatcher.running.longest_cancel_grace_s
        self._grace_ended.clear()
        self.dispatcher.running.interrupt_all()
        if not await self._drained(grace_s + KILL_MARGIN_S):
            entries = self.dispatcher.running.entries()
            for entry in entries:
                self.dispatcher.give_up_on(
                    entry,
                    Outcome.failed(
                        ErrorKind.INTERRUPTED, "Interrupted by a shutdown; the handler did not end in time."
                    ),
                )
            self._grace_ended.clear()
            # What is left without anything held has been offered to the store for the whole grace.
            if self.dispatcher.owes and not await self._drained(SETTLE_TIMEOUT_S if entries else STORE_TIMEOUT_S):
                log_unsettled(self.dispatcher.results.lease_ids())

    def give_back_without_loop(self) -> None:
        """Settles all that is held, from another thread: the end of a shutdown whose event loop is blocked.

        Handlers that still run are not ended by this, so the process must end right after it.
        """
        store, dispatcher, worker_id = self.store, self.dispatcher, self.worker.id
        store.reconnect_s = min(store.reconnect_s, STOPPING_RECONNECT_S)
        if not self.is_stopping:
            store.write_sync(_note, events.SHUTDOWN_BEGUN, worker_id)
        with contextlib.suppress(Exception):
            self.reports.flush_sync()
        stuck = Outcome.failed(
            ErrorKind.INTERRUPTED, "Interrupted by a shutdown; the event loop was blocked until its end."
        )
        store.write_sync(settle, dispatcher.unsettled(stuck))
        # Claims whose answer the loop has not received yet, but for those whose results are being stored.
        under_way = dispatcher.known()
        unheard = [claim for claim in store.read_sync(held_claims, worker_id) if claim.lease.id not in under_way]
        if unheard:
            store.write_sync(settle, [settlement_of(claim, stuck) for claim in unheard])
        store.write_sync(_note, events.SHUTDOWN_ENDED, worker_id)
        store.write_sync(stop_worker, worker_id)
        store.withdraw_alive(worker_id)

    # --- what the parts report ---------------------------------------------------------------------------

    def _check_claims_from_thread(self) -> None:
        """The heartbeat keeps leases alive that the dispatcher does not know: it looks what they are."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.dispatcher.check_unknown_claims)

    def _refused(self, error: StoreRefused) -> None:
        self.on_refused(error)

    def _overdue(self, claim: Claim) -> None:
        async def note() -> None:
            job_id = claim.job.id if claim.job else None
            with contextlib.suppress(HoldbeatError):
                await self.store.write(_note, events.RUN_OVERDUE, self.worker.id, job_id, claim.lease.id)

        task = asyncio.create_task(note())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def log_unsettled(run_ids: Iterable[str]) -> None:
    log.error(
        "the results of these runs could not be settled before the end; recovery will find them: %s",
        ", ".join(sorted(run_ids)),
    )


@contextlib.asynccontextmanager
async def _briefly(within_s: float = STORE_TIMEOUT_S) -> AsyncIterator[None]:
    """Does what can be done in that time; what the store was not told is found by recovery."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except Exception as error:
        log.warning("a shutdown goes on without the store's answer: %s", str(error) or "it took too long")


def _note(tx: Transaction, name: str, worker_id: str, job_id: str | None = None, run_id: str | None = None) -> None:
    tx.record(name, worker_id=worker_id, job_id=job_id, run_id=run_id)


def _note_settings(tx: Transaction, worker_id: str, settings: Settings) -> None:
    """Keeps for later what this process was told to be (OPS-04); a password in the store's address is left out."""
    in_force = {
        field.name: without_secrets(str(getattr(settings, field.name)))
        for field in dataclasses.fields(settings)
        if field.name != "origins" and getattr(settings, field.name) is not None
    }
    tx.record(events.SETTINGS_IN_FORCE, worker_id=worker_id, settings=in_force)


def artifact_folder(store: PersistenceAdapter, settings: Settings) -> Path | None:
    """The folder of artifacts: the declared one, or one beside a SQLite file; None: they are kept in the store."""
    if settings.artifact_dir:
        return Path(settings.artifact_dir)
    path = getattr(store, "path", None)
    return Path(f"{path}-artifacts") if path and path != ":memory:" else None


def announcement(job_type: JobType) -> AnnouncedType:
    """A job type as other processes need to know it."""
    defaults = {
        "resource": job_type.resource,
        "timeout_s": job_type.timeout_s,
        "priority": job_type.priority,
        "cancel_grace_s": job_type.cancel_grace_s,
        "labels": job_type.labels,
        "webhook_url": job_type.webhook_url,
        "partition_by": job_type.partition,
        "weight": job_type.weight,
        "affinity_by": job_type.affinity,
        "preemptible": job_type.preemptible,
        "title": job_type.title,
        "retry_policy": job_type.retry_policy.as_dict() if job_type.retry_policy else None,
    }
    return AnnouncedType(
        name=job_type.name,
        schema=job_type.schema,
        defaults=defaults,
        aliases=job_type.aliases,
        description=job_type.description or None,
    )
