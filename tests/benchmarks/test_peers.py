"""The harness of `make bench-peers`, on Holdbeat and raw SQL with few jobs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile

import pytest

from benchmarks.peers import contestants as who
from benchmarks.peers.__main__ import run
from benchmarks.peers.environments import NotRun, find_interpreter
from benchmarks.peers.measure import Extent
from benchmarks.peers.processes import cpu_seconds
from benchmarks.peers.report import ratios, text_of

FEW = Extent(jobs=300, rounds=1, commits=20, probes=5, idle_s=0.4, limit_s=60.0, probe_limit_s=10.0)
BROKEN = dataclasses.replace(
    who.HOLDBEAT_SQLITE, name="broken", worker=("{bin}/python", "-c", "raise SystemExit('no such queue')")
)


def test_a_run_measures_every_contestant_and_names_the_reason_of_one_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")  # on a disk, wherever the tests keep their files
    report = run([who.RAW_SQLITE, BROKEN, who.HOLDBEAT_SQLITE, who.RAW_POSTGRES, who.TWO_WORKERS], FEW)
    entries = report["contestants"]
    assert "no such queue" in entries["broken"]["errors"][0]
    assert "drain_per_s" not in entries["broken"]["medians"]
    for contestant in (who.RAW_SQLITE, who.HOLDBEAT_SQLITE, who.RAW_POSTGRES, who.TWO_WORKERS):
        assert entries[contestant.name]["errors"] == []
    for name in ("one_per_s", "drain_per_s", "life_per_s"):
        assert entries[who.RAW_SQLITE.name]["medians"][name] > 0
        assert entries[who.RAW_POSTGRES.name]["medians"][name] > 0
    figures = entries[who.HOLDBEAT_SQLITE.name]["medians"]
    for name in ("one_per_s", "callers_per_s", "bulk_per_s", "drain_per_s", "life_per_s", "start_p50_ms", "rss_mb"):
        assert figures[name] > 0
    assert figures["start_p50_ms"] <= figures["start_p99_ms"]
    assert 0 <= figures["idle_cpu_percent"] < 100
    assert entries[who.TWO_WORKERS.name]["medians"]["drain_per_s"] > 0
    single = next(line for line in report["ratios"] if line["name"].startswith("single enqueue, SQLite"))
    raw = entries[who.RAW_SQLITE.name]["medians"]["one_per_s"]
    assert single["value"] == pytest.approx(figures["one_per_s"] / raw, abs=0.001)
    assert json.loads(json.dumps(report)) == report
    assert "no such queue" in text_of(report)


def test_the_cpu_time_of_a_process_includes_its_children_before_and_after_they_end() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint('spun', flush=True)\ninput()"
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"spun\n"
        during = cpu_seconds(os.getpid())
    assert during - before >= 0.25
    assert cpu_seconds(os.getpid()) >= during


def test_a_ratio_holds_when_its_target_is_met_and_says_so_when_it_was_not_measured() -> None:
    table = {
        who.RAW_POSTGRES.name: {"one_per_s": 2_000.0},
        who.HOLDBEAT_POSTGRES.name: {"one_per_s": 1_500.0, "drain_per_s": 9_000.0, "start_p50_ms": 3.5},
        who.QUIET_POSTGRES.name: {"drain_per_s": 9_900.0},
        who.TWO_WORKERS.name: {"drain_per_s": 9_500.0},
        who.PGQUEUER_200.name: {"one_per_s": 1_600.0, "drain_per_s": 6_000.0},
    }
    lines = {line.name.partition(" (")[0]: line for line in ratios(table)}
    drain = lines["PostgreSQL drain / PgQueuer at batch 200"]
    assert (drain.value, drain.holds) == (1.5, True)
    single = lines["single enqueue, PostgreSQL / raw single commits"]
    assert (single.value, single.holds) == (0.75, False), "it is below PgQueuer's"
    start = lines["submit -> start p50 from another process, PostgreSQL, ms"]
    assert (start.value, start.holds) == (3.5, False), "two commits of half a millisecond and 2 ms are less"
    log = lines["cost of the default log in drain, PostgreSQL"]
    assert (log.value, log.holds) == (0.091, True)
    assert lines["two worker processes / one, PostgreSQL"].holds is False
    huey = lines["SQLite drain / Huey fsync"]
    assert (huey.value, huey.holds) == (None, None)


def test_a_peer_that_needs_a_newer_python_than_there_is_says_so() -> None:
    with pytest.raises(NotRun, match=r"needs Python >= 3\.99"):
        find_interpreter((3, 99))
