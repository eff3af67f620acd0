"""The Heartbeat: keeps this worker's leases alive, from a thread of its own.

Guards LEASE-02 and LEASE-04: a handler that blocks the event loop does not lose its lease; and a worker that cannot
renew its leases in time, by its own monotonic clock, stops its handlers before another worker may start them again.
This thread waits for no answer of the store and for no event loop when it does so: it sets the stop signals itself, and
those send processes their signals.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Set

from holdbeat.domain.clock import Clock
from holdbeat.domain.lease import LeaseTerms
from holdbeat.engine.running import Running
from holdbeat.engine.worker_identity import ProcessUsage
from holdbeat.handlers.stop import StopReason
from holdbeat.observe.recorder import SILENT, Recorder
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.workers import Beat, beat, signals
from holdbeat.store.work import Work

log = logging.getLogger("holdbeat.engine")

Tell = Callable[[str, StopReason], None]

POLL_S = 0.5
"""How often it looks at the clocks between beats, and at the deadline while a beat is under way."""
JUMP_S = 2.0


class Heartbeat:
    """Beats every `heartbeat_s`; sooner after a failure. `tell` and `on_unknown` are called from its thread.

    `on_unknown` is called for leases that two successive beats kept alive and that are not among the `known`: a claim
    that was committed after the worker had ceased to wait for it, which nobody would execute. One beat alone may only
    have been quicker than the claim's answer.
    """

    def __init__(
        self,
        store: PersistenceAdapter,
        worker_id: str,
        terms: LeaseTerms,
        running: Mapping[str, Running],
        tell: Tell,
        *,
        known: Callable[[], Set[str]] = frozenset,
        on_unknown: Callable[[], None] = lambda: None,
        recorder: Recorder = SILENT,
    ) -> None:
        self._store = store
        self._clock: Clock = store.clock
        self._worker_id = worker_id
        self._terms = terms
        self._running = running
        self._tell = tell
        self._known = known
        self._on_unknown = on_unknown
        self._unknown: Set[str] = frozenset()
        """Leases that the last beat kept alive and that this process knows nothing of."""
        self._recorder = recorder
        self._usage = ProcessUsage()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._renewed_at: dict[str, float] = {}
        """When each lease was last extended, on the monotonic clock, for the leases of the last beat."""
        self._asked: Work | None = None
        """The question which work should stop, while the store has not answered it."""

    def start(self) -> None:
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._loop, name="holdbeat-heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def step(self) -> bool:
        """One beat. Returns whether it reached the store."""
        began = self._clock.monotonic()
        leases = dict(self._running)
        known = self._known()
        try:
            answer = self._beat()
        except Exception as error:
            # LEASE-07: it does not disturb the handlers before their deadline.
            log.warning("heartbeat failed, it will be tried again: %s", error)
            self._recorder.beat(False)
            self.stop_the_overdue()
            return False
        before_at = self._renewed_at
        self._renewed_at = {
            lease_id: began if lease_id in answer.renewed else before_at[lease_id]
            for lease_id in answer.held
            if lease_id in answer.renewed or lease_id in before_at
        }
        log.debug("heartbeat of %s: %d leases", self._worker_id, len(answer.held), extra={"worker": self._worker_id})
        for lease_id in leases.keys() - answer.held:
            if lease_id in self._running:
                log.warning("the lease of run %s is gone; its handler is stopped", lease_id)
                self._stop_lost(leases[lease_id])
        if answer.held:
            self._tell_cancelled()
        before, self._unknown = self._unknown, answer.held - known - self._known()
        if before & self._unknown:
            log.warning("leases are held that nobody executes here: %s", ", ".join(sorted(before & self._unknown)))
            self._on_unknown()
        self._recorder.beat(True)
        return True

    def _beat(self) -> Beat:
        """Waits for the store however long it takes, but lets no deadline pass unseen meanwhile."""
        usage = self._usage.measure(self._clock.monotonic())
        work = Work(beat, (self._worker_id, self._terms, usage), {})
        self._store.submit_beat(work)
        assert work.future is not None
        while True:
            try:
                answer: Beat = work.future.result(min(POLL_S, self._terms.lease_s / 4))
                return answer
            except TimeoutError:
                if work.future.done():
                    raise
                self.stop_the_overdue()
                if self._stopped.is_set():
                    work.future.cancel()

    def _tell_cancelled(self) -> None:
        """Tells handlers of cancelled work. The answer is not waited for long: it reads `jobs`, which may be locked."""
        if self._asked is None:
            self._asked = Work(signals, (self._worker_id,), {})
            self._store.submit(self._asked, read_only=True)
        assert self._asked.future is not None
        try:
            cancelled: dict[str, str] = self._asked.future.result(min(POLL_S, self._terms.heartbeat_s / 4))
        except TimeoutError:
            if not self._asked.future.done():
                return  # the next beat looks for the answer
            cancelled = {}
        except Exception as error:
            log.warning("it is not known which work was cancelled, the next heartbeat asks again: %s", error)
            cancelled = {}
        self._asked = None
        for lease_id in cancelled:
            self._tell(lease_id, StopReason.CANCELLED)

    def renewed_at(self, lease_id: str) -> float | None:
        """When a lease was last extended, on the monotonic clock; may be called from any thread."""
        return self._renewed_at.get(lease_id)

    def stop_the_overdue(self) -> list[str]:
        """Stops handlers whose lease has run out by this machine's own reckoning."""
        now = self._clock.monotonic()
        overdue = {
            lease_id: entry
            for lease_id, entry in dict(self._running).items()
            if entry.stop.reason is not StopReason.LOST
            and now >= max(entry.claimed_at, self._renewed_at.get(lease_id, entry.claimed_at)) + self._terms.lease_s
        }
        for lease_id, entry in overdue.items():
            self._stop_lost(entry)
            log.error("the lease of run %s could not be renewed in time; its handler is stopped", lease_id)
        return list(overdue)

    def _stop_lost(self, entry: Running) -> None:
        """Stops a handler from this thread. A process is killed while nobody else may have its work yet."""
        grace_s = entry.cancel_grace_s
        bound_s = self._terms.grace_s / 2
        entry.stop.set(StopReason.LOST, grace_s=bound_s if grace_s is None else min(grace_s, bound_s))

    def _loop(self) -> None:
        reached = True
        while not self._rest(self._terms.heartbeat_s if reached else min(1.0, self._terms.heartbeat_s)):
            reached = self.step()

    def _rest(self, pause_s: float) -> bool:
        """Waits for the next beat, less if the wall clock jumps (LEASE-06); returns whether it was told to stop."""
        until = self._clock.monotonic() + pause_s
        apart = self._apart()
        while (left_s := until - self._clock.monotonic()) > 0:
            if self._stopped.wait(min(POLL_S, left_s)):
                return True
            self.stop_the_overdue()
            if abs(self._apart() - apart) > JUMP_S:
                log.warning("the wall clock jumped by %+.1f s; beating at once", self._apart() - apart)
                return False
        return self._stopped.is_set()

    def _apart(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()
