"""Stores that know the job types of the tests, and one live server for all tests that need one."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from holdbeat import App
from holdbeat.settings import Settings
from tests.cli.command import WORK, Command
from tests.fork_server import start_module

CONCURRENCY = "resources:default=4,http=4,slow=2"


def announce(store: str) -> None:
    """Makes the store and lets it know the job types, as a first start of the App would."""
    names: dict[str, object] = {}
    exec(compile(WORK, "work.py", "exec"), names)
    app = names["app"]
    assert isinstance(app, App)
    app.settings = Settings.load({"store": store}, environ={})
    assert app.store
    app.close()


@pytest.fixture
def holdbeat(tmp_path: Path) -> Command:
    """The command on a new SQLite store that knows the job types; nothing runs there."""
    command = Command(tmp_path)
    announce(command.store)
    return command


@pytest.fixture
def postgres(tmp_path: Path, postgres_url: str) -> Command:
    """The same on PostgreSQL."""
    command = Command(tmp_path, postgres_url)
    announce(command.store)
    return command


@pytest.fixture(params=["holdbeat", "postgres"])
def on_either_store(request: pytest.FixtureRequest) -> Command:
    command: Command = request.getfixturevalue(request.param)
    return command


class Server:
    """`holdbeat serve work:app` in a process of its own."""

    def __init__(self, command: Command) -> None:
        self.command = command
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = command.folder / "serve.log"
        with self.log.open("w") as log:
            self.process = start_module(
                "holdbeat", "serve", "work:app", "--port", port, "--log-level", "warning",
                cwd=command.folder,
                env={**command.environment, "HOLDBEAT_CONCURRENCY": CONCURRENCY},
                stdout=log,
                stderr=log,
            )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                with urlopen(f"{self.url}/healthz", timeout=5):
                    return
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < until, self.log.read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A live server with a worker, one for all tests of this process."""
    running = Server(Command(tmp_path_factory.mktemp("server")))
    yield running
    running.stop()
