"""The servers of a run, each started here on loopback and gone afterwards, and the places they have for jobs."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from benchmarks.peers.environments import NotRun
from benchmarks.peers.processes import parent_of
from tests.postgres import PostgresServer

START_LIMIT_S = 20.0
INSTALL_LIMIT_S = 300


class RedisServer:
    """Redis with an append-only file that is synced once a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> None:
        """Starts the server; without the program says so, after trying to install Debian's package as root."""
        if self._process is not None:
            return
        program = shutil.which("redis-server") or _install_redis()
        if program is None or shutil.which("redis-cli") is None:
            raise NotRun("needs redis-server and redis-cli: install the package redis-server")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._folder.mkdir(exist_ok=True)
        options = {"port": str(self._port), "bind": "127.0.0.1", "dir": str(self._folder), "save": ""}
        options |= {"appendonly": "yes", "appendfsync": "everysec"}
        self._process = subprocess.Popen(
            [program, *itertools.chain.from_iterable((f"--{name}", value) for name, value in options.items())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        give_up = time.monotonic() + START_LIMIT_S
        while self._process.poll() is None and time.monotonic() < give_up:
            if self._answer("ping") == "PONG":
                return
            time.sleep(0.02)
        self.close()
        raise NotRun("redis-server did not start")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def clear(self) -> None:
        self._answer("flushall")

    def number(self, *command: str) -> int:
        """The answer to a command that counts."""
        return int(self._answer(*command))

    def version(self) -> str:
        return next(
            line.partition(":")[2] for line in self._answer("info", "server").splitlines() if "redis_version" in line
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _answer(self, *command: str) -> str:
        return subprocess.run(
            ["redis-cli", "-p", str(self._port), *command], capture_output=True, text=True, check=False, timeout=30
        ).stdout.strip()


def _install_redis() -> str | None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ["apt-get", "install", "--yes", "--no-install-recommends", "redis-server"],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=INSTALL_LIMIT_S,
            )
    return shutil.which("redis-server")


def _own_postgres() -> PostgresServer:
    """A server of this run alone, whose settings and CPU time are known, whatever HOLDBEAT_TEST_PG names."""
    other = os.environ.pop("HOLDBEAT_TEST_PG", None)
    try:
        return PostgresServer(durable=True)
    finally:
        if other is not None:
            os.environ["HOLDBEAT_TEST_PG"] = other


class Servers:
    """All that a run needs outside its own process: a folder on a disk, PostgreSQL with fsync, and Redis."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        self.postgres = _own_postgres()
        self.redis = RedisServer(folder / "redis")

    def __enter__(self) -> Self:
        self.postgres.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.redis.close()
        self.postgres.__exit__(kind, error, trace)

    def new_file(self) -> str:
        """The path of a SQLite file that is not there yet."""
        return str(self.folder / f"store-{next(self._numbers)}.db")

    def new_database(self) -> str:
        """An empty database, after a checkpoint: nobody pays for what was written before."""
        url = self.postgres.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        return url

    def postgres_pid(self) -> int:
        """The server's first process, whose descendants are all others."""
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            return parent_of(row[0])

    def postgres_version(self) -> str:
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            row = connection.execute("SHOW server_version").fetchone()
            assert row is not None
            return str(row[0])
