"""The terms of the workers are kept for whoever only looks; and who counts as a worker."""

from __future__ import annotations

import pytest

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.ids import IdSource
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.opening import open_store
from holdbeat.store.reads.stats import count_workers, stats
from holdbeat.store.running.shared_terms import note_terms, terms_in_force
from holdbeat.store.running.workers import register_worker
from holdbeat.store.transaction import StoreTerms, Transaction
from tests.conformance.acts import open_at


def _terms(policy: str, aging_s: float = 0) -> StoreTerms:
    return StoreTerms(IdSource(), ConcurrencyPolicy.parse(policy).limits(), aging_s)


def _worker(name: str, slots: int) -> Worker:
    return Worker(name, WorkerKind.SERVE, "here", 1, slots=slots, http_slots=slots)


def test_a_server_without_slots_does_not_overrule_a_worker(store_url: str) -> None:
    works = open_store(store_url, _terms("global:4", 60))
    serves = open_store(store_url, _terms("global:9", 5))
    try:
        serves.write_sync(note_terms, works=False)
        assert works.read_sync(terms_in_force).aging_s == 5
        works.write_sync(note_terms, works=True)
        serves.write_sync(note_terms, works=False)
        assert serves.read_sync(terms_in_force).aging_s == 60
    finally:
        works.close()
        serves.close()


@pytest.mark.parametrize("kept", ["{}", "nonsense", '{"aging_s": "fast"}'])
def test_terms_that_nobody_understands_are_as_good_as_none(store_url: str, kept: str) -> None:
    store = open_at(store_url, aging_s=3)

    def write(tx: Transaction) -> None:
        tx.execute("INSERT INTO meta (key, value) VALUES ('terms', :value)", value=kept)

    store.write_sync(write)
    assert store.read_sync(terms_in_force).aging_s == 3
    store.close()


@pytest.mark.rule("OPS-05")
def test_only_workers_that_can_run_something_are_counted(store_url: str) -> None:
    store = open_at(store_url)
    terms = LeaseTerms(300, 30, 60)
    store.write_sync(register_worker, _worker("serves", 0), terms)
    store.write_sync(register_worker, Worker("waits", WorkerKind.CLI, "here", 2, slots=0), terms)
    assert (store.read_sync(count_workers), store.read_sync(stats)["workers"]) == (0, 0)
    store.write_sync(register_worker, _worker("works", 2), terms)
    store.write_sync(register_worker, Worker("calls", WorkerKind.WORKER, "here", 3, slots=0, http_slots=1), terms)
    assert (store.read_sync(count_workers), store.read_sync(stats)["workers"]) == (2, 2)
    store.close()
