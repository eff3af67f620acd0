"""Other processes on the same SQLite file: the write lock, a lock file for each worker, wake-ups.

Guards LEASE-05: the kernel drops a dead process's file lock, so its death is known at once. Wake-ups are
datagrams and may be lost; whoever waits also polls.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import StoreBusy, StoreDown
from holdbeat.store.sqlite.locks import hold, is_held

log = logging.getLogger("holdbeat.store")

SEND_EVERY_S = 0.005
BIND_TRIES = 10
FOLDER_TICK_S = 0.02
"""More than a tick of the clock with which a file system marks changes."""
LOCK_POLL_S = 0.00002
LOCK_POLL_MAX_S = 0.001
"""How long a process waits between two attempts to take the write lock, at first and at the most. A worker that was
told of a job before its commit needs it soon."""
PRIORITY_AFTER_S = 1.0
"""After this wait a process gets the write lock before those that came later."""
WRITE_BYTE, PRIORITY_BYTE = 0, 1
"""The bytes of the lock file that are locked."""


class WriteLock:
    """A lock between processes that they hold while they write; SQLite's own makes waiting processes sleep too long.

    It is a POSIX lock, because a child forked by a handler must not inherit it. Closing any descriptor of the file
    releases it; we then lose fairness only, since SQLite's own lock still protects the data. We poll for it: a wait in
    the kernel for a process that was stopped while it wrote could not be ended.

    Who polls finds the lock free only by chance while others take it again at once. So a process that has waited for
    PRIORITY_AFTER_S locks a second byte, and nobody takes the write lock past it. If it is itself stopped while it has
    priority, the others pass after PRIORITY_AFTER_S.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        if not self._take():
            self._wait()

    def _take(self) -> bool:
        """Takes the write lock if it is free and no other process has priority."""
        if not self._lock(WRITE_BYTE, 2):
            return False
        self._unlock(PRIORITY_BYTE)
        return True

    def _lock(self, byte: int, count: int = 1) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, byte)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise StoreDown(
                f"{self._path} cannot be locked just now ({error.strerror}); nothing was stored. Check the disk, and "
                "try again.",
                code="store_unreachable",
            ) from error
        return True

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    def _wait(self) -> None:
        monotonic = SystemClock().monotonic
        began = monotonic()
        pause_s = LOCK_POLL_S
        has_priority = False
        try:
            while True:
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, LOCK_POLL_MAX_S)
                waited_s = monotonic() - began
                has_priority = has_priority or (waited_s >= PRIORITY_AFTER_S and self._lock(PRIORITY_BYTE))
                passes = has_priority or waited_s >= 2 * PRIORITY_AFTER_S
                if self._lock(WRITE_BYTE) if passes else self._take():
                    return
                if waited_s >= self._timeout_s:
                    raise StoreBusy(
                        f"Another process has been writing to the store for longer than {self._timeout_s:g} s. See "
                        f"whether it was stopped or hangs (`fuser {self._path}` names it), and try again."
                    )
        finally:
            if has_priority:
                self._unlock(PRIORITY_BYTE)

    def __exit__(self, *_: object) -> None:
        self._unlock(WRITE_BYTE)

    def close(self) -> None:
        os.close(self._descriptor)


