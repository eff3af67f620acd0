"""Signals in the processes that a handler forks (`multiprocessing`, `os.fork`) from a serving or working process.

A forked child inherits the signal handlers and the descriptor through which its parent learns of signals: SIGTERM to
the child, which `multiprocessing.Pool` sends to its own workers, would shut down the parent and leave the child
running. So a child begins with Python's own handlers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})

_forking = threading.local()
_is_active = False


@contextlib.contextmanager
def default_signals_in_forks() -> Iterator[None]:
    """While the block runs, a forked child gets Python's own handlers of the signals that end a process."""
    global _is_active
    _is_active = True
    try:
        yield
    finally:
        _is_active = False


def _before_fork() -> None:
    # A signal that reaches the child before its handlers are reset has to wait.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS) if _is_active else None


def _after_fork_in_parent() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    if _forking.mask is None:
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
