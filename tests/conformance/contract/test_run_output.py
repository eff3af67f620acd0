"""Progress, logs and artifacts: kept for who holds the lease, refused for everyone else."""

from __future__ import annotations

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import NotFound, TooLarge
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim, Lease
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.run_output import (
    ARTIFACT_DATA_MAX,
    ArtifactEntry,
    LogEntry,
    ProgressEntry,
    append_logs,
    list_artifacts,
    progress,
    read_artifact,
    read_logs,
    replace_artifact,
)
from tests.conformance.acts import cancel, claim_one, claim_some, complete, count, enqueue_all, enqueue_one, look
from tests.conformance.repair import LONG_SILENCE_S, TERMS, ask_directly, recover


def log_entry(lease: Lease, sequence: int, text: str, clock: ManualClock) -> LogEntry:
    return LogEntry(lease.id, lease.worker_id, lease.fence, sequence, "log", text, clock.now())


def far(lease: Lease, fraction: float | None, message: str | None, clock: ManualClock) -> ProgressEntry:
    return ProgressEntry(lease.id, lease.worker_id, lease.fence, fraction, message, clock.now())


def kept(lease: Lease, name: str, data: bytes | None = b"x", path: str | None = None) -> ArtifactEntry:
    return ArtifactEntry(lease.id, lease.worker_id, lease.fence, name, len(data or b""), "sum", path, data)


def running(store: PersistenceAdapter) -> Claim:
    enqueue_one(store)
    return claim_one(store, terms=TERMS)


