"""The processes of a torture: started, killed, stopped for a while, and always ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdbeat.domain.clock import SystemClock
from holdbeat.torture import witness
from holdbeat.torture.witness import read_notes

END_WITHIN_S = 60.0
CANNOT_START = 5
"""Exit code of a worker that could not reach the store when it started: another is started in its place."""
_now = SystemClock().monotonic


@dataclass
class Worker:
    name: str
    popen: subprocess.Popen[bytes]
    stopped_at: float | None = None
    """When it was stopped, while it is."""

    @property
    def is_alive(self) -> bool:
        return self.popen.poll() is None


@dataclass
class WorkerPool:
    """Some workers on one store. Remembers what was done to them, for the checker."""

    settings: dict[str, Any]
    folder: Path
    count: int
    module: str = "holdbeat.torture.worker"
    environment: dict[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    deaths: list[dict[str, Any]] = field(default_factory=list)
    frozen: list[dict[str, Any]] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    """Processes that ended unasked, with the end of their log."""
    started: int = 0

    def fill(self) -> None:
        """Starts as many as are missing."""
        for worker in [worker for worker in self.workers if not worker.is_alive]:
            code = worker.popen.returncode
            could_not_start = code == CANNOT_START and not self._has_worked(worker)
            fault = f"{worker.name} ended by itself with {code}:\n{self._log_tail(worker)}"
            self._remove(worker, None if could_not_start else fault)
        while len(self.workers) < self.count:
            self._start()

    def _start(self) -> None:
        self.started += 1
        name = f"worker-{self.started}"
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("HOLDBEAT_")},
            **self.environment,
            witness.FOLDER: str(self.folder / "witness"),
            witness.PROCESS: name,
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", self.module, json.dumps(self.settings)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        self.workers.append(Worker(name, popen))

    def _has_worked(self, worker: Worker) -> bool:
        """Whether it has begun a job or a request: those that could not start have not, but may have asked for one."""
        notes = read_notes(self.folder / "witness", worker.name)
        return any(entry["kind"] == "start" for entry in notes)

    def _log_tail(self, worker: Worker) -> str:
        return "\n".join((self.folder / f"{worker.name}.log").read_text(errors="replace").splitlines()[-15:])

    def _remove(self, worker: Worker, why: str | None = None) -> None:
        self.workers.remove(worker)
        if worker.popen.stdin is not None:
            worker.popen.stdin.close()
        if why is not None:
            self.deaths.append({"process": worker.name, "monotonic": _now()})
            self.unexpected.append(why)

    # --- faults ----------------------------------------------------------------------------------------------

    def kill(self, worker: Worker) -> None:
        """SIGKILL. What the process did until then counts until the signal was sent."""
        if worker.stopped_at is not None:
            self.frozen.append({"process": worker.name, "since": worker.stopped_at, "until": _now()})
        self.deaths.append({"process": worker.name, "monotonic": _now()})
        worker.popen.kill()
        worker.popen.wait()
        self._remove(worker)

    def stop(self, worker: Worker) -> None:
        """SIGSTOP to the process and to those that it started."""
        with contextlib.suppress(ProcessLookupError):
            worker.stopped_at = _now()
            for pid in tree(worker.popen.pid):
                os.kill(pid, signal.SIGSTOP)

    def cont(self, worker: Worker) -> None:
        if worker.stopped_at is None:
            return
        since, worker.stopped_at = worker.stopped_at, None
        self.frozen.append({"process": worker.name, "since": since, "until": _now()})
        for pid in reversed(list(tree(worker.popen.pid))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def shut_down(self, worker: Worker) -> int | None:
        """SIGTERM, and its exit code; None if it did not end in time and was killed."""
        self.cont(worker)
        worker.popen.terminate()
        try:
            code = worker.popen.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill(worker)
            return None
        self._remove(worker)
        return code

    def close(self) -> None:
        """Ends all of them, whatever state they are in."""
        for worker in list(self.workers):
            with contextlib.suppress(ProcessLookupError):
                self.kill(worker)


def tree(pid: int) -> Iterator[int]:
    """A process and all that descend from it, parents first; where the system does not say, the process alone."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from tree(int(child))
