"""A slower disk for all that a benchmark measures: `--flush-ms`.

A ratio to single commits depends on how long the disk takes to flush: the quicker the disk, the more of a commit is
processor time. Disks that keep what they acknowledge take from 0.05 ms to 10 ms. With `--flush-ms` each fsync and
fdatasync of this program, and of all that it starts, takes longer by that time; PostgreSQL and every peer included.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_disk.c")
DELAY = "BENCH_FLUSH_DELAY_US"
LIBRARY = "LD_PRELOAD"


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flush-ms", type=float, metavar="MS", help="let every flush to disk take longer by this time (needs cc)"
    )


def flush_delay_ms() -> float:
    """By how much flushes are delayed in this process."""
    return int(os.environ.get(DELAY, "0")) / 1000


def slow_down(flush_ms: float | None) -> None:
    """Starts this program again with the slower flush, unless it has it already.

    A library is loaded when a program starts, so raw commits, which this process makes, need a new one.
    """
    if not flush_ms:
        return
    if DELAY in os.environ:
        atexit.register(shutil.rmtree, Path(os.environ[LIBRARY]).parent, ignore_errors=True)
        return
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("--flush-ms compiles a small C file and found no compiler: install the package gcc.")
    # The server of the benchmarks may belong to another user, who must be able to read the library.
    folder = Path(tempfile.mkdtemp(prefix="holdbeat-slow-disk-"))
    folder.chmod(0o755)
    library = folder / "slow_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    os.environ |= {LIBRARY: str(library), DELAY: str(round(flush_ms * 1000))}
    os.execv(sys.executable, sys.orig_argv)
