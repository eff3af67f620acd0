"""A child process that does not outlive the worker. Used before anything else is imported: keep it small."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Has the kernel kill this process when `parent` dies: without a lease nothing may go on. Ends it if it is dead."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def continue_when_parent_dies() -> None:
    """Has the kernel send SIGCONT when the parent dies: a process stopped with it would stay stopped for ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def forget_inherited_signals() -> None:
    """A worker may block or ignore signals in the thread that started us; a handler starts afresh."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
