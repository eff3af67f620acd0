"""PgBouncer in transaction mode for tests: the installed one, or Debian's package unpacked into a cache."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

CACHE = Path.home() / ".cache" / "holdbeat-pgbouncer"
SERVERS = 3
"""Sessions of the server for all clients together: fewer than a store has connections, so that they must share."""


class PgBouncerMissing(Exception):
    """There is no PgBouncer to test with; the sentence says what to do."""


def find_program() -> str:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:{CACHE / 'usr/sbin'}")
    if program is None:
        _unpack_package()
        program = shutil.which("pgbouncer", path=str(CACHE / "usr/sbin"))
    if program is None:
        raise PgBouncerMissing("These tests need PgBouncer: install it, on Debian with apt-get install pgbouncer.")
    return program


def _unpack_package() -> None:
    """Without root: what it needs besides (libevent, c-ares) is unpacked beside it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "download", "-qq", "pgbouncer", "libevent-2.1-7", "libc-ares2"],
            cwd=CACHE, check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        for package in CACHE.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return  # the caller says what to do


@contextlib.contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """The URL of the same database through PgBouncer."""
    parts = urlsplit(url)
    with tempfile.TemporaryDirectory(prefix="holdbeat-pgbouncer-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={parts.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {SERVERS}\nmax_client_conn = 200\nserver_round_robin = 1\n"
        )
        os.chmod(folder, 0o755)
        user_id = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        program, libraries = _reachable(Path(find_program()), Path(folder))
        process = subprocess.Popen(
            [program, "-q", settings], env={**os.environ, "LD_LIBRARY_PATH": libraries}, user=user_id
        )
        try:
            _wait_for(port, process)
            user = parts.username or "postgres"
            yield urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}", query="", path=parts.path))
        finally:
            process.terminate()
            process.wait(10)


def _reachable(program: Path, folder: Path) -> tuple[Path, str]:
    """The program and its libraries where another account can go, which it can not to the cache of root."""
    if not program.is_relative_to(CACHE):
        return program, ""
    shutil.copytree(CACHE / "usr", folder / "usr", symlinks=True, ignore=shutil.ignore_patterns("share"))
    moved = folder / program.relative_to(CACHE)
    return moved, ":".join(str(path) for path in folder.glob("usr/lib/*"))


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise PgBouncerMissing(f"PgBouncer did not start (exit code {process.poll()}).")
