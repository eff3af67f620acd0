"""Real processes of Holdbeat for tests: started, told, frozen, killed, and always ended with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdbeat import App
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from tests.crash import jobs
from tests.engine.acting import job, rows
from tests.fork_server import start_module
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Process:
    """One `holdbeat worker` or `holdbeat serve`."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self._popen = popen
        self._log = log
        self.pid = popen.pid

    def output(self) -> str:
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether all threads of the process are stopped."""
        states = set()
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
                # The name of the program stands in parentheses before the state, and may hold any character.
                states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
        return states == {"T"}

    def exit_code(self, within_s: float = PATIENCE_S) -> int:
        return self._popen.wait(within_s)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._popen.wait()

    def end(self) -> None:
        if self._popen.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()


class Field:
    """A store and the processes that work on it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.diary = str(folder / "diary")
        self.app = App(url, concurrency="resources:default=1,many=100")
        self.app._types = jobs.app._types
        self._processes: list[Process] = []

    @property
    def store(self) -> PersistenceAdapter:
        return self.app.store

    def start(
        self,
        verb: str = "worker",
        *flags: str,
        ready: bool = True,
        program: str = "holdbeat",
        program_app: str = "tests.crash.jobs:app",
        **settings: Any,
    ) -> Process:
        """Starts a process, and waits until it is on record as a worker."""
        environment = {
            **os.environ,
            "HOLDBEAT_STORE": self.url,
            "HOLDBEAT_CONCURRENCY": "resources:default=1,many=100",
            "HOLDBEAT_PORT": "0",
            **{name if name.isupper() else f"HOLDBEAT_{name.upper()}": str(value) for name, value in settings.items()},
        }
        log = self.folder / f"process-{len(self._processes)}.log"
        with log.open("wb") as stream:
            popen = start_module(
                program, verb, program_app, "--store", self.url, *flags,
                cwd=ROOT, env=environment, stdout=stream, stderr=stream,
            )  # fmt: skip
        process = Process(popen, log)
        self._processes.append(process)
        if ready:
            eventually(
                lambda: rows(
                    self.store, "SELECT id FROM workers WHERE pid = :pid AND stopped_at IS NULL", pid=popen.pid
                ),
                details=process.output,
            )
        return process

    def freeze(self, process: Process) -> None:
        """Stops a process inside a write transaction of the test's own store.

        Only one process at a time writes to a SQLite file, so the stopped process does not hold the write lock.
        """

        def stop(tx: Transaction) -> None:
            process.send(signal.SIGSTOP)
            eventually(process.is_stopped, details=process.output)

        self.store.write_sync(stop)

    def noted(self, word: str) -> list[list[str]]:
        path = Path(self.diary)
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.startswith(word)]

    def job(self, job_id: str) -> Any:
        return job(self.store, job_id)

    def close(self) -> None:
        for process in self._processes:
            process.end()
        self.app.close()


@contextlib.contextmanager
def field(url: str, folder: Path) -> Iterator[Field]:
    """A field whose processes are ended whatever happens."""
    made = Field(url, folder)
    try:
        yield made
    finally:
        made.close()
