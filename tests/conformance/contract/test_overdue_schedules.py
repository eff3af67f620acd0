"""Doctor finds schedules that are due while no process fires them."""

from __future__ import annotations

import pytest

from holdbeat.cli.checks import Check, State, checks_of
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.workers import register_worker
from tests.conformance.schedule_acts import make


def schedules_check(store: PersistenceAdapter) -> Check:
    (check,) = [check for check in checks_of(Settings(), store, quick=True)[0] if check.name == "schedules"]
    return check


@pytest.mark.rule("TIME-03")
def test_doctor_says_that_schedules_are_due_and_that_no_process_fires_them(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    make(store, "backup", interval_s=60)
    clock.advance(90)
    assert schedules_check(store).state is State.OK, "a server that restarts catches up by itself"
    clock.advance(60)
    store.write_sync(register_worker, Worker("w", WorkerKind.WORKER, "here", 1, slots=1), LeaseTerms())
    check = schedules_check(store)
    assert check.state is State.WARNING
    assert "due for" in check.detail and "no process that fires schedules is alive" in check.detail
    assert "holdbeat serve" in check.remedy
    store.write_sync(register_worker, Worker("s", WorkerKind.SERVE, "here", 2, slots=1), LeaseTerms())
    check = schedules_check(store)
    assert check.state is State.WARNING and "no process" not in check.detail
