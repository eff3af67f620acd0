"""The Dispatcher: keeps the worker's slots filled and gives back what has ended.

A turn settles all that has ended since the last one and claims for all that is free, in one commit. Runs end in
their own time and wait for the next turn together, so the commits are shared however short the runs are. A result is
kept and offered again until the store has taken or refused it, over a full disk or a database that restarts.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.errors import HoldbeatError, StoreDown, StoreRefused, Unavailable
from holdbeat.domain.job import DEFAULT_CANCEL_GRACE_S
from holdbeat.domain.lease import Claim, LeaseTerms, Settlement
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.worker import Worker
from holdbeat.engine.executor import Executor
from holdbeat.engine.run_lines import EndedRun, log_ended
from holdbeat.engine.worker_identity import http_slot_numbers, slot_numbers
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.observe.recorder import SILENT, Recorder
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle import Settled
from holdbeat.store.running.settle_and_claim import turn
from holdbeat.store.running.unsettled_claims import held_claims
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.engine")

POLL_S = 1.0
"""How often the dispatcher looks for work that no wake-up told it of. The poll is the truth, wake-ups are a hint."""
RETRY_PAUSE_S = 0.2
RETRY_PAUSE_MAX_S = 5.0
TOPICS = frozenset({Topic.READY, Topic.SLOTS, Topic.DELAYED})


@dataclass(slots=True, eq=False)
class Running:
    """A claim that is being executed."""

    claim: Claim
    stop: StopSignal
    claimed_at: float
    """Monotonic: from here the lease's time counts until the first heartbeat."""
    task: asyncio.Task[None] | None = None

    @property
    def cancel_grace_s(self) -> float | None:
        work = self.claim.job or self.claim.reservation
        return work.cancel_grace_s if work is not None else DEFAULT_CANCEL_GRACE_S


def settlement_of(claim: Claim, outcome: Outcome) -> Settlement:
    """How a claim is given back."""
    lease, job = claim.lease, claim.job
    group_id, schedule_id = (job.group_id, job.schedule_id) if job else (None, None)
    return Settlement(lease.id, lease.worker_id, lease.fence, outcome, group_id, schedule_id)


