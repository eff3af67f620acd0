"""What an accepted job costs over HTTP beside an empty route, and whether many listeners keep up with many jobs.

Prints one line of JSON per store. The servers take turns; while one is measured the others are stopped, so that they
take nothing from it, and ratios are taken within rounds. The empty route is one of the same server that stores the
jobs: the same checks of access, a body of the same size that is read and parsed, an answer of the same size that is
encoded. The bare route is Starlette's, behind the same HTTP server, and does none of that.

Callers and server share the machine's cores. Where these are few, requests per second say less about the server than
its processor time for each request (`cpu_us`, `cpu_ratio`).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import progress
from tests.postgres import PostgresServer

CONNECTIONS = 64
BATCH = 50
PATIENCE_S = 120.0
VARIANTS = {
    "bare": ("bare", "/api/jobs"),
    "empty": ("no_worker", "/api/empty"),
    "no_worker": ("no_worker", "/api/jobs"),
    "worker": ("worker", "/api/jobs"),
}
"""What is measured: a server, and a path of it."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    listeners: int
    jobs: int
    jobs_per_s: int


FULL = Extent(rounds=7, seconds=4.0, listeners=500, jobs=5_000, jobs_per_s=500)
QUICK = Extent(rounds=3, seconds=2.0, listeners=500, jobs=1_500, jobs_per_s=500)


class Server:
    """A process that serves on a port of this machine."""

    def __init__(self, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        kind, *rest = arguments
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.api_server", kind, str(self.port), *rest])
        self.pid = self._process.pid

    def wait_until_ready(self) -> None:
        """Returns once anything is answered: the port is taken some time before that."""
        until = time.monotonic() + PATIENCE_S
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/healthz")
                connection.getresponse()
                return
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("a server did not start; what it said stands above")
            time.sleep(0.05)

    def halt(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def memory_mb(self, name: str) -> float:
        """`VmRSS`, what it has in memory now; `VmHWM`, the most it ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return round(int(line.split()[1]) / 1024, 1)
        raise RuntimeError(f"the system does not tell {name}")

    def close(self) -> None:
        # Nothing of the store is kept, so nothing need be waited for.
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    server = Server(*arguments)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.close()


def load(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.api_load", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> dict[str, float]:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("the callers failed; what they said stands above")
    figures: dict[str, float] = json.loads(output)
    return figures


# --- requests ---------------------------------------------------------------------------------------------


def requests(new_store: Callable[[], str], extent: Extent) -> dict[str, Any]:
    """POST /api/jobs without and with a worker beside empty routes."""
    by_name: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    with contextlib.ExitStack() as stack:
        servers = {
            "bare": stack.enter_context(serving("bare")),
            "no_worker": stack.enter_context(serving("holdbeat", new_store(), "0")),
            "worker": stack.enter_context(serving("holdbeat", new_store(), "1")),
        }
        for server in servers.values():
            server.halt()
        for number in range(extent.rounds):
            for name, (server_name, path) in VARIANTS.items():
                server = servers[server_name]
                server.go_on()
                callers = load("post", path, server.port, server.pid, CONNECTIONS, extent.seconds)
                by_name[name].append(result_of(callers))
                server.halt()
            output = ", ".join(
                f"{name} {each[-1]['per_s']:,.0f}/s {each[-1]['cpu_us']:,.0f} µs" for name, each in by_name.items()
            )
            progress(f"  round {number + 1}: {output}")
    figures: dict[str, Any] = {
        "connections": CONNECTIONS,
        "bare_per_s": round(_median(by_name["bare"], "per_s")),
        "bare_cpu_us": round(_median(by_name["bare"], "cpu_us")),
        "empty_per_s": round(_median(by_name["empty"], "per_s")),
        "empty_cpu_us": round(_median(by_name["empty"], "cpu_us")),
    }
    for name in ("no_worker", "worker"):
        pairs = list(zip(by_name[name], by_name["empty"], strict=True))
        figures[name] = {
            "per_s": round(_median(by_name[name], "per_s")),
            "ratio": round(statistics.median(one["per_s"] / other["per_s"] for one, other in pairs), 3),
            "p50_ms": round(_median(by_name[name], "p50_ms"), 1),
            "p99_ms": round(_median(by_name[name], "p99_ms"), 1),
            "cpu_us": round(_median(by_name[name], "cpu_us")),
            "cpu_ratio": round(statistics.median(other["cpu_us"] / one["cpu_us"] for one, other in pairs), 3),
        }
    return figures


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(item[name] for item in found)


# --- event streams ----------------------------------------------------------------------------------------


def streams(store: str, extent: Extent) -> dict[str, Any]:
    """Listeners of /api/events while jobs are submitted at an even pace and finish."""
    with serving("holdbeat", store, "64") as server:
        listening = load("listen", server.port, extent.listeners, extent.jobs, PATIENCE_S)
        assert listening.stdout is not None
        if listening.stdout.readline().strip() != "listening":
            raise RuntimeError("the listeners were not let in; what they said stands above")
        _submit(server.port, extent)
        figures = result_of(listening)
        return {
            "listeners": extent.listeners,
            "jobs": extent.jobs,
            "all_seen": bool(figures["all_seen"]),
            "events": int(figures["events"]),
            "finished_per_s": round(figures["finished_per_s"]),
            "lag_p50_s": round(figures["lag_p50_s"], 3),
            "lag_max_s": round(figures["lag_max_s"], 3),
            "rss_mb": server.memory_mb("VmRSS"),
            "rss_max_mb": server.memory_mb("VmHWM"),
        }


def _submit(port: int, extent: Extent) -> None:
    body = json.dumps({"jobs": [{"type": "noop"}] * BATCH}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    begin = time.monotonic()
    for number in range(extent.jobs // BATCH):
        time.sleep(max(0.0, begin + number * BATCH / extent.jobs_per_s - time.monotonic()))
        connection.request("POST", "/api/jobs/batch", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 201:
            raise RuntimeError(f"a batch was answered with {answer.status}")
    connection.close()


def measure(name: str, new_store: Callable[[], str], extent: Extent, parts: set[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {"store": name}
    if "requests" in parts:
        progress(f"{name}: requests from {CONNECTIONS} connections")
        figures |= requests(new_store, extent)
    if "streams" in parts:
        progress(f"{name}: {extent.listeners} listeners, {extent.jobs_per_s} jobs/s")
        figures["streams"] = streams(new_store(), extent)
    return figures


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a first impression")
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both", help="only this store")
    parser.add_argument("--part", choices=("requests", "streams"), action="append", help="only this part")
    parser.add_argument("--folder", help="where the SQLite files go; must be on a disk")
    options = parser.parse_args(argv)
    extent = QUICK if options.quick else FULL
    parts = set(options.part or ("requests", "streams"))
    with contextlib.ExitStack() as stack:
        if options.store != "postgres":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdbeat-bench-", dir=options.folder))
            numbers = iter(range(100))
            figures = measure("sqlite", lambda: f"sqlite:///{folder}/api-{next(numbers)}.db", extent, parts)
            print(json.dumps(figures), flush=True)
        if options.store != "sqlite":
            server = stack.enter_context(PostgresServer(durable=True))
            print(json.dumps(measure("postgres", server.create_database, extent, parts)), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
