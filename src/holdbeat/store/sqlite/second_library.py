"""Finds and refuses a second SQLite library, or any other open file, on the file of a store in this process.

Guards STO-01. POSIX locks belong to a process, not to a library: two copies of SQLite in one process (ours in apsw,
another in Python's sqlite3) do not see each other's locks, and closing any descriptor of the file drops all of them.
Both then write the same log, and transactions that were reported as stored are lost. Other processes are safe.

- An audit hook refuses `sqlite3.connect` and `open` on the file of an open store before they happen.
- A look at the process's own descriptors finds what the hook cannot see: connections that were made before the store
  was opened, ATTACH, other native libraries. It is done before a store is opened and about once a second after that.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
import weakref
from typing import Any
from urllib.parse import unquote_to_bytes

import apsw

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import Conflict, StoreRefused

POLL_EVERY_S = 1.0
POLL_PAUSE_RATIO = 100
"""A check costs about 5 µs for each descriptor of the process; one with very many is checked less often."""
CHECKS, BETWEEN_CHECKS_S = 50, 0.01
"""A descriptor counts as foreign only if it stays unexplained for so many checks: a connection of our own library that
another thread is just opening has a descriptor before it is known."""
FOLDER = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
DESCRIPTOR_OFFSET = 3 * ctypes.sizeof(ctypes.c_void_p)
"""Where SQLite's unixFile keeps its descriptor: after three pointers. What is read there is checked with fstat."""

log = logging.getLogger("holdbeat.store")

Inode = tuple[int, int]

_RIGHT_WAYS = (
    "For tables of your own in the store's file use `with app.connection() as connection:`; or keep them in another "
    "file; or open the store's file in another process."
)


class _StoreFile:
    """A file that stores of this process have open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stores = 0
        self.own: set[int] = set()
        """Descriptors of our own library. It closes none of them as long as a store holds its lock on the file."""


_files: dict[Inode, _StoreFile] = {}
_indexes: dict[Inode, _StoreFile] = {}
"""The same by the inodes of the logs' indexes (-shm): closing one of them drops the locks of the transactions."""
_lock = threading.Lock()
_descriptors: weakref.WeakKeyDictionary[apsw.Connection, int] = weakref.WeakKeyDictionary()
_is_hook_installed = False


class SecondLibraryWatch:
    """One store's part in the watch over its file, from before it is opened until it is closed."""

    poll_every_s = POLL_EVERY_S
    poll_pause_ratio = POLL_PAUSE_RATIO

    def __init__(self, path: str, inode: Inode) -> None:
        """Refuses the file if something else in this process has it open."""
        _install_hook()
        self.inode = inode
        self._index: Inode | None = None
        self._monotonic = SystemClock().monotonic
        with _lock:
            self._file = _files.get(inode) or _StoreFile(path)
            _files[inode] = self._file
            self._file.stores += 1
        self._is_registered = True
        try:
            self._refuse_foreign("It is not opened.")
        except BaseException:
            self.end()
            raise
        self._poll_at = self._monotonic() + self.poll_every_s

    def opened(self, connection: apsw.Connection) -> None:
        """Called with one of the store's connections when they are open: now its log's index is there, too."""
        if _descriptor_of(connection, "main") not in descriptors_of(self.inode):
            self._poll_at = float("inf")
            log.warning(
                "This version of SQLite (%s) does not tell which descriptors are its own, so Holdbeat cannot see "
                "whether another SQLite library uses the store's file in this process. Use the version of apsw that "
                "Holdbeat was tested with.",
                apsw.sqlite_lib_version(),
            )
        with contextlib.suppress(OSError), _lock:
            self._index = _inode_of(os.stat(f"{self._file.path}-shm"))
            _indexes[self._index] = self._file

    def check(self) -> None:
        """Looks for foreign descriptors, if it is time to."""
        now = self._monotonic()
        if now >= self._poll_at:
            self._poll_at = now + self.poll_every_s
            self.check_now()
            after = self._monotonic()
            self._poll_at = after + max(self.poll_every_s, self.poll_pause_ratio * (after - now))

    def check_now(self) -> None:
        """Looks for foreign descriptors."""
        self._refuse_foreign("Nothing more is written.")

    def end(self) -> None:
        """Called when the store's connections are closed."""
        with _lock:
            if not self._is_registered:
                return
            self._is_registered = False
            self._file.stores -= 1
            if self._file.stores == 0 and _files.get(self.inode) is self._file:
                del _files[self.inode]
                if self._index is not None:
                    _indexes.pop(self._index, None)

    def _refuse_foreign(self, consequence: str) -> None:
        foreign = _foreign_descriptors(self._file, self.inode)
        for _ in range(CHECKS):
            if not foreign:
                return
            time.sleep(BETWEEN_CHECKS_S)
            foreign &= _foreign_descriptors(self._file, self.inode)
        if foreign:
            raise StoreRefused(
                f"The store {self._file.path} is open a second time in this process, not by Holdbeat (descriptor "
                f"{min(foreign)}): by another SQLite library, as Python's sqlite3, SQLAlchemy and Django use it, or as "
                f"a plain file. Jobs would get lost: the two do not see each other's locks. {consequence} Close it, "
                f"and start again. {_RIGHT_WAYS}",
                code="second_sqlite_library",
            )