class Dispatcher:
    def __init__(
        self,
        store: PersistenceAdapter,
        worker: Worker,
        executor: Executor,
        terms: LeaseTerms,
        *,
        on_stale: Callable[[Settlement], None] = lambda settlement: None,
        on_refused: Callable[[StoreRefused], None] = lambda error: None,
        recorder: Recorder = SILENT,
    ) -> None:
        self._recorder = recorder
        self._store = store
        self._worker = worker
        self._executor = executor
        self._terms = terms
        self._on_stale = on_stale
        self._on_refused = on_refused
        self._free = slot_numbers(worker)
        self._free_http = http_slot_numbers(worker)
        self.running: dict[str, Running] = {}
        self._ended: list[EndedRun] = []
        self._turns: set[asyncio.Task[None]] = set()
        self._may_have_work = True
        self._claiming = False
        self._by_hand = False
        self._company = max(1, worker.slots // 2)
        """How many endings are worth a turn of their own beside one under way: large turns cost less per job."""
        self._pause_s = 0.0
        self._is_paused = False
        self._alarm: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._turned_at = 0.0
        self._offered: set[str] = set()
        """Leases whose settlement is on its way to the store."""
        self._is_in_doubt = False
        """A turn got no answer: the store may know of claims that we do not."""
        self._singly = 0
        """So many results are offered one by one, since one among them cannot be stored."""
        self._has_stuck = False
        """A result could not be stored even alone, for no fault of its own: claims do not go together with it."""
        self._told_all: tuple[StopReason, float | None] | None = None

    # --- life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins to claim."""
        loop = asyncio.get_running_loop()

        self._unsubscribe = self._store.on_topics(loop, TOPICS, self.look)
        self._claiming = True
        self._turned_at = self._store.clock.monotonic()
        self.look()

    def stop_claiming(self) -> None:
        """Takes no more work; what runs goes on and is settled."""
        self._claiming = False
        self._unsubscribe()
        if self._alarm is not None:
            self._alarm.cancel()

    async def drained(self) -> None:
        """Waits until nothing runs and everything that has ended is settled."""
        while self.running or self._ended or self._turns or self._is_in_doubt:
            self._changed.clear()
            await self._changed.wait()

    def claim_by_hand(self) -> None:
        """Claims only when `step` is called: for tests, and for a clock that stands still."""
        self._claiming = True
        self._by_hand = True

    async def step(self) -> list[Claim]:
        """One turn by hand: settles what has ended, claims for what is free, starts it."""
        if self._is_in_doubt:
            await self._take_up_unheard()
        return await self._take_turn(*self._prepare())

    async def settle_all(self) -> None:
        """Settles what has ended, without claiming."""
        if self._ended:
            ended, self._ended = self._ended, []
            await self._take_turn(ended, None, self._store.clock.monotonic())

    def look(self) -> None:
        """There may be work: looks as soon as a turn is free."""
        self._may_have_work = True
        self._pump()

    def doubt(self) -> None:
        """The store may know of claims of ours that nobody executes here: looks for them when no turn is under way."""
        self._is_in_doubt = True
        self._pump()

    def known(self) -> frozenset[str]:
        """Leases that this process knows it holds; may be asked from any thread."""
        running, ended, offered = list(self.running), list(self._ended), list(self._offered)
        return frozenset([*running, *offered, *(run.settlement.lease_id for run in ended)])

    def behind_s(self) -> float | None:
        """For how long a turn has been due; None if there is nothing that it could do."""
        if not (self._claiming and (self._free or self._free_http)) and not self._turns and not self._ended:
            return None
        return max(0.0, self._store.clock.monotonic() - self._turned_at - POLL_S)

    def tell(self, lease_id: str, reason: StopReason) -> None:
        """Tells one handler to end."""
        entry = self.running.get(lease_id)
        if entry is not None:
            entry.stop.set(reason, grace_s=entry.cancel_grace_s)

    def tell_all(self, reason: StopReason, *, grace_s: float | None = None) -> None:
        """Tells every handler to end, those too whose claim is only now being answered."""
        self._told_all = (reason, grace_s)
        for entry in list(self.running.values()):
            entry.stop.set(reason, grace_s=entry.cancel_grace_s if grace_s is None else grace_s)

    def give_up_on(self, entry: Running, outcome: Outcome) -> None:
        """Settles a run whose handler does not end, as the last act of a shutdown."""
        if self.running.pop(entry.claim.lease.id, None) is not None:
            self._end(entry, outcome)

    # --- turns -------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Starts a turn if there is something for it to do."""
        if self._by_hand or self._is_paused or len(self._turns) >= self._store.writers_at_once:
            return
        if self._is_in_doubt:
            # Alone, so that no claim is under way that is not known yet for a better reason.
            if not self._turns:
                self._begin_turn(self._clear_doubt())
            return
        has_room = self._claiming and self._may_have_work and (self._free or self._free_http)
        if not self._ended and not has_room:
            return
        if self._turns and len(self._ended) < self._company and not has_room:
            return  # a few endings wait for company; the turn under way will pump again
        self._begin_turn(self._run_turn(*self._prepare()))

    def _begin_turn(self, turn: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(turn)
        self._turns.add(task)
        task.add_done_callback(self._turn_done)

    def _prepare(self) -> tuple[list[EndedRun], Vacancy | None, float]:
        ended, self._ended = self._ended, []
        vacancy = None
        if self._singly and ended:
            self._singly -= 1
            ended, self._ended = ended[:1], ended[1:]
        elif self._claiming:
            free, self._free = self._free, []
            http, self._free_http = self._free_http, []
            if self._has_stuck and (free or http):
                self._has_stuck, self._singly = False, len(ended)
                ended, self._ended = [], ended
            for run in ended:
                (http if run.slot < 0 else free).append(run.slot)
            vacancy = Vacancy(self._worker.id, free, http, self._worker.types, self._worker.resources, self._terms)
            self._may_have_work = False
        return ended, vacancy, self._store.clock.monotonic()

    def _turn_done(self, task: asyncio.Task[None]) -> None:
        self._turns.discard(task)
        self._changed.set()
        self._pump()

    async def _run_turn(self, ended: list[EndedRun], vacancy: Vacancy | None, began: float) -> None:
        try:
            await self._take_turn(ended, vacancy, began)
        except StoreRefused as error:
            log.critical("the dispatcher stops: %s", error)
            self._claiming = False
            self._on_refused(error)
        except Unavailable as error:
            log.warning("the store is not available; %d results wait: %s", len(ended), error)
        except Exception as error:
            log.exception("a turn failed; it will be tried again")
            self._suspect(ended, vacancy, error)

    async def _clear_doubt(self) -> None:
        try:
            await self._take_up_unheard()
        except Exception as error:
            log.warning("it is not known yet which claims this worker holds: %s", error)
            self._slow_down()

    async def _take_up_unheard(self) -> None:
        """Starts what the store gave us in a turn whose answer was lost."""
        held = await self._store.read(held_claims, self._worker.id)
        known = self.known()
        for claim in held:
            slot = claim.lease.slot
            if claim.lease.id in known:
                continue
            log.warning("the claim of run %s had got no answer; it is taken up now", claim.lease.id)
            for free in (self._free, self._free_http):
                if slot in free:
                    free.remove(slot)
            self._begin(claim, self._store.clock.monotonic())
        self._is_in_doubt = False
        self._may_have_work = True

    def _suspect(self, ended: list[EndedRun], vacancy: Vacancy | None, error: Exception) -> None:
        """One result that cannot be stored must not hold up the others: finds it, and lets its run end FAILED.

        So ends only a result that is itself to blame. Whatever else went wrong says nothing about the run: its result
        goes to the end of the line and is offered again, for as long as it takes.
        """
        if not ended:
            return
        if len(ended) > 1 or vacancy is not None:
            self._singly = len(ended)
            return
        if not isinstance(error, self._store.faults_of_data):
            self._has_stuck = True
            self._ended.append(self._ended.pop(0))
            return
        ended[0].settlement.outcome = Outcome.failed(
            ErrorKind.ERROR, f"The result could not be stored: {type(error).__name__}: {error}"[:2000]
        )

    async def _take_turn(self, ended: list[EndedRun], vacancy: Vacancy | None, began: float) -> list[Claim]:
        offered = {run.settlement.lease_id for run in ended}
        self._offered |= offered
        try:
            result = await self._store.write(turn, [run.settlement for run in ended], vacancy)
        except BaseException as error:
            self._take_back(ended, vacancy)
            # A slot that is taken for the store and free for us is told as any other error of the engine underneath.
            is_unheard = isinstance(error, StoreDown) or not isinstance(error, HoldbeatError)
            self._is_in_doubt |= vacancy is not None and is_unheard
            self._slow_down()
            raise
        finally:
            self._offered -= offered
        self._pause_s = 0.0
        self._turned_at = self._store.clock.monotonic()
        accepted = []
        for run, verdict in zip(ended, result.settled, strict=True):
            if verdict is Settled.STALE:
                log.warning("the result of run %s came too late and was refused", run.settlement.lease_id)
                self._on_stale(run.settlement)
            else:
                accepted.append(run)
        self._recorder.took_turn(result.claims, [run.settlement for run in accepted])
        log_ended(accepted)
        if vacancy is not None:
            taken = {claim.lease.slot for claim in result.claims}
            self._free += [slot for slot in vacancy.slots if slot not in taken]
            self._free_http += [slot for slot in vacancy.http_slots if slot not in taken]
            if result.claims:
                self._may_have_work = True
            self._set_alarm(result.next_ready_at)
        else:
            for run in ended:
                (self._free_http if run.slot < 0 else self._free).append(run.slot)
        for claim in result.claims:
            self._begin(claim, began)
        return result.claims

    def _take_back(self, ended: list[EndedRun], vacancy: Vacancy | None) -> None:
        """The turn did not happen: results wait again, and slots are free or held as they were."""
        self._ended = ended + self._ended
        if vacancy is not None:
            held = {run.slot for run in ended}
            self._free += [slot for slot in vacancy.slots if slot not in held]
            self._free_http += [slot for slot in vacancy.http_slots if slot not in held]
            self._may_have_work = True

    def _slow_down(self) -> None:
        self._pause_s = min(RETRY_PAUSE_MAX_S, max(RETRY_PAUSE_S, self._pause_s * 2))
        if self._is_paused:
            return
        self._is_paused = True
        asyncio.get_running_loop().call_later(random.uniform(0.5, 1.0) * self._pause_s, self._resume)

    def _resume(self) -> None:
        self._is_paused = False
        self.look()

    def _set_alarm(self, next_ready_at: datetime | None) -> None:
        """Looks again when the next delayed job is ready, and at the latest after the poll's time."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._claiming or self._by_hand:
            return
        wait_s = POLL_S
        if next_ready_at is not None:
            until = (next_ready_at - self._store.clock.now()).total_seconds()
            wait_s = min(POLL_S, max(0.0, until))
        self._alarm = asyncio.get_running_loop().call_later(wait_s, self.look)

    # --- runs --------------------------------------------------------------------------------------------

    def _begin(self, claim: Claim, began: float) -> None:
        entry = Running(claim, StopSignal(), began)
        self.running[claim.lease.id] = entry
        if self._told_all is not None:
            reason, grace_s = self._told_all
            entry.stop.set(reason, grace_s=entry.cancel_grace_s if grace_s is None else grace_s)
        entry.task = asyncio.create_task(self._execute(entry))

    async def _execute(self, entry: Running) -> None:
        try:
            outcome = await self._executor.execute(entry.claim, entry.stop)
        except asyncio.CancelledError:
            outcome = Outcome.failed(ErrorKind.INTERRUPTED, "The worker's event loop was ended.")
        except Exception as error:
            log.exception("the run %s ended in a way that nobody expected", entry.claim.lease.id)
            outcome = Outcome.failed(ErrorKind.ERROR, f"The worker broke: {type(error).__name__}: {error}"[:2000])
        if self.running.pop(entry.claim.lease.id, None) is not None:
            self._end(entry, outcome)

    def _end(self, entry: Running, outcome: Outcome) -> None:
        lease = entry.claim.lease
        ran_s = self._store.clock.monotonic() - entry.claimed_at
        self._recorder.run_ended(lease.type, ran_s)
        self._ended.append(EndedRun(settlement_of(entry.claim, outcome), lease.slot, lease.type, lease.job_id, ran_s))
        self._changed.set()
        self._pump()

    def left_behind(self, outcome: Outcome) -> list[Settlement]:
        """What has not been offered to the store, with that outcome for what still runs.

        For another thread, while the event loop stands still.
        """
        ended = [run.settlement for run in list(self._ended)]
        return [*ended, *(settlement_of(entry.claim, outcome) for entry in self.held)]

    @property
    def longest_cancel_grace_s(self) -> float:
        """How long what runs here may take to end once it is told to."""
        graces = (entry.cancel_grace_s for entry in self.held)
        return max((DEFAULT_CANCEL_GRACE_S if grace_s is None else grace_s for grace_s in graces), default=0.0)

    @property
    def owes(self) -> bool:
        """Whether something runs here, or has ended and is not settled yet."""
        return bool(self.running or self._ended or self._offered)

    @property
    def held(self) -> Sequence[Running]:
        return list(self.running.values())
