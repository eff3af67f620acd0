"""Locks on files that live as long as the open file that took them.

Guards LEASE-05: a POSIX lock ends as soon as its process closes *any* descriptor of the file, so a handler that only
reads the file would take its worker's sign of life away. These end with the last descriptor of the one that was opened
to be locked: when it is closed, or its process dies. A child that was forked holds it too, until it lets go.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

if sys.platform == "linux":
    # Of one kind with POSIX locks: each sees the other's, so programs of different versions understand one another.
    _FLOCK = "hhqqi4x"

    def hold(descriptor: int) -> None:
        """Locks the open file; an OSError if somebody else holds it."""
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))

    def is_held(descriptor: int) -> bool:
        """Whether another open file, of any process, holds the lock; nothing is locked to find out."""
        query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, query)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

else:

    def hold(descriptor: int) -> None:
        """Locks the open file; an OSError if somebody else holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_held(descriptor: int) -> bool:
        """Whether another open file, of any process, holds the lock."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False
