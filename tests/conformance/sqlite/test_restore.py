"""OPS-02, OPS-03: a restore takes nobody's place by surprise, and a store that is gone is never silently made anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, StoreRefused
from holdbeat.domain.job import JobStatus, NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.store.maintenance.backup import backup, restore
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.sqlite.file import FileIdentity
from holdbeat.store.sqlite.store import SqliteStore
from tests.conformance.acts import claim_all, count, enqueue_all, enqueue_one, open_at, rows

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def opened(path: Path, *, create: bool = True) -> SqliteStore:
    store = open_at(f"sqlite:///{path}", clock=ManualClock(), create=create)
    assert isinstance(store, SqliteStore)
    return store


@pytest.fixture
def copy(tmp_path: Path) -> str:
    """A backup of a store with three jobs."""
    store = opened(tmp_path / "source.db")
    enqueue_all(store, [NewJob("a", {}) for _ in range(3)])
    backup(store.path, str(tmp_path / "copy.db"))
    store.close()
    return str(tmp_path / "copy.db")


@pytest.mark.rule("OPS-02")
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_store_that_is_opened_during_a_restore_is_not_overwritten(tmp_path: Path, copy: str, is_closed: bool) -> None:
    target = tmp_path / "holdbeat.db"
    live: list[SqliteStore] = []

    def begin_to_live(done: int, total: int) -> None:
        if not live:
            live.append(opened(target))
            enqueue_one(live[0])
            if is_closed:
                live[0].close()

    with pytest.raises(Conflict) as refusal:
        restore(copy, str(target), now=NOW, progress=begin_to_live)
    assert refusal.value.code == ("target_exists" if is_closed else "store_in_use")
    assert not list(tmp_path.glob("*.restoring*"))
    if not is_closed:
        enqueue_one(live[0])
        live[0].close()
    again = opened(target)
    assert count(again, "jobs") == (1 if is_closed else 2)
    again.close()


@pytest.mark.rule("OPS-02", "LEASE-03")
def test_fences_after_a_restore_are_greater_than_those_given_out_since_the_backup(tmp_path: Path, copy: str) -> None:
    """What handlers write to has seen the later fences, and would refuse the restored jobs."""
    source = opened(tmp_path / "source.db")
    given_out = max(taken.lease.fence for taken in claim_all(source))
    source.close()
    restore(copy, str(tmp_path / "holdbeat.db"), now=NOW)
    restored = opened(tmp_path / "holdbeat.db")
    assert min(taken.lease.fence for taken in claim_all(restored)) > given_out
    restored.close()


@pytest.mark.rule("OPS-02")
def test_a_process_that_opened_a_file_just_before_another_took_its_name_does_not_use_it(tmp_path: Path) -> None:
    path = tmp_path / "holdbeat.db"
    store = opened(path)
    with pytest.raises(StoreRefused) as refusal:
        FileIdentity(str(path), (path.stat().st_dev, path.stat().st_ino + 1))
    assert refusal.value.code == "store_replaced"
    store.close()


@pytest.mark.rule("OPS-02")
def test_a_store_behind_a_link_is_known_to_be_in_use_and_keeps_its_place(tmp_path: Path, copy: str) -> None:
    target, link = tmp_path / "disk" / "holdbeat.db", tmp_path / "holdbeat.db"
    target.parent.mkdir()
    link.symlink_to(target)
    store = opened(link)
    store.announce_alive("w")
    enqueue_one(store)
    with pytest.raises(Conflict) as refusal:
        restore(copy, str(link), now=NOW, force=True)
    assert refusal.value.code == "store_in_use"
    store.withdraw_alive("w")
    store.close()
    kept = restore(copy, str(link), now=NOW, force=True).kept
    assert link.is_symlink() and kept is not None and Path(kept).parent == target.parent
    for path, jobs in ((link, 3), (Path(kept), 1)):
        again = opened(path)
        assert count(again, "jobs") == jobs
        again.close()


CRASH = """
import os, sys
from datetime import UTC, datetime
from holdbeat.store.maintenance import backup as restoring
step = getattr(os, sys.argv[3])
def crash(*args):
    if str(args[1]) == sys.argv[2]: os._exit(137)
    step(*args)
setattr(os, sys.argv[3], crash)
restoring.restore(sys.argv[1], sys.argv[2], now=datetime.now(UTC), force=True)
"""


@pytest.mark.rule("OPS-02", "OPS-03")
def test_a_restore_that_is_killed_before_its_last_step_leaves_the_store_where_it_was(tmp_path: Path, copy: str) -> None:
    target = tmp_path / "holdbeat.db"
    store = opened(target)
    enqueue_one(store)
    store.close()
    killed = subprocess.run([sys.executable, "-c", CRASH, copy, str(target), "replace"], timeout=60, check=False)
    assert killed.returncode == 137
    store = opened(target)
    assert count(store, "jobs") == 1
    store.close()
    assert restore(copy, str(target), now=NOW, force=True).kept is not None
    store = opened(target)
    assert count(store, "jobs") == 3
    store.close()


def _put_back(path: Path, copy: str) -> None:
    restore(copy, str(path), now=NOW)


def _begin_anew(path: Path, copy: str) -> None:
    shutil.rmtree(f"{path}-run")


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize(("cure", "jobs"), [(_put_back, 3), (_begin_anew, 0)])
def test_a_store_that_was_deleted_is_not_made_anew_at_the_next_start(
    tmp_path: Path, copy: str, cure: Callable[[Path, str], None], jobs: int
) -> None:
    path = tmp_path / "holdbeat.db"
    opened(path).close()
    for file in tmp_path.glob("holdbeat.db*"):
        if file.is_file():
            file.unlink()
    for create in (True, False):
        with pytest.raises(StoreRefused, match="holdbeat restore") as refusal:
            opened(path, create=create)
        assert refusal.value.code == "store_deleted"
    assert not path.exists()
    cure(path, copy)
    store = opened(path)
    assert count(store, "jobs") == jobs
    store.close()


@pytest.mark.rule("LEASE-05", "OPS-02")
@pytest.mark.parametrize("is_there", [False, True])
def test_work_that_ran_when_a_backup_was_taken_is_recovered_at_once_after_its_restore(
    tmp_path: Path, is_there: bool
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "holdbeat.db"
    store = opened(source)
    job = enqueue_one(store)
    (taken,) = claim_all(store)
    store.announce_alive(taken.lease.worker_id)
    backup(store.path, str(tmp_path / "copy.db"))
    if is_there:
        opened(target).close()
    restore(str(tmp_path / "copy.db"), str(target), now=NOW, force=is_there)
    restored = opened(target)
    assert restored.known_dead() == {taken.lease.worker_id}
    trouble = restored.read_sync(find_trouble, LeaseTerms(), restored.known_dead())
    assert [(lease.lease_id, lease.kind) for lease in trouble.leases] == [(taken.lease.id, ErrorKind.CRASH)]
    for verb, arguments in recovery_units(trouble):
        restored.write_sync(verb, *arguments)
    ended = restored.read_sync(load_job, job.id)
    assert ended.status is JobStatus.FAILED and ended.retried_by is not None
    assert rows(restored, "SELECT error_kind FROM job_runs") == [("crash",)]
    restored.close()
    assert store.known_dead() == frozenset(), "the worker of the other store lives"
    store.withdraw_alive(taken.lease.worker_id)
    store.close()
    assert os.path.exists(source)
