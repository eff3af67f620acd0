"""A worker that lives is never taken for dead, however closely it is watched (LEASE-05)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdbeat.store.sqlite.processes import WorkerLocks
from tests.crash.processes import ROOT
from tests.waiting import eventually

WATCHER = """
import sys
from pathlib import Path
from holdbeat.store.sqlite.processes import WorkerLocks
life = WorkerLocks(Path(sys.argv[1]))
print("watching", flush=True)
found = set()
while not Path(sys.argv[2]).exists():
    found |= life.known_dead()
print(sorted(found))
"""


@pytest.mark.rule("LEASE-05")
def test_nobody_is_taken_for_dead_while_announcing_itself(tmp_path: Path) -> None:
    folder, done = tmp_path / "workers", tmp_path / "done"
    life = WorkerLocks(folder)
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(folder), str(done)], cwd=ROOT / "src", stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "watching\n"
    for number in range(1000):
        life.announce(f"worker-{number}")
        life.withdraw(f"worker-{number}")
    done.touch()
    out, _ = watcher.communicate(timeout=60)
    assert out.strip() == "[]"


@pytest.mark.rule("LEASE-05")
def test_the_dead_are_known_at_once_and_the_living_are_not_among_them(tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    life = WorkerLocks(folder)
    life.announce("alive")
    code = (
        "import sys; from pathlib import Path; from holdbeat.store.sqlite.processes import WorkerLocks; "
        "WorkerLocks(Path(sys.argv[1])).announce('doomed'); print('ready', flush=True); sys.stdin.read()"
    )
    doomed = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT / "src", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert doomed.stdout is not None
    doomed.stdout.readline()
    assert life.known_dead() == frozenset()
    doomed.kill()
    doomed.communicate()
    assert life.known_dead() == frozenset({"doomed"})
    life.withdraw("alive")


LIVING = """
import os, sys
from holdbeat import App
store = App(sys.argv[1]).store
store.announce_alive("alive")
store.announce_alive("second")
for folder, _, names in os.walk(f"{store.path}-run"):
    for name in names:
        open(os.path.join(folder, name), "rb").close()
store.known_dead()
print("ready", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    os.close(0)
    os.read(int(sys.argv[2]), 1)
    os._exit(0)
os._exit(9)
"""


@pytest.mark.rule("LEASE-05")
def test_a_worker_lock_stays_when_its_file_is_read_and_ends_with_its_process_whatever_was_forked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "holdbeat.db"
    for_child, ours = os.pipe()
    living = subprocess.Popen(
        [sys.executable, "-c", LIVING, f"sqlite:///{path}", str(for_child)],
        cwd=ROOT / "src",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[for_child],
        text=True,
    )
    os.close(for_child)
    assert living.stdout is not None and living.stdin is not None
    assert living.stdout.readline() == "ready\n"
    life = WorkerLocks(Path(f"{path}-run") / "workers")
    assert life.known_dead() == frozenset()
    living.stdin.write("\n")
    living.stdin.flush()
    assert living.wait(60) == 9
    # The child that was forked lives on, and closes its copies of the locks as soon as it runs.
    eventually(lambda: life.known_dead() == frozenset({"alive", "second"}))
    os.close(ours)
    living.communicate()