@pytest.mark.rule("EXE-03")
def test_the_last_progress_of_a_batch_counts_and_is_shown_with_the_job(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    enqueue_all(store, [NewJob("noop"), NewJob("noop")])
    one, other = claim_some(store, 2)
    entries = [
        far(one.lease, 0.1, "first", clock),
        far(other.lease, None, "no idea", clock),
        far(one.lease, 0.5, None, clock),
    ]
    assert store.write_sync(progress, entries) == set()
    assert one.job is not None and other.job is not None
    assert look(store, one.job.id).progress == {"fraction": 0.5, "message": None}
    assert look(store, other.job.id).progress == {"fraction": None, "message": "no idea"}
    store.write_sync(progress, [far(one.lease, 1.0, "done", clock)])
    assert look(store, one.job.id).progress == {"fraction": 1.0, "message": "done"}


@pytest.mark.rule("EXE-03")
def test_log_lines_come_back_in_order_and_can_be_followed(store: PersistenceAdapter, clock: ManualClock) -> None:
    lease = running(store).lease
    text = 'a "quoted" Zeile, 日本\n'
    store.write_sync(append_logs, [log_entry(lease, 2, "two\n", clock), log_entry(lease, 1, text, clock)])
    lines = store.read_sync(read_logs, lease.id)
    assert [(line.sequence, line.stream, line.text) for line in lines] == [(1, "log", text), (2, "log", "two\n")]
    assert lines[0].at == clock.now()
    store.write_sync(append_logs, [log_entry(lease, 3, "three\n", clock)])
    assert [line.text for line in store.read_sync(read_logs, lease.id, after=2)] == ["three\n"]
    assert [line.sequence for line in store.read_sync(read_logs, lease.id, limit=2)] == [1, 2]


@pytest.mark.rule("EXE-03")
def test_a_line_that_is_sent_twice_is_kept_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    lease = running(store).lease
    for _ in range(2):
        store.write_sync(append_logs, [log_entry(lease, 1, "once\n", clock)])
    assert count(store, "run_logs") == 1


@pytest.mark.rule("LEASE-03")
def test_whatever_a_late_worker_says_is_refused_and_leaves_no_trace(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    lost = running(store).lease
    clock.advance(LONG_SILENCE_S)
    assert recover(store) == 1
    held = running(store).lease
    assert store.write_sync(append_logs, [log_entry(lost, 1, "late", clock), log_entry(held, 1, "mine", clock)]) == {
        lost.id
    }
    assert store.write_sync(progress, [far(lost, 0.9, None, clock), far(held, 0.1, None, clock)]) == {lost.id}
    assert store.write_sync(replace_artifact, kept(lost, "late")) is None
    assert store.write_sync(replace_artifact, kept(held, "mine")) is not None
    for table in ("run_logs", "progress", "artifacts"):
        assert count(store, table) == 1
        assert count(store, table, f"run_id = '{held.id}'") == 1


@pytest.mark.rule("LEASE-03")
@pytest.mark.parametrize(("worker", "fence_step"), [("another", 0), ("w", 1)])
def test_another_worker_or_another_fence_is_refused(
    store: PersistenceAdapter, clock: ManualClock, worker: str, fence_step: int
) -> None:
    lease = running(store).lease
    entry = LogEntry(lease.id, worker, lease.fence + fence_step, 1, "log", "not mine", clock.now())
    assert store.write_sync(append_logs, [entry]) == {lease.id}
    assert count(store, "run_logs") == 0


@pytest.mark.rule("LEASE-03")
def test_after_the_settle_nothing_more_is_kept(store: PersistenceAdapter, clock: ManualClock) -> None:
    taken = running(store)
    complete(store, taken)
    assert store.write_sync(append_logs, [log_entry(taken.lease, 1, "post", clock)]) == {taken.lease.id}


@pytest.mark.rule("CAN-04", "EXE-03")
def test_a_cancelled_handler_may_still_speak_while_it_ends(store: PersistenceAdapter, clock: ManualClock) -> None:
    taken = running(store)
    assert taken.job is not None
    cancel(store, taken.job.id)
    assert store.write_sync(append_logs, [log_entry(taken.lease, 1, "cleaning up\n", clock)]) == set()
    assert count(store, "run_logs") == 1


@pytest.mark.rule("EXE-03")
def test_artifacts_keep_bytes_or_the_path_of_a_file(store: PersistenceAdapter, clock: ManualClock) -> None:
    lease = running(store).lease
    data = bytes(range(256))
    assert store.write_sync(replace_artifact, kept(lease, "raw", data)) is not None
    assert store.write_sync(replace_artifact, kept(lease, "file", None, "/artifacts/file")) is not None
    assert store.write_sync(replace_artifact, kept(lease, "raw", data + b"!")) is not None
    assert [artifact.name for artifact in store.read_sync(list_artifacts, lease.id)] == ["file", "raw"]
    raw = store.read_sync(read_artifact, lease.id, "raw")
    assert (raw.data, raw.size, raw.path, raw.created_at) == (data + b"!", 257, None, clock.now())
    assert store.read_sync(read_artifact, lease.id, "file").path == "/artifacts/file"
    with pytest.raises(NotFound):
        store.read_sync(read_artifact, lease.id, "nothing")


@pytest.mark.rule("EXE-03")
def test_an_artifact_beyond_the_limit_is_refused(store: PersistenceAdapter) -> None:
    lease = running(store).lease
    assert store.write_sync(replace_artifact, kept(lease, "full", bytes(ARTIFACT_DATA_MAX))) is not None
    with pytest.raises(TooLarge) as refusal:
        store.write_sync(replace_artifact, kept(lease, "more", bytes(ARTIFACT_DATA_MAX + 1)))
    assert refusal.value.code == "artifact_too_large"
    assert count(store, "artifacts") == 1


@pytest.mark.rule("EXE-03", "DEC-004")
def test_a_direct_request_keeps_what_its_handler_reports(store: PersistenceAdapter, clock: ManualClock) -> None:
    ask_directly(store)
    lease = claim_one(store).lease
    assert store.write_sync(append_logs, [log_entry(lease, 1, "hello\n", clock)]) == set()
    assert store.write_sync(progress, [far(lease, 0.5, None, clock)]) == set()
    assert store.write_sync(replace_artifact, kept(lease, "picture")) is not None
    assert (count(store, "run_logs"), count(store, "progress"), count(store, "artifacts")) == (1, 1, 1)


def test_nothing_to_say_is_nothing_to_write(store: PersistenceAdapter) -> None:
    assert store.write_sync(append_logs, []) == set()
    assert store.write_sync(progress, []) == set()
