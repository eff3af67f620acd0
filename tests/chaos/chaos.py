"""Real processes on both stores under every fault that this machine allows, and the checker's verdict.

    python -m tests.chaos.chaos --minutes 60 [--engine sqlite|postgres|both] [--seed n]

The torture of the product, with faults that only a test may cause: the database restarts, answers to COMMIT are
swallowed, somebody keeps a snapshot open, the disk is full, and the wall clock jumps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import psycopg

from holdbeat.domain import clock
from holdbeat.torture.campaign import Campaign, Fault, Terms, Verdict
from tests.chaos.shifted_worker import SHIFT, shifted_now
from tests.conformance.fault_proxy import Cut, FaultProxy
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
DISK_MB = 64
SUBMISSION_KB = 16
"""What a submission leaves on the disk with its runs and events; a long campaign needs room for all of it."""
JUMP_MAX_S = 10.0
Told = Callable[[str], None]


@contextlib.contextmanager
def shifted_clock(folder: Path) -> Iterator[tuple[dict[str, str], Fault]]:
    """The environment of workers whose wall clock can jump, and the fault that lets it jump, here too."""
    path = folder / "shift"
    path.write_text("0")

    def jump(campaign: Campaign) -> None:
        part = folder / "shift.part"
        part.write_text(str(round(campaign.choice.uniform(-JUMP_MAX_S, JUMP_MAX_S), 3)))
        part.rename(path)

    before = clock.SystemClock.now
    os.environ[SHIFT] = str(path)
    clock.SystemClock.now = shifted_now  # type: ignore[method-assign]
    try:
        yield {SHIFT: str(path)}, jump
    finally:
        clock.SystemClock.now = before  # type: ignore[method-assign]
        del os.environ[SHIFT]


@contextlib.contextmanager
def small_disk(folder: Path, told: Told, size_mb: int) -> Iterator[tuple[Path, dict[str, Fault]]]:
    """A disk of its own that can be filled; where none may be mounted, the folder, and no such fault."""
    mount = folder / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(mount)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        refusal = mounted.stderr.strip() if mounted.returncode else ""
    except OSError as error:
        refusal = str(error)
    if refusal:
        told(f"disk full: left out, since no small disk may be mounted here ({refusal})")
        yield mount, {}
        return
    timers: list[threading.Timer] = []

    def fill(campaign: Campaign) -> None:
        ballast = mount / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as stream:
            while True:
                stream.write(bytes(1 << 20))
                stream.flush()
        timer = threading.Timer(campaign.choice.uniform(0.3, 2.0), lambda: ballast.unlink(missing_ok=True))
        timers.append(timer)
        timer.start()

    try:
        yield mount, {"disk full": fill}
    finally:
        for timer in timers:
            timer.join()
        subprocess.run(["umount", "--lazy", str(mount)], check=False)


def on_sqlite(terms: Callable[..., Terms], folder: Path, told: Told, submissions: float) -> Verdict:
    size_mb = DISK_MB + int(submissions * SUBMISSION_KB / 1024)
    with shifted_clock(folder) as (environment, jump), small_disk(folder, told, size_mb) as (disk, disk_faults):
        faults: dict[str, Fault] = {"clock jumped": jump, **disk_faults}
        store = f"sqlite:///{disk / 'chaos.db'}"
        return Campaign(
            terms(
                store=store, folder=folder, more_faults=faults, environment=environment, wall_is_steady=False,
                worker_module="tests.chaos.shifted_worker",
            )
        ).run()  # fmt: skip


def on_postgres(terms: Callable[..., Terms], folder: Path, told: Told, submissions: float) -> Verdict:
    with PostgresServer() as server:
        url = server.create_database()
        proxy = FaultProxy(url)

        def restart(campaign: Campaign) -> None:
            server.restart(campaign.choice.choice(["immediate", "fast"]))

        def cut(campaign: Campaign) -> None:
            proxy.arm(campaign.choice.choice(get_args(Cut)))

        snapshot = contextlib.ExitStack()

        def keep_snapshot(campaign: Campaign) -> None:
            snapshot.close()
            with contextlib.suppress(psycopg.OperationalError):  # it restarts just now
                outsider = snapshot.enter_context(contextlib.closing(psycopg.connect(url)))
                outsider.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                outsider.execute("SELECT count(*) FROM jobs")

        try:
            faults: dict[str, Fault] = {
                "database restarted": restart, "commit cut off": cut, "snapshot kept open": keep_snapshot,
            }  # fmt: skip
            return Campaign(
                terms(store=proxy.url, folder=folder, more_faults=faults, worker_module="tests.chaos.low_floor_worker")
            ).run()
        finally:
            snapshot.close()
            proxy.close()


ENGINES = {"sqlite": on_sqlite, "postgres": on_postgres}


def run(engine: str, seconds: float, seed: int, told: Told, rate: float = 20.0, fault_every_s: float = 1.0) -> Verdict:
    """One campaign on one store."""
    with tempfile.TemporaryDirectory(prefix="holdbeat-chaos-", ignore_cleanup_errors=True) as place:

        def terms(**more: object) -> Terms:
            shared: dict[str, object] = {
                "seconds": seconds, "seed": seed, "rate": rate, "fault_every_s": fault_every_s, "progress": told,
            }  # fmt: skip
            return Terms(**{**shared, **more})  # type: ignore[arg-type]

        # Workers find their module from here.
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(ROOT)
        try:
            return ENGINES[engine](terms, Path(place), told, rate * seconds)
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def main() -> int:
    parser = argparse.ArgumentParser(description="Break real processes on both stores and judge what they did.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--engine", choices=(*ENGINES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--fault-every", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    holds = True
    for engine in ENGINES if asked.engine == "both" else (asked.engine,):

        def told(text: str, engine: str = engine) -> None:
            print(f"{engine}: {text}", file=sys.stderr, flush=True)

        verdict = run(engine, asked.minutes * 60, asked.seed, told, asked.rate, asked.fault_every)
        holds &= verdict.holds
        text = json.dumps({"engine": engine, **verdict.as_json()}) if asked.json else verdict.as_text()
        print(text if asked.json else f"{engine}: {text}", flush=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
