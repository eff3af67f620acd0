"""Counts of many rows are kept for a while, counts of few are not."""

from __future__ import annotations

import pytest

from holdbeat.domain.dependencies import Upstream
from holdbeat.domain.job import NewJob
from holdbeat.domain.submission import Submission
from holdbeat.store import transaction
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads.stats import job_counts, resource_stats
from holdbeat.store.reads.waits import wait_counts


def test_a_count_of_few_jobs_is_made_at_every_look(store: PersistenceAdapter) -> None:
    for amount in (1, 2, 3):
        store.write_sync(enqueue, [NewJob("noop")])
        assert store.read_sync(job_counts)["QUEUED"] == amount
        assert store.read_sync(resource_stats)["default"]["waiting"] == amount


def test_a_count_of_many_jobs_is_kept_for_a_time_that_grows_with_them(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(transaction, "monotonic", lambda: now)
    monkeypatch.setattr(transaction, "MANY", 5)
    monkeypatch.setattr(transaction, "KEPT_S_PER_ROW", 0.5)
    store.write_sync(enqueue, [NewJob("noop") for _ in range(6)])
    assert store.read_sync(job_counts)["QUEUED"] == 6
    store.write_sync(enqueue, [NewJob("noop")])
    now = 1002.9
    assert store.read_sync(job_counts)["QUEUED"] == 6
    now = 1003.1
    assert store.read_sync(job_counts)["QUEUED"] == 7
    now = 1003.1 + transaction.LONGEST_KEPT_S
    assert store.read_sync(job_counts)["QUEUED"] == 7


def test_a_count_of_few_jobs_that_wait_for_many_is_kept_too(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(transaction, "MANY", 5)
    store.write_sync(announce, [AnnouncedType("noop")])
    upstreams = [Upstream(job_id=job.id) for job in store.write_sync(enqueue, [NewJob("noop") for _ in range(6)]).jobs]
    for _ in range(2):
        store.write_sync(submit, [Submission(type="noop", own={"after": upstreams})])
        assert store.read_sync(wait_counts)["upstream"] == 1
