"""OpenFile: the store's file as one process has it open."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from datetime import datetime

import apsw

from holdbeat.domain.errors import StoreRefused
from holdbeat.store.sqlite.damage_record import record_damage
from holdbeat.store.sqlite.errors import translated
from holdbeat.store.sqlite.file import MEMORY, FileIdentity, connect_reader, keep_deleted_log, open_file
from holdbeat.store.sqlite.log_growth import preallocate_log

log = logging.getLogger("holdbeat.store")

PREALLOCATED_AFTER = 16
"""Commits after which a process brings the log to its full size; one that ends before that would not gain by it."""


class OpenFile:
    """A connection that writes, connections that read, and the checks that the file is still the one they opened."""

    def __init__(self, path: str, *, create: bool, readers: int, indexes: Mapping[str, str]) -> None:
        self.path = path
        self._commits = 0
        self.writer, self._watch = open_file(path, create=create, indexes=indexes)
        # All of them before the file is looked at: one that came later could open a log that is not the first one's.
        self.readers: list[apsw.Connection] = []
        """None for a store in memory, which other connections cannot see."""
        try:
            if path != MEMORY:
                self.readers += [connect_reader(path) for _ in range(readers)]
            self._identity = FileIdentity(path, None if self._watch is None else self._watch.inode)
            if self._watch is not None:
                self._watch.opened(self.writer)
        except BaseException:
            for connection in (*self.readers, self.writer):
                connection.close()
            if self._watch is not None:
                self._watch.end()
            raise

    @property
    def _connections(self) -> tuple[apsw.Connection, ...]:
        return self.writer, *self.readers

    def check(self) -> None:
        """Refuses a file that is not the one we opened, or that something else in this process has open, too."""
        self._identity.check()
        if self._watch is not None:
            self._watch.check()

    def begun(self) -> None:
        """Called in every transaction of the writer before it writes."""
        self._commits += 1
        if self._commits == PREALLOCATED_AFTER and self.path != MEMORY:
            preallocate_log(self.path)

    def cause_of(self, refusal: StoreRefused) -> StoreRefused:
        """The same refusal, or what has led to it: two libraries that do not see each other's locks damage the file."""
        if refusal.code == "store_corrupt" and self._watch is not None:
            try:
                self._watch.check_now()
            except StoreRefused as cause:
                return cause
        return refusal

    def record_refusal(self, refusal: StoreRefused, now: datetime) -> None:
        """Writes beside the file why it is not used any more, and keeps what is only in a deleted log."""
        record_damage(self.path, refusal, now)
        keep_deleted_log(refusal, self._identity, self._connections)

    def close(self) -> None:
        """Closes the writer's connection; each reader closes its own."""
        try:
            self.writer.close()
        except apsw.Error as error:
            # All that was reported as stored is in the file or in its log, which the next process reads.
            log.warning("the store was not closed in order: %s", translated(error, self.path))
        if self._watch is not None:
            self._watch.end()

    def close_all(self) -> None:
        """Closes the readers' connections as well, of a store whose threads were never started."""
        for connection in self.readers:
            connection.close()
        self.close()

    def after_fork_in_child(self) -> None:
        """Closes all connections in a forked child, without a checkpoint, a lock, or a change of the file."""
        for connection in self._connections:
            with contextlib.suppress(apsw.Error):
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()
