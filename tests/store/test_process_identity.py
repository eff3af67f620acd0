"""Whether a process is gone is known for certain, or not at all (LEASE-05)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdbeat.store import process_identity
from holdbeat.store.process_identity import ProcessIdentity, is_gone, this_process
from tests.waiting import eventually

TELL = """
import os, sys, threading
from holdbeat.store.process_identity import this_process
me = this_process()
print(os.getpid(), me and me.started, me and me.machine, flush=True)
"""
WAIT = TELL + "sys.stdin.read()"
ONLY_THREADS = (
    "import ctypes\n"
    + TELL.replace("print(", "threading.Thread(target=sys.stdin.read).start()\nprint(")
    + "ctypes.CDLL(None).pthread_exit(None)"
)


class Told:
    """A process that has said who it is, and waits."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        pid, started, self.machine = self.process.stdout.readline().strip().split(" ", 2)
        self.pid, self.started = int(pid), int(started)

    def state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def started() -> Iterator[list[Told]]:
    made: list[Told] = []
    yield made
    for one in made:
        one.process.kill()
        one.process.communicate()


@pytest.mark.rule("LEASE-05")
def test_a_process_is_gone_when_it_has_ended_and_not_before(started: list[Told]) -> None:
    one = Told(WAIT)
    started.append(one)
    assert not is_gone(one.pid, one.started)
    os.kill(one.pid, signal.SIGSTOP)
    assert not is_gone(one.pid, one.started), "one that only stands still lives"
    one.process.kill()
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert one.state() == "Z"
    assert is_gone(one.pid, one.started), "whose end nobody has asked for yet"
    one.process.wait()
    assert is_gone(one.pid, one.started)


@pytest.mark.rule("LEASE-05")
def test_the_number_of_a_process_that_went_to_another_does_not_keep_it_alive() -> None:
    me = this_process()
    assert me is not None
    assert not is_gone(os.getpid(), me.started)
    assert is_gone(os.getpid(), me.started - 1)


@pytest.mark.rule("LEASE-05")
def test_a_process_whose_first_thread_has_ended_lives_with_the_others(started: list[Told]) -> None:
    one = Told(ONLY_THREADS)
    started.append(one)
    eventually(lambda: one.state() == "Z")
    assert not is_gone(one.pid, one.started)


@pytest.mark.rule("LEASE-05")
def test_processes_of_one_user_on_one_machine_know_each_other_for_neighbours(started: list[Told]) -> None:
    one = Told(WAIT)
    started.append(one)
    me = this_process()
    assert me is not None and one.machine == me.machine
    forked = os.pipe()
    if os.fork() == 0:
        os.write(forked[1], repr(this_process()).encode())
        os._exit(0)
    child = eval(os.read(forked[0], 1000), {"ProcessIdentity": ProcessIdentity})
    os.wait()
    assert child.machine == me.machine and child.started >= one.started > me.started


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what /proc says of this process, to be changed."""
    real = Path("/proc")
    for name in ("sys/kernel/random/boot_id", "self/stat"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text((real / name).read_text())
    shutil.copytree(real / "self/ns", tmp_path / "self/ns", symlinks=True)
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    return tmp_path


@pytest.mark.rule("LEASE-05")
@pytest.mark.parametrize("what", ["boot", "pid", "user", "time", "no time"])
def test_a_process_of_another_boot_or_container_is_no_neighbour(proc: Path, what: str) -> None:
    before = this_process()
    if what == "boot":
        (proc / "sys/kernel/random/boot_id").write_text("another")
    else:
        (proc / "self/ns" / what.split()[-1]).unlink()
        if what != "no time":
            (proc / "self/ns" / what).symlink_to(f"{what}:[1]")
    after = this_process()
    assert before is not None and after is not None
    assert (after.machine == before.machine, after.started) == (False, before.started)


@pytest.mark.rule("LEASE-05")
def test_a_process_of_another_user_is_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not end what that one's runs have left."""
    before = this_process()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    after = this_process()
    assert before is not None and after is not None and after.machine != before.machine


@pytest.mark.rule("LEASE-05")
@pytest.mark.parametrize("missing", ["sys/kernel/random/boot_id", "self/ns/pid", "self/ns/user", "self/stat"])
def test_where_the_system_does_not_tell_a_process_has_no_identity(proc: Path, missing: str) -> None:
    (proc / missing).unlink()
    assert this_process() is None


@pytest.mark.rule("LEASE-05")
def test_a_process_that_sees_the_processes_of_another_container_has_no_identity(proc: Path) -> None:
    """In a pid namespace of its own, but with the /proc of another, its number is not the one that it knows."""
    _, _, rest = (proc / "self/stat").read_text().partition(" ")
    (proc / "self/stat").write_text(f"{os.getpid() + 1} {rest}")
    assert this_process() is None


@pytest.mark.rule("LEASE-05")
def test_a_process_that_cannot_be_looked_at_is_not_gone(proc: Path) -> None:
    assert not is_gone(os.getppid(), 0)
