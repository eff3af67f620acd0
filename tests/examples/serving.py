"""The `holdbeat` command as a child process, and small web servers for it to talk to."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from holdbeat import Client
from tests.fork_server import start_module

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Holdbeat:
    """One `holdbeat serve` on a store of the test; it can be killed and started again."""

    def __init__(self, app: str | None, store: Path, folder: Path, **environment: str) -> None:
        self._words = ["serve", *([app] if app else []), "--store", f"sqlite:///{store}", "--port", "0"]
        self._log = folder / "serve.log"
        self._environment = environment
        self.start()

    def start(self) -> None:
        self._log.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDBEAT_")}
        with self._log.open("wb") as log:
            self.process = start_module(
                "holdbeat",
                *self._words,
                cwd=ROOT,
                env={**environment, "HOLDBEAT_SHUTDOWN_GRACE_S": "0.2", **self._environment},
                stdout=log,
                stderr=log,
            )
        until("the server answers", lambda: self._address() is not None)
        self.address = self._address() or ""
        self.client = Client(self.address)

    def _address(self) -> str | None:
        text = self._log.read_text()
        assert self.process.poll() is None, text
        match = re.search(r"serving on (http://\S+)", text)
        return match[1] if match else None

    def kill(self) -> None:
        """The process is gone, as when the power fails."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def stop(self) -> None:
        self.client.close()
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def serving(app: str | None, folder: Path, **environment: str) -> Iterator[Holdbeat]:
    holdbeat = Holdbeat(app, folder / "holdbeat.db", folder, **environment)
    try:
        yield holdbeat
    finally:
        holdbeat.stop()


@contextlib.contextmanager
def web_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server in a thread; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def until(what: str, is_true: Callable[[], object]) -> None:
    """Waits for something that another process does."""
    ends_at = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < ends_at, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.02)


def is_closed(client: Client, job_id: str) -> bool:
    """Whether the handler of a job has really ended."""
    run = client.get_job(job_id)["run"]
    return run is not None and run["finished_at"] is not None
