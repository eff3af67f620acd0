"""ShutdownWatch: receives the signals that end a process, and ends it even while the event loop is blocked.

Guards CON-003 against a handler that blocks the loop in which a shutdown happens. A thread receives the signals and
hands them to the loop; as long as the loop answers, the Supervisor does the rest. If it does not answer, the thread
keeps to the same order: the grace, then the handlers are told to end, then their own grace; then it settles what is
left as `interrupted` and ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable

from holdbeat.engine.supervisor import (
    EXIT_RESULTS_NOT_STORED,
    KILL_MARGIN_S,
    SETTLE_TIMEOUT_S,
    Supervisor,
    log_unsettled,
)
from holdbeat.observe.log_writer import flush_logs
from holdbeat.observe.process_output import settle_output

log = logging.getLogger("holdbeat.engine")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POLL_S = 0.2
BLOCKED_S = 2.0
"""A loop that has not answered for this long is blocked."""


class ShutdownWatch:
    """`on_signal` is called in the event loop for every signal."""

    def __init__(self, supervisor: Supervisor, on_signal: Callable[[], None]) -> None:
        self._supervisor = supervisor
        self._on_signal = on_signal
        self._monotonic = supervisor.store.clock.monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._is_closed = False
        self._is_over = False
        self._is_settled = False
        self._until: float | None = None
        """When the grace ends: first that of the shutdown, then that of the handlers."""
        self._has_told_handlers = False
        self._asked_at: float | None = None
        """Since when the loop owes an answer."""

    def handle_signals(self) -> None:
        """Begins to receive signals. Only in the main thread, and with the event loop running in it."""
        self._loop = asyncio.get_running_loop()
        # Written to by the interpreter the moment a signal arrives, whatever the main thread is doing. Set before the
        # handlers, which do nothing: a signal between the two would be lost.
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
            signal.siginterrupt(number, False)
        threading.Thread(target=self._receive_loop, name="holdbeat-signals", daemon=True).start()

    def close(self) -> None:
        """The shutdown is over; signals that still come are ignored."""
        self._is_closed = True
        if self._loop is not None:
            signal.set_wakeup_fd(-1)
        self._sender.close()

    def _receive_loop(self) -> None:
        with self._receiver:
            while not self._is_closed and not self._is_over:
                # Nothing is due before the first signal; `close` ends the wait.
                self._receiver.settimeout(None if self._until is None else POLL_S)
                try:
                    with contextlib.suppress(TimeoutError):
                        for number in self._receiver.recv(64):
                            if number in SIGNALS:
                                self.receive()
                    self.check()
                except Exception:
                    log.exception("the shutdown watch failed; it goes on")

    def receive(self) -> None:
        """A signal: the first one begins the shutdown, each other one ends the grace under way."""
        grace_s = self._supervisor.settings.shutdown_grace_s if self._until is None else 0.0
        self._until = self._monotonic() + grace_s
        self._call(self._on_signal)

    def check(self) -> None:
        """Does what is due, if the loop does not do it."""
        if self._until is None or self._is_closed:
            return
        now = self._monotonic()
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = asked_at = now
            self._call(self._answer)
        if now < self._until or now - asked_at < BLOCKED_S:
            return
        dispatcher = self._supervisor.dispatcher
        if not self._has_told_handlers:
            self._has_told_handlers = True
            self._until = now + dispatcher.running.longest_cancel_grace_s + KILL_MARGIN_S
            log.warning("a handler blocks the event loop; what runs is told to end")
            dispatcher.running.interrupt_all()
            return
        self._is_over = True
        log.critical("a handler blocks the event loop beyond every grace; what it leaves is settled without it")
        settling = threading.Thread(target=self._settle, name="holdbeat-last-resort", daemon=True)
        settling.start()
        settling.join(SETTLE_TIMEOUT_S)
        unsettled = frozenset() if self._is_settled else dispatcher.known()
        if unsettled:
            log_unsettled(unsettled)
        settle_output()
        flush_logs()
        os._exit(EXIT_RESULTS_NOT_STORED if unsettled else 0)

    def _settle(self) -> None:
        try:
            self._supervisor.give_back_without_loop()
            self._is_settled = True
        except Exception as error:
            log.error("the store did not take what is left: %s", error)

    def _answer(self) -> None:
        self._asked_at = None

    def _call(self, callback: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)
