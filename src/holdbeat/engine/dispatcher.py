"""The Dispatcher: keeps the worker's slots filled and gives back what has ended.

A cycle settles all that has ended since the last one and claims for all free slots, in one commit. While a cycle
commits, the handlers of other slots run, and on PostgreSQL further cycles. A slot is free only once its result is
stored, so limits stay exact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.affinity import DEFAULT_AFFINITY_TERMS, Affinity, AffinityTerms, followed
from holdbeat.domain.errors import HoldbeatError, StoreDown, StoreRefused, Unavailable
from holdbeat.domain.lease import Claim, LeaseTerms, Settlement
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.worker import Worker
from holdbeat.engine.backoff import Backoff
from holdbeat.engine.cycle_size import CYCLES, cycle_size
from holdbeat.engine.executor import Executor
from holdbeat.engine.run_lines import EndedRun, log_ended
from holdbeat.engine.running import Running, RunningSet, settlement_of
from holdbeat.engine.serial_tasks import SerialTasks
from holdbeat.engine.slots import Slots
from holdbeat.engine.unstored_results import UnstoredResults
from holdbeat.handlers.stop import StopReason
from holdbeat.observe.recorder import SILENT, Recorder
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle import Settled
from holdbeat.store.running.settle_and_claim import SettledAndClaimed, settle_and_claim
from holdbeat.store.running.unsettled_claims import held_claims
from holdbeat.store.running.workers import beat
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.engine")

POLL_S = 1.0
"""How often the dispatcher looks for work without a wake-up. The poll is the truth, wake-ups are a hint."""
TOPICS = frozenset({Topic.READY, Topic.SLOTS, Topic.DELAYED})
BATCH_WAIT_S = 0.03
"""So long a few results or free slots wait for a batch beside a cycle in flight."""


@dataclass(slots=True)
class _CycleInFlight:
    """A cycle that the store has not answered yet."""

    results: list[EndedRun]
    vacancy: Vacancy | None
    at: float
    answer: Coroutine[Any, Any, SettledAndClaimed]


class Dispatcher:
    def __init__(
        self,
        store: PersistenceAdapter,
        worker: Worker,
        executor: Executor,
        terms: LeaseTerms,
        affinity_terms: AffinityTerms = DEFAULT_AFFINITY_TERMS,
        *,
        on_refused: Callable[[StoreRefused], None] = lambda error: None,
        recorder: Recorder = SILENT,
    ) -> None:
        self._store = store
        self._affinity: tuple[dict[str, Affinity], AffinityTerms] = ({}, affinity_terms)
        self._worker = worker
        self._executor = executor
        self._terms = terms
        self._on_refused = on_refused
        self._recorder = recorder
        self.slots = Slots(worker.slots, worker.http_slots)
        self.running = RunningSet()
        self.results = UnstoredResults(store.faults_of_data)
        self.backoff = Backoff(self.wake)
        self._cycles_in_flight = 0
        """Cycles that the store has not answered yet."""
        self._cycle_tasks: set[asyncio.Task[None]] = set()
        self.executions = SerialTasks(self._execute)
        self._cycles_at_once = min(store.writers_at_once, CYCLES)
        self._batch = cycle_size(worker.slots, self._cycles_at_once)
        self._may_have_work = True
        self._is_claiming = False
        self._is_stepped = False
        self._may_hold_unknown_claims = False
        """A cycle got no answer: the store may have given us claims that we do not know."""
        self._pump_handle: asyncio.Handle | None = None
        self._batch_timer: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._last_cycle_at = 0.0
        self.renewed_at: Callable[[str], float | None] = lambda lease_id: None
        """When a lease was last renewed, on the monotonic clock."""

    # --- life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._unsubscribe = self._store.on_topics(asyncio.get_running_loop(), TOPICS, self.wake)
        self._is_claiming = True
        self._last_cycle_at = self._store.clock.monotonic()
        self.wake()

    def stop_claiming(self) -> None:
        """Takes no more work; what runs goes on and is settled."""
        self._is_claiming = False
        self._unsubscribe()
        if self._alarm is not None:
            self._alarm.cancel()

    async def drained(self) -> None:
        """Waits until nothing runs and everything that has ended is settled."""
        while self.running or len(self.results) or self._cycles_in_flight or self._may_hold_unknown_claims:
            self._changed.clear()
            await self._changed.wait()

    def claim_when_stepped(self) -> None:
        """Claims only when `step` is called: for tests, and for a clock that stands still."""
        self._is_claiming = True
        self._is_stepped = True

    async def step(self) -> list[Claim]:
        """One cycle, called directly: settles what has ended, claims for what is free, starts it."""
        if self._may_hold_unknown_claims:
            await self._start_unknown_claims()
        return await self._end_cycle(self._begin_cycle())

    async def settle_all(self) -> None:
        """Settles what has ended, without claiming."""
        if len(self.results):
            await self._end_cycle(self._send(self.results.take_all(), None))

    def wake(self) -> None:
        """There may be work: starts a cycle as soon as one may start."""
        self._may_have_work = True
        self._pump()

    def check_unknown_claims(self) -> None:
        """The store may hold claims of ours that nobody executes here: looks for them when no cycle is in flight."""
        self._may_hold_unknown_claims = True
        self._pump()

    def known(self) -> frozenset[str]:
        """Leases that this process knows it holds; may be called from any thread."""
        return frozenset([*list(self.running), *self.results.lease_ids()])

    def behind_s(self) -> float | None:
        """The time for which a cycle has been due; None if there is nothing that it could do."""
        if not (self._is_claiming and self.slots.any_free) and not self._cycles_in_flight and not len(self.results):
            return None
        return max(0.0, self._store.clock.monotonic() - self._last_cycle_at - POLL_S)

    @property
    def owes(self) -> bool:
        """Whether something runs here, or has ended and is not settled yet."""
        return bool(self.running) or self.results.any_left

    def give_up_on(self, entry: Running, outcome: Outcome) -> None:
        """Settles a run whose handler does not end, at the end of a shutdown."""
        if self.running.pop(entry.claim.lease.id, None) is not None and entry.has_handler:
            self._end(entry, outcome)

    def forget_lease(self, lease_id: str) -> None:
        """A slot that was held here without a handler is not any more."""
        self.running.pop(lease_id, None)
        self._changed.set()

    def unsettled(self, outcome: Outcome) -> list[Settlement]:
        """The settlements that no cycle has taken to the store, with that outcome for everything that still runs.

        For another thread, while the event loop is blocked.
        """
        running = [settlement_of(entry.claim, outcome) for entry in self.running.entries()]
        return [*self.results.not_offered(), *running]

    # --- cycles ------------------------------------------------------------------------------------------

    def _pump(self, *, is_batch_awaited: bool = True) -> None:
        """Starts a cycle if there is something for it to do; beside another cycle only if it is worth a batch."""
        if self._is_stepped or self.backoff.is_paused or self._cycles_in_flight >= self._cycles_at_once:
            return
        if self._may_hold_unknown_claims:
            # Only when no cycle is in flight: a claim in flight is also unknown to us, legitimately.
            if not self._cycles_in_flight:
                self._cycles_in_flight += 1
                self._in_background(self._find_unknown_claims())
            return
        has_room = self._is_claiming and self._may_have_work and self.slots.any_free
        waiting = len(self.results)
        if not waiting and not has_room:
            return
        size = waiting + (self.slots.count_ordinary_free if has_room else 0)
        if self._cycles_in_flight and size < self._batch and is_batch_awaited:
            # The end of the cycle in flight pumps again, unless that one waits for a lock.
            if self._batch_timer is None:
                self._batch_timer = asyncio.get_running_loop().call_later(BATCH_WAIT_S, self._pump_without_batch)
            return
        self._in_background(self._run_cycle(self._begin_cycle()))

    def _pump_without_batch(self) -> None:
        self._batch_timer = None
        self._pump(is_batch_awaited=False)

    def _pump_soon(self) -> None:
        """Pumps after the handlers that are ready to run now, so that their results share one cycle."""
        if self._pump_handle is None:
            self._pump_handle = asyncio.get_running_loop().call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pump_handle = None
        self._pump()

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._cycle_tasks.add(task)
        task.add_done_callback(self._cycle_tasks.discard)

    def _begin_cycle(self) -> _CycleInFlight:
        results, may_claim = self.results.take(may_claim=self._is_claiming, any_slot_free=self.slots.any_free)
        if not may_claim:
            return self._send(results, None)
        self.slots.give_back(run.slot for run in results)
        free = self.slots.take_all()
        self._may_have_work = False
        worker = self._worker
        known = self._terms, self.slots.uses, *self._affinity
        vacancy = Vacancy(worker.id, free.ordinary, free.http, worker.types, worker.resources, *known)
        return self._send(results, vacancy)

    def _send(self, results: list[EndedRun], vacancy: Vacancy | None) -> _CycleInFlight:
        """Hands a cycle to the store at once: it commits while the handlers that are ready here run."""
        self._cycles_in_flight += 1
        answer = self._store.start_write(settle_and_claim, [run.settlement for run in results], vacancy)
        return _CycleInFlight(results, vacancy, self._store.clock.monotonic(), answer)

    async def _run_cycle(self, cycle: _CycleInFlight) -> None:
        try:
            await self._end_cycle(cycle)
        except StoreRefused as error:
            log.critical("the dispatcher stops: %s", error)
            self._is_claiming = False
            self._on_refused(error)
        except Unavailable as error:
            log.warning("the store is not available (results that wait: %d): %s", len(cycle.results), error)
        except Exception as error:
            log.exception("a cycle failed; it will be tried again")
            self.results.suspect(cycle.results, error, has_claimed=cycle.vacancy is not None)

    async def _end_cycle(self, cycle: _CycleInFlight) -> list[Claim]:
        try:
            result = await cycle.answer
        except BaseException as error:
            self._cycle_failed(cycle, error)
            raise
        finally:
            self._cycles_in_flight -= 1
            self._changed.set()
        self.results.answered(cycle.results)
        self.backoff.succeed()
        self._last_cycle_at = self._store.clock.monotonic()
        self._note_settled(cycle.results, result)
        self._free_slots(cycle, result.claims)
        if cycle.vacancy is not None:
            self._set_alarm(result.next_ready_at)
        self._affinity = (followed(self._affinity[0], result.claims).now, self._affinity[1])
        # First the next cycle, then the handlers: the store commits while they run.
        self._pump()
        self._begin(result.claims, cycle.at)
        return result.claims

    def _note_settled(self, results: list[EndedRun], result: SettledAndClaimed) -> None:
        accepted = []
        for run, verdict in zip(results, result.settled, strict=True):
            if verdict is Settled.STALE:
                log.warning("the result of run %s came too late and was refused", run.settlement.lease_id)
            else:
                accepted.append(run)
        self._recorder.record_cycle(result.claims, [run.settlement for run in accepted])
        log_ended(accepted)

    def _free_slots(self, cycle: _CycleInFlight, claims: list[Claim]) -> None:
        vacancy = cycle.vacancy
        if vacancy is None:
            self.slots.give_back(run.slot for run in cycle.results)
            return
        slots = {claim.lease.slot for claim in claims}
        self.slots.give_back_offered(vacancy.slots, vacancy.http_slots, slots)

    def _cycle_failed(self, cycle: _CycleInFlight, error: BaseException) -> None:
        """Nothing of the cycle is stored: results wait again, slots are free or held as they were before."""
        self.results.take_back(cycle.results)
        if cycle.vacancy is not None:
            slots = {run.slot for run in cycle.results}
            self.slots.give_back_offered(cycle.vacancy.slots, cycle.vacancy.http_slots, slots)
            self._may_have_work = True
            # Errors of the engine underneath include: a slot is free for us and taken in the store.
            self._may_hold_unknown_claims |= isinstance(error, StoreDown) or not isinstance(error, HoldbeatError)
        self.backoff.fail()

    async def _find_unknown_claims(self) -> None:
        try:
            await self._start_unknown_claims()
        except Exception as error:
            log.warning("it is not known yet which claims this worker holds: %s", error)
            self.backoff.fail()
        finally:
            self._cycles_in_flight -= 1
            self._changed.set()
        self._pump()

    async def _start_unknown_claims(self) -> None:
        """Starts what the store gave us in a cycle whose answer was lost."""
        claims = await self._store.read(held_claims, self._worker.id)
        known = self.known()
        unknown = [claim for claim in claims if claim.lease.id not in known]
        for claim in unknown:
            log.warning("the claim of run %s had got no answer; it is executed now", claim.lease.id)
            self.slots.occupy(claim.lease.slot)
        self._begin(unknown, self._store.clock.monotonic())
        self._may_hold_unknown_claims = False
        self._may_have_work = True

    def _set_alarm(self, next_ready_at: datetime | None) -> None:
        """Looks again when the next delayed job is ready, and at the latest after POLL_S."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._is_claiming or self._is_stepped:
            return
        wait_s = POLL_S
        if next_ready_at is not None:
            until = (next_ready_at - self._store.clock.now()).total_seconds()
            wait_s = min(POLL_S, max(0.0, until))
        self._alarm = asyncio.get_running_loop().call_later(wait_s, self.wake)

    # --- runs --------------------------------------------------------------------------------------------

    def _begin(self, claims: list[Claim], claimed_at: float) -> None:
        self.slots.note_used(claim.lease.slot for claim in claims)
        may_be_late = self._store.clock.monotonic() >= claimed_at + self._terms.shortest_s
        start = self._start_late if may_be_late else self.running.start
        self.executions.start([start(claim, claimed_at) for claim in claims])

    def _start_late(self, claim: Claim, claimed_at: float) -> Running:
        lease, now = claim.lease, self._store.clock.monotonic()
        renewed_at = max(claimed_at, self.renewed_at(lease.id) or claimed_at)
        is_late = now >= renewed_at + (lease.expires_at - lease.acquired_at).total_seconds()
        entry = self.running.start(claim, now if is_late else claimed_at)
        entry.is_late = is_late
        return entry

    async def _renew(self, entry: Running) -> None:
        """Before a handler starts whose lease may be over: the answer to its claim, or this process, took that long.

        Somebody else may have the slot by now (LEASE-04). If not, the lease is renewed and the handler starts.
        """
        lease = entry.claim.lease
        try:
            answer = await self._store.write(beat, self._worker.id, self._terms)
        except Exception as error:
            log.error("the lease of run %s was over before it began, and cannot be renewed: %s", lease.id, error)
            entry.stop.set(StopReason.LOST)
            return
        if lease.id not in answer.renewed:
            log.error("the lease of run %s was over before it began; it is not started", lease.id)
            entry.stop.set(StopReason.LOST)

    async def _execute(self, entry: Running) -> None:
        if entry.is_late:
            await self._renew(entry)
        try:
            outcome = await self._executor.execute(entry.claim, entry.stop)
        except asyncio.CancelledError:
            outcome = Outcome.failed(ErrorKind.INTERRUPTED, "The worker's event loop was ended.")
        except Exception as error:
            log.exception("the run %s ended with an error of the worker", entry.claim.lease.id)
            outcome = Outcome.failed(ErrorKind.ERROR, f"The worker broke: {type(error).__name__}: {error}"[:2000])
        if self.running.pop(entry.claim.lease.id, None) is not None:
            self._end(entry, outcome)

    def _end(self, entry: Running, outcome: Outcome) -> None:
        lease = entry.claim.lease
        ran_s = self._store.clock.monotonic() - entry.claimed_at
        self._recorder.run_ended(lease.type, ran_s)
        self.results.add(EndedRun(settlement_of(entry.claim, outcome), lease.slot, lease.type, lease.job_id, ran_s))
        self._changed.set()
        if len(self.results) >= self._batch:
            self._pump()
        else:
            self._pump_soon()