def descriptors_of(inode: Inode) -> set[int]:
    """The descriptors of this process that have the file open."""
    try:
        names = [int(name) for name in os.listdir(FOLDER)]
    except OSError:
        names = list(range(1024))
    matching, number = set(), inode[1]
    for descriptor in names:
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue  # closed meanwhile, as the one with which the folder was listed
        if status.st_ino == number and _inode_of(status) == inode:
            matching.add(descriptor)
    return matching


def _inode_of(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


def _foreign_descriptors(file: _StoreFile, inode: Inode) -> set[int]:
    """Descriptors of the file that our own library did not open; none if that cannot be told just now."""
    unexplained = descriptors_of(inode) - file.own
    if not unexplained:
        return unexplained
    live, is_complete = _live_descriptors()
    live &= unexplained
    file.own |= live
    unexplained -= live
    if unexplained and file.own:
        kept = _kept_descriptors(file.path, inode)
        file.own |= kept
        unexplained -= kept
    return unexplained if is_complete else set()


def _live_descriptors() -> tuple[set[int], bool]:
    """The descriptors of all open connections of our library, and whether every connection could be asked."""
    live, is_complete = set(), True
    for connection in apsw.connections():
        try:
            known = _descriptors.get(connection)
            live.add(_descriptor_of(connection, "main") if known is None else known)
            live.update(_descriptor_of(connection, name) for name in connection.db_names()[2:])
        except apsw.ThreadingViolationError:
            is_complete = False  # another thread uses it just now
        except apsw.Error:
            continue  # it was closed or detached meanwhile
    return live, is_complete


def _kept_descriptors(path: str, inode: Inode) -> set[int]:
    """Descriptors of closed connections, which SQLite keeps for the next ones as long as it holds a lock on the file.

    New connections are given them, so we make some until one has a descriptor that was not there before.
    """
    kept: set[int] = set()
    for flags in (apsw.SQLITE_OPEN_READWRITE, apsw.SQLITE_OPEN_READONLY):
        connections: list[apsw.Connection] = []
        before = descriptors_of(inode)
        try:
            while not connections or _descriptor_of(connections[-1], "main") in before:
                connections.append(apsw.Connection(path, flags=flags))
                kept.add(_descriptor_of(connections[-1], "main"))
        except apsw.Error:
            pass  # the file is gone or cannot be opened: others say so
        finally:
            for connection in connections:
                connection.close()
    return kept


def _descriptor_of(connection: apsw.Connection, database: str) -> int:
    """The descriptor with which our library has a database's file open; -1 if it has none."""
    if not connection.open_vfs.startswith("unix"):
        return -1
    pointer = ctypes.c_void_p()
    connection.file_control(database, apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(pointer))
    return ctypes.c_int.from_address(pointer.value + DESCRIPTOR_OFFSET).value if pointer.value else -1


def _remember(connection: apsw.Connection) -> None:
    """Remembers the descriptor of each new connection, in the thread that makes it: none other may use it yet."""
    with contextlib.suppress(apsw.Error, OSError):
        descriptor = _descriptor_of(connection, "main")
        _descriptors[connection] = descriptor
        file = _files.get(_inode_of(os.fstat(descriptor))) if descriptor > 0 else None
        if file is not None:
            file.own.add(descriptor)


# --- the audit hook --------------------------------------------------------------------------------------


def _install_hook() -> None:
    global _is_hook_installed
    with _lock:
        if not _is_hook_installed:
            apsw.connection_hooks.append(_remember)
            sys.addaudithook(_audit)
            _is_hook_installed = True


def _audit(event: str, args: tuple[Any, ...]) -> None:
    """Called by Python for each event; so it returns at once for all that do not matter."""
    if event == "open":
        if _files and (file := _store_file_at(args[0], (_files, _indexes))) is not None:
            raise Conflict(
                f"{file.path} is the file of a store that is open in this process, so it cannot be opened as a plain "
                "file here: closing it would drop the store's locks, and jobs would get lost. To copy it use "
                "`holdbeat backup`, or do it in another process.",
                code="store_in_use",
            )
    elif event == "sqlite3.connect" and _files:
        for path in _paths_of(args[0]):
            if (file := _store_file_at(path, (_files,))) is not None:
                raise Conflict(
                    f"{file.path} is the file of a store that is open in this process, so a second SQLite library "
                    "(Python's sqlite3, which SQLAlchemy and Django use) cannot open it here: the two do not see each "
                    f"other's locks, and jobs would get lost. {_RIGHT_WAYS}",
                    code="second_sqlite_library",
                )


def _store_file_at(path: Any, files: tuple[dict[Inode, _StoreFile], ...]) -> _StoreFile | None:
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    try:
        inode = _inode_of(os.stat(path))
    except (OSError, ValueError, TypeError):
        return None
    return next((paths[inode] for paths in files if inode in paths), None)


def _paths_of(database: Any) -> list[Any]:
    """The files that the argument of `sqlite3.connect` may mean: the event does not say whether it is a URI."""
    try:
        text = os.fsdecode(database)
    except (TypeError, ValueError):
        return []
    if not text.startswith("file:"):
        return [text]
    name = text.removeprefix("file:").partition("#")[0].partition("?")[0]
    if name.startswith("//"):
        name = "/" + name[2:].partition("/")[2]
    return [text, unquote_to_bytes(os.fsencode(name))]


def _forget_files() -> None:
    """In a forked child: its parent's stores are not its own, and their connections are closed here."""
    global _lock
    _lock = threading.Lock()
    _files.clear()
    _indexes.clear()


os.register_at_fork(after_in_child=_forget_files)