class WorkerLocks:
    """One locked file for each worker, beside the store. Its worker lives as long as it is locked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._held: dict[str, int] = {}
        self._is_folder_missing = False

    def announce(self, worker_id: str) -> None:
        path = str(self._folder / worker_id)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Locked before it has its name: whoever finds an unlocked file there takes its owner for dead.
        unnamed = f"{self._folder}.{worker_id}"
        descriptor = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._held[worker_id] = descriptor
        hold(descriptor)
        os.rename(unnamed, path)

    def withdraw(self, worker_id: str, *, is_stopped: bool = True) -> None:
        path = str(self._folder / worker_id)
        # In this order: an unlocked file that still has its name means a death.
        try:
            if is_stopped:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("the lock file %s could not be removed (%s); recovery takes its worker for dead", path, error)
        descriptor = self._held.pop(worker_id, None)
        if descriptor is not None:
            os.close(descriptor)

    def is_known_dead(self, worker_id: str) -> bool:
        try:
            descriptor = os.open(self._folder / worker_id, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False  # nobody can tell
        try:
            # In this order: a file that was withdrawn after we opened it means an orderly end.
            return not is_held(descriptor) and os.fstat(descriptor).st_nlink > 0
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def known_dead(self) -> frozenset[str]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            if not self._is_folder_missing:
                log.error(
                    "The folder %s was deleted while it was in use. Until this process is started again, a dead worker "
                    "is noticed only when its lease has run out.",
                    self._folder,
                )
            self._is_folder_missing = True
            return frozenset()
        except OSError:
            return frozenset()  # nobody can tell
        self._is_folder_missing = False
        return frozenset(name for name in names if self.is_known_dead(name))

    def after_fork_in_child(self) -> None:
        """Closes the parent's lock files in a forked child: their locks must end with the parent."""
        held, self._held = self._held, {}
        for descriptor in held.values():
            os.close(descriptor)


