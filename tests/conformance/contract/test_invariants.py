"""What the database itself refuses, whoever asks."""

from __future__ import annotations

from itertools import product

import pytest

from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import TRANSITIONS, JobStatus
from holdbeat.domain.run import Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import cancel, change, claim_one, complete, enqueue_one, fail, look, rows, settle_as, skip

START = ("job_id", "type", "resource", "params_snapshot", "worker_id", "slot", "fence", "started_at")
END = ("finished_at", "status", "exit_code", "error", "error_kind", "artifacts")
VALUES = {
    "params_snapshot": "'{\"n\": 2}'",
    "slot": "7",
    "fence": "7",
    "started_at": "'2026-05-05T00:00:00.000Z'",
    "finished_at": "'2026-05-05T00:00:00.000Z'",
    "status": "'FAILED'",
    "exit_code": "3",
    "error_kind": "'error'",
    "artifacts": "'{\"n\": 2}'",
}


def other_value(column: str) -> str:
    return VALUES.get(column, "'changed'")


def brought_to(store: PersistenceAdapter, status: JobStatus) -> str:
    """A new job in the given state."""
    job = enqueue_one(store, params={"n": 1})
    if status is JobStatus.CANCELLED:
        cancel(store, job.id)
    elif status is not JobStatus.QUEUED:
        taken = claim_one(store)
        if status is JobStatus.COMPLETED:
            complete(store, taken)
        elif status is JobStatus.FAILED:
            fail(store, taken)
        elif status is JobStatus.SKIPPED:
            skip(store, taken)
        elif status is JobStatus.CONTINUED:
            settle_as(store, taken, Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 3600.0),)))
    assert look(store, job.id).status == status
    return job.id


@pytest.mark.rule("INV-001")
@pytest.mark.parametrize("status", [status for status in JobStatus if status is not JobStatus.QUEUED])
def test_params_cannot_change_once_a_job_has_left_the_queue(store: PersistenceAdapter, status: JobStatus) -> None:
    job_id = brought_to(store, status)
    with pytest.raises(Conflict, match="params cannot change"):
        change(store, "UPDATE jobs SET params = '{\"n\": 2}' WHERE id = :id", id=job_id)
    assert look(store, job_id).params == {"n": 1}


@pytest.mark.rule("INV-001")
def test_params_can_change_while_queued_and_the_run_gets_the_new_ones(store: PersistenceAdapter) -> None:
    job_id = brought_to(store, JobStatus.QUEUED)
    change(store, "UPDATE jobs SET params = '{\"n\": 2}' WHERE id = :id", id=job_id)
    claim_one(store)
    run = look(store, job_id).run
    assert run is not None
    assert run.params_snapshot == {"n": 2}


@pytest.mark.rule("INV-002")
@pytest.mark.parametrize("column", START)
@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.COMPLETED])
def test_what_stands_at_the_start_of_a_run_never_changes(
    store: PersistenceAdapter, column: str, status: JobStatus
) -> None:
    brought_to(store, status)
    before = rows(store, "SELECT * FROM job_runs")
    with pytest.raises(Conflict, match="columns that a run starts with"):
        change(store, f"UPDATE job_runs SET {column} = {other_value(column)}")
    assert rows(store, "SELECT * FROM job_runs") == before


@pytest.mark.rule("INV-002")
@pytest.mark.parametrize("column", END)
@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.SKIPPED])
def test_the_end_of_a_run_is_written_once(store: PersistenceAdapter, column: str, status: JobStatus) -> None:
    brought_to(store, status)
    before = rows(store, "SELECT * FROM job_runs")
    with pytest.raises(Conflict, match="a run that has ended"):
        change(store, f"UPDATE job_runs SET {column} = {other_value(column)}")
    with pytest.raises(Conflict, match="a run that has ended"):
        change(store, f"UPDATE job_runs SET {column} = " + ("'{}'" if column == "artifacts" else "NULL"))
    assert rows(store, "SELECT * FROM job_runs") == before


BACKWARDS = [
    (before, after)
    for before, after in product(JobStatus, JobStatus)
    if before is not after and after in (JobStatus.QUEUED, JobStatus.RUNNING) and before is not JobStatus.QUEUED
]


@pytest.mark.rule("DEC-001", "DEC-006")
@pytest.mark.parametrize(("before", "after"), BACKWARDS)
def test_a_job_never_goes_back(store: PersistenceAdapter, before: JobStatus, after: JobStatus) -> None:
    assert (before, after) not in {(start, end) for (start, _), end in TRANSITIONS.items()}
    job_id = brought_to(store, before)
    with pytest.raises(Conflict, match=f"illegal status change: {before} -> {after}"):
        change(store, f"UPDATE jobs SET status = '{after}' WHERE id = :id", id=job_id)
    assert look(store, job_id).status == before


@pytest.mark.rule("DEC-001")
def test_the_database_refuses_a_second_run_of_one_job(store: PersistenceAdapter) -> None:
    brought_to(store, JobStatus.RUNNING)
    with pytest.raises(Exception, match=r"(?i)unique"):
        change(
            store,
            "INSERT INTO job_runs (id, job_id, started_at) SELECT 'second', job_id, started_at FROM job_runs",
        )


@pytest.mark.rule("INV-001", "INV-002")
def test_a_refused_change_leaves_the_store_usable(store: PersistenceAdapter) -> None:
    job_id = brought_to(store, JobStatus.RUNNING)
    for _ in range(5):
        with pytest.raises(Conflict):
            change(store, "UPDATE jobs SET params = '{}', status = 'QUEUED' WHERE id = :id", id=job_id)
    assert enqueue_one(store).status == "QUEUED"
