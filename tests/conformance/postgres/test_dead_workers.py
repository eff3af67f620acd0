"""Only what the kernel of this machine says of its own processes makes a worker dead before its lease is over."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from holdbeat.domain.job import JobStatus
from holdbeat.domain.worker import Worker
from holdbeat.engine.worker_identity import this_worker
from holdbeat.store import process_identity
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.workers import register_worker, stop_worker
from tests.conformance.acts import claim_one, enqueue_one, look
from tests.conformance.repair import TERMS, introduce, recover

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


def worker_here(worker_id: str) -> Worker:
    worker = this_worker("worker", slots=1, http_slots=0, types=["noop"], resources=None, version="")
    assert worker.machine is not None and worker.process_started is not None
    return dataclasses.replace(worker, id=worker_id)


def gone(worker_id: str) -> Worker:
    """A worker of this machine whose number has gone to this process."""
    worker = worker_here(worker_id)
    assert worker.process_started is not None
    return dataclasses.replace(worker, process_started=worker.process_started - 1)


@pytest.mark.rule("LEASE-05", "REC-01")
def test_only_a_worker_of_this_machine_whose_process_is_gone_is_known_dead(store: PersistenceAdapter) -> None:
    for worker in (
        worker_here("lives"),
        gone("gone"),
        gone("ended"),
        dataclasses.replace(gone("elsewhere"), machine="another machine"),
        dataclasses.replace(gone("untold"), machine=None, process_started=None),
    ):
        store.write_sync(register_worker, worker, TERMS)
    store.write_sync(stop_worker, "ended")
    introduce(store, "by hand")
    assert store.known_dead() == {"gone"}
    assert recover(store, dead=store.known_dead()) == 1
    assert store.known_dead() == frozenset()


@pytest.mark.rule("LEASE-05")
def test_where_the_system_does_not_tell_the_lease_decides(
    store: PersistenceAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = enqueue_one(store)
    store.write_sync(register_worker, gone("gone"), TERMS)
    claim_one(store, worker="gone", terms=TERMS)
    with monkeypatch.context() as without:
        without.setattr(process_identity, "_PROC", tmp_path)
        assert recover(store, dead=store.known_dead()) == 0
        assert look(store, job.id).status is JobStatus.RUNNING
    assert recover(store, dead=store.known_dead()) == 2
    assert look(store, job.id).status is JobStatus.FAILED