class Wakeups:
    """Wake-ups between processes: a datagram socket each, in a folder that all of them can find.

    The folder lies in the system's temporary directory, since a socket's path may not be long. There anybody can put
    something in its place, so it is used only if it is ours alone, and only a dead socket is ever removed. The first
    wake-up is sent at once; those that follow within SEND_EVERY_S are sent together.
    """

    def __init__(self, store_path: str, on_wake: Callable[[frozenset[str]], None]) -> None:
        name = hashlib.blake2b(store_path.encode(), digest_size=8).hexdigest()
        self._base = os.path.join(tempfile.gettempdir(), f"holdbeat-{os.getuid()}")
        self._folder = os.path.join(self._base, name)
        self._is_foreign = False
        self._on_wake = on_wake
        self._socket: socket.socket | None = None
        self._own: str | None = None
        self._others: list[str] = []
        self._seen_at = -1
        self._noticed_at = 0.0
        self._is_settled = False
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._lock = threading.Condition()  # of a kind that a signal handler may take again
        self._monotonic = SystemClock().monotonic
        self._sent_at = 0.0
        self._unsent: set[str] = set()
        self._late_sender: threading.Thread | None = None
        self._is_closed = False

    def listen(self) -> None:
        """Begins to listen; until somebody here waits for something there is no need to."""
        with self._lock:
            if self._socket is not None:
                return
            # A name is never used again: whoever finds a dead socket there takes it away.
            address = os.path.join(self._folder, f"{os.getpid()}-{secrets.token_hex(4)}")
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            if not self._bind(receiver, address):
                receiver.close()
                return  # no wake-ups here: polling finds the work
            self._socket, self._own = receiver, address
        threading.Thread(target=self._receive, args=(receiver,), name="holdbeat-wakeups", daemon=True).start()

    def _bind(self, receiver: socket.socket, name: str) -> bool:
        for _ in range(BIND_TRIES):
            try:
                _make_folder(self._base)
                base = os.lstat(self._base)
                if stat.S_ISDIR(base.st_mode) and base.st_uid == os.geteuid() and base.st_mode & 0o077:
                    os.chmod(self._base, 0o700)  # an older version left it open to be read
                # In this order: nothing is made through a link that somebody else has put there.
                if not self._is_ours(self._base):
                    return False
                _make_folder(self._folder)
                if not self._is_ours(self._folder):
                    return False
                receiver.bind(name)
                return True
            except (FileNotFoundError, FileExistsError):
                continue  # somebody left just now and took the empty folder away
            except OSError:
                return False
        return False

    def _receive(self, receiver: socket.socket) -> None:
        while True:
            try:
                message = receiver.recv(512)
            except OSError:
                return
            if message == b"!":
                return
            self._on_wake(frozenset(message.decode().split(",")))

    def send(self, topics: Iterable[str], *, knows_others: bool = False) -> None:
        """Wakes every other process, now or within SEND_EVERY_S. Who `knows_others` has just sent to them."""
        with self._lock:
            is_sent_soon = self._late_sender is not None and self._unsent.issuperset(topics)
            if is_sent_soon or not (self._others if knows_others else self._has_receivers()):
                return
            is_first = not self._unsent
            self._unsent.update(topics)
            now = self._monotonic()
            if now - self._sent_at >= SEND_EVERY_S:
                self._sent_at = now
                self._send()
            elif self._late_sender is None:
                self._start_late_sender()
            elif is_first:
                self._lock.notify()

    def _start_late_sender(self) -> None:
        thread = threading.Thread(target=self._send_later, name="holdbeat-late-wakeups", daemon=True)
        # No commit fails because there is no thread to be had: what is unsent goes with the next wake-up.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._late_sender = thread

    def _send_later(self) -> None:
        with self._lock:
            while not self._is_closed:
                self._lock.wait_for(lambda: self._is_closed, SEND_EVERY_S)
                if self._unsent and self._has_receivers():
                    self._send()
                self._unsent.clear()
                self._lock.wait_for(lambda: self._is_closed or self._unsent)

    def _has_receivers(self) -> bool:
        try:
            status = os.lstat(self._folder)
            changed_at = status.st_mtime_ns
            if changed_at != self._seen_at or not self._is_settled:
                now = self._monotonic()
                if changed_at != self._seen_at:
                    self._seen_at, self._noticed_at = changed_at, now
                # A process that starts in the same tick of the file system's clock does not change the folder's time.
                self._is_settled = now - self._noticed_at > FOLDER_TICK_S
                names = os.listdir(self._folder) if self._is_ours(self._base, self._folder) else []
                paths = [os.path.join(self._folder, name) for name in names]
                self._others = [path for path in paths if path != self._own]
        except OSError:
            self._seen_at, self._others = -1, []  # whatever is there next time is looked at anew
            return False
        return bool(self._others)

    def _is_ours(self, *folders: str) -> bool:
        """Whether no other user can write to the folders or replace them."""
        if all(_owner_of(os.lstat(folder)) == os.geteuid() for folder in folders):
            return True
        if not self._is_foreign:
            log.warning(
                "%s is not a folder of this user alone, so other processes on this store are not told of new work at "
                "once: they find it by looking. Remove it, or set TMPDIR to a folder of this user.",
                self._folder,
            )
        self._is_foreign = True
        return False

    def _send(self) -> None:
        """Sends to all; a full or dead socket is skipped, because its process polls as well."""
        message = ",".join(sorted(self._unsent)).encode()
        self._unsent.clear()
        for address in self._others:
            try:
                self._sender.sendto(message, address)
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.lstat(address).st_mode):
                        os.unlink(address)
            except OSError:
                continue

    def close(self) -> None:
        """Sends what is still unsent, and listens no more."""
        with self._lock:
            self._is_closed = True
            self._lock.notify()
        if self._late_sender is not None:
            self._late_sender.join()
        with self._lock:
            if self._unsent:
                self._send()
            if self._socket is not None and self._own is not None:
                with contextlib.suppress(OSError):
                    self._sender.sendto(b"!", self._own)
                self._socket.close()
                with contextlib.suppress(OSError):
                    os.unlink(self._own)
                    os.rmdir(self._folder)
                self._socket = None
            self._sender.close()

    def after_fork_in_child(self) -> None:
        """Closes the sockets in a forked child: their names and messages are the parent's."""
        self._sender.close()
        if self._socket is not None:
            self._socket.close()


def _make_folder(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _owner_of(status: os.stat_result) -> int | None:
    """The owner of a folder, if it is one and others cannot even look into it."""
    return status.st_uid if stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077 else None
