"""Wake-ups between processes on one SQLite file: soon, gathered while busy, and never in the way of an end."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdbeat.domain.submission import Submission
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.sqlite.processes import SEND_EVERY_S, Wakeups
from holdbeat.store.topics import Topic
from tests.conformance.acts import claim_all
from tests.conformance.sqlite_files import opened
from tests.waiting import eventually


class Receiver:
    """Another process's end, which keeps what it received."""

    def __init__(self, path: str) -> None:
        self.received: list[frozenset[str]] = []
        self._news = threading.Condition()
        self.wakeups = Wakeups(path, self._note)
        self.wakeups.listen()

    def _note(self, topics: frozenset[str]) -> None:
        with self._news:
            self.received.append(topics)
            self._news.notify()

    def has_received(self, topics: set[str]) -> bool:
        with self._news:
            return self._news.wait_for(lambda: topics <= frozenset[str]().union(*self.received), 10)


@pytest.mark.rule("LEASE-05")
def test_the_first_wakeup_is_sent_at_once_and_later_ones_together_without_losing_a_topic(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    receiver, sender = Receiver(path), Wakeups(path, lambda topics: None)
    sender.send({"first"})
    assert receiver.has_received({"first"})
    topics = {f"t{number}" for number in range(40)}
    for topic in sorted(topics):
        sender.send({topic})
    assert receiver.has_received(topics)
    assert len(receiver.received) < 1 + len(topics), "what came close together was sent together"
    sender.close()
    receiver.wakeups.close()


@pytest.mark.rule("CON-003")
def test_wakeups_can_be_closed_at_any_moment_and_send_what_was_left(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    receiver = Receiver(path)
    for number in range(300):
        sender = Wakeups(path, lambda topics: None)
        topics = {f"{number}-{part}" for part in range(number % 5)}
        for topic in topics:
            sender.send({topic})
        closing = threading.Thread(target=sender.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
        assert receiver.has_received(topics)
    receiver.wakeups.close()


@pytest.mark.rule("LEASE-05")
def test_what_was_sent_late_does_not_delay_what_comes_next(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    receiver, sender = Receiver(path), Wakeups(path, lambda topics: None)
    now_s = 100.0
    sender._monotonic = lambda: now_s
    sender.send({"first"})
    now_s += SEND_EVERY_S * 0.9
    sender.send({"late"})
    assert receiver.has_received({"first", "late"})
    now_s += SEND_EVERY_S * 0.2
    sender.send({"next"})
    assert not sender._unsent, "it was sent at once, although the late one was sent just now"
    assert receiver.has_received({"next"})
    sender.close()
    receiver.wakeups.close()


@pytest.mark.rule("LEASE-05")
def test_nothing_is_sent_late_if_what_waited_has_gone_with_the_next_one(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    receiver, sender = Receiver(path), Wakeups(path, lambda topics: None)
    now_s = 100.0
    sender._monotonic = lambda: now_s
    sender.send({"first"})
    with sender._lock:  # the thread that sends late goes on once this is free
        sender.send({"late"})
        now_s += 2 * SEND_EVERY_S
        sender.send({"next"})
    eventually(lambda: sender._lock._waiters)  # type: ignore[attr-defined]
    sender.close()
    other = Wakeups(path, lambda topics: None)
    other.send({"last"})
    assert receiver.has_received({"last"})
    assert receiver.received == [{"first"}, {"late", "next"}, {"last"}]
    other.close()
    receiver.wakeups.close()


@pytest.mark.rule("LEASE-05")
def test_what_cannot_be_sent_late_for_want_of_a_thread_goes_with_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have no thread to give for a while: no commit fails for that, and others are woken again."""
    path = str(tmp_path / "store.db")
    receiver, sender = Receiver(path), Wakeups(path, lambda topics: None)
    now_s = 100.0
    sender._monotonic = lambda: now_s
    sender.send({"first"})
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        sender.send({"second"})
    now_s += 2 * SEND_EVERY_S
    sender.send({"second"})
    assert receiver.has_received({"first", "second"})
    sender.close()
    receiver.wakeups.close()


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


class Submitter:
    """A process that submits one job, and has told others of it before its commit ends."""

    def __init__(self, path: Path, before_commit: Callable[[], bool]) -> None:
        self.store = opened(path)
        self.store.write_sync(announce, [AnnouncedType("noop")])
        self.submit()  # reads the type: the next one is stored without that
        self.has_committed = False
        self._before_commit = before_commit
        self.was_told: list[bool] = []
        self.store._file.writer.set_commit_hook(self._committing)

    def _committing(self) -> bool:
        self.was_told.append(self._before_commit())
        self.has_committed = True
        return False

    def submit(self) -> str:
        return self.store.write_sync(submit, [Submission(type="noop", own={"params": {}})]).jobs[0].id


@pytest.mark.rule("QUE-01", "LEASE-05")
def test_a_worker_is_woken_before_a_single_job_is_committed_and_its_claim_waits_for_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    woken, claims = threading.Event(), list[str]()
    submitter = Submitter(path, lambda: woken.wait(10))
    worker = opened(path)
    claim_all(worker)

    def claim() -> None:
        assert woken.wait(10)
        claims.extend(claim.job.id for claim in claim_all(worker, worker="other") if claim.job is not None)
        assert submitter.has_committed

    worker.listen(lambda topics: woken.set() if Topic.READY in topics else None)
    with ThreadPoolExecutor(1) as thread:
        claiming = thread.submit(claim)
        job_id = submitter.submit()
        claiming.result(10)
    assert submitter.was_told[0] is True
    assert claims == [job_id]
    submitter.store.close()
    worker.close()


@pytest.mark.rule("API-04")
def test_those_who_read_what_was_written_are_woken_after_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    commits: list[tuple[frozenset[str], bool]] = []
    submitter = Submitter(path, lambda: True)
    submitter.store.listen(lambda topics: commits.append((topics, submitter.has_committed)))
    submitter.submit()
    assert commits == [(frozenset({Topic.READY}), False), (frozenset({Topic.EVENTS}), True)]
    submitter.store.close()


@pytest.mark.rule("LEASE-05")
def test_a_process_is_woken_however_soon_after_another_it_started(tmp_path: Path) -> None:
    """The folder's time of change has ticks of milliseconds: two processes that start in one tick leave one mark."""
    path = str(tmp_path / "store.db")
    sender = Wakeups(path, lambda topics: None)
    first = Receiver(path)
    sender.send({"first"})
    mark = os.stat(sender._folder).st_mtime_ns
    second = Receiver(path)
    os.utime(sender._folder, ns=(mark, mark))
    sender.send({"second"})
    assert first.has_received({"first", "second"})
    assert second.has_received({"second"})
    for wakeups in (first.wakeups, second.wakeups, sender):
        wakeups.close()


@pytest.mark.rule("LEASE-05")
def test_the_last_process_removes_the_folder_and_a_process_that_starts_meanwhile_is_still_woken(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    sender = Wakeups(path, lambda topics: None)
    is_over = threading.Event()

    def open_and_close() -> None:
        while not is_over.is_set():
            Receiver(path).wakeups.close()

    others = threading.Thread(target=open_and_close)
    others.start()
    try:
        for number in range(200):
            receiver = Receiver(path)
            sender.send({str(number)})
            assert receiver.has_received({str(number)})
            receiver.wakeups.close()
    finally:
        is_over.set()
        others.join()
        sender.close()
    assert not Path(sender._folder).exists()


def _make_foreign(folder: Path, kind: str, private: Path) -> None:
    """What somebody else could put where the sockets of a store are looked for."""
    if kind == "a link to a folder of ours":
        folder.parent.mkdir(mode=0o700)
        folder.symlink_to(private)
    elif kind == "a link above it":
        (private / folder.name).mkdir(mode=0o700)
        (private / "notes").rename(private / folder.name / "notes")
        folder.parent.symlink_to(private)
    else:
        folder.mkdir(mode=0o700, parents=True)
        (private / "notes").rename(folder / "notes")
        os.chmod(folder if kind == "open to others" else folder.parent, 0o777)


@pytest.mark.rule("OPS-06")
@pytest.mark.parametrize("kind", ["a link to a folder of ours", "a link above it", "open to others", "open above it"])
def test_a_folder_that_is_not_ours_alone_has_no_socket_and_nothing_there_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    private = tmp_path / "precious"
    private.mkdir(mode=0o700)
    (private / "notes").write_text("years of work")
    sender = Wakeups(str(tmp_path / "store.db"), lambda topics: None)
    _make_foreign(Path(sender._folder), kind, private)
    with caplog.at_level(logging.WARNING, "holdbeat.store"):
        for _ in range(3):
            sender.send({"work"})
    assert len(caplog.records) == 1 and "TMPDIR" in caplog.text
    if kind != "open above it":  # that one is ours, and closed to others as soon as somebody listens
        sender.listen()
        assert sender._socket is None
    sender.close()
    (left,) = tmp_path.rglob("notes")
    assert left.read_text() == "years of work"


@pytest.mark.rule("OPS-06")
def test_nothing_is_made_through_a_link_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    listener = Wakeups(str(tmp_path / "store.db"), lambda topics: None)
    Path(listener._base).symlink_to(tmp_path / "elsewhere")
    listener.listen()
    assert listener._socket is None
    listener.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.rule("OPS-06")
def test_only_the_socket_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    receiver, sender = Receiver(path), Wakeups(path, lambda topics: None)
    folder = Path(sender._folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(folder / "dead"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(folder / "other"))
        (folder / "notes").write_text("years of work")
        (folder / "link").symlink_to(folder / "dead")
        sender.send({"work"})
        assert receiver.has_received({"work"})
        left = {entry.name for entry in folder.iterdir()}
    assert left - {Path(str(receiver.wakeups._own)).name} == {"other", "notes", "link"}
    sender.close()
    receiver.wakeups.close()
    shutil.rmtree(folder)
