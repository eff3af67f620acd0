"""The watcher's program: waits for the worker's end, then kills the process groups and processes of its runs.

Run as a script without site-packages, so that it starts quickly and takes little memory, and with all signals blocked
that are meant to end a worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def main(directory: str, worker: str) -> None:
    sys.path.append(directory)  # last, for some of our modules are named like the standard library's
    from die_with_parent import continue_when_parent_dies  # type: ignore[import-not-found]
    from marked_processes import kill_marked  # type: ignore[import-not-found]

    continue_when_parent_dies()
    groups: dict[str, int] = {}
    unread = b""
    for data in _messages(int(worker)):
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            run_id, _, group = line[1:].decode().partition(" ")
            if line.startswith(b"+"):
                groups[run_id] = int(group)
            else:
                groups.pop(run_id, None)
    for process_group in groups.values():
        with contextlib.suppress(OSError):
            os.killpg(process_group, signal.SIGKILL)
    if groups:
        kill_marked(groups)


def _messages(worker: int) -> Iterator[bytes]:
    """Yields messages of the worker until it dies. A fork of it may keep the pipe open, so its own end is watched."""
    os.set_blocking(0, False)
    is_dead = False
    waiting = [0]
    if hasattr(os, "pidfd_open"):
        try:
            waiting.append(os.pidfd_open(worker))
        except OSError:
            is_dead = True
    while True:
        if not is_dead:
            ready, _, _ = select.select(waiting, [], [])
            is_dead = ready != [0]
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            if is_dead:
                return
            continue
        if not data:
            return
        yield data


if __name__ == "__main__":
    main(*sys.argv[1:])
