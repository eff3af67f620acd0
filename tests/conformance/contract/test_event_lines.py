"""Every Event that was committed is a log line too, and none that was not."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.observe.log_formats import JsonFormatter, TextFormatter
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.pauses import pause
from holdbeat.store.recovery.recover_leases import recover_lease
from holdbeat.store.transaction import Row, Transaction
from tests.conformance.acts import claim_one, complete, enqueue_one, events_of, settle_as

pytestmark = pytest.mark.rule("OPS-04")


class Kept(logging.Handler):
    """Keeps records as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, event: str) -> list[logging.LogRecord]:
        return [record for record in self.records if getattr(record, "event", None) == event]


@pytest.fixture
def lines() -> Iterator[Kept]:
    """What the logger of events says, at every level."""
    logger = logging.getLogger("holdbeat.events")
    kept = Kept()
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(logging.NOTSET)


def test_claim_and_end_name_job_run_worker_and_fence(store: PersistenceAdapter, lines: Kept) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    complete(store, taken)
    claimed = lines.of("job.claimed")[0].__dict__
    assert (claimed["job"], claimed["run"], claimed["worker"]) == (job.id, taken.lease.id, "w")
    assert claimed["fence"] == taken.lease.fence
    ended = lines.of("run.ended")[0]
    assert (ended.__dict__["run"], ended.levelno) == (taken.lease.id, logging.DEBUG)
    assert ended.getMessage().startswith(f"run.ended job={job.id} run={taken.lease.id} worker=w ")
    assert (claimed["levelno"], lines.of("job.queued")[0].levelno) == (logging.DEBUG, logging.DEBUG)


def test_trouble_is_told_as_a_warning_with_its_ids(store: PersistenceAdapter, clock: ManualClock, lines: Kept) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    clock.advance(1000)
    lease = taken.lease
    assert store.write_sync(recover_lease, lease.id, ErrorKind.LOST, lease.heartbeat_at, LeaseTerms())
    settle_as(store, taken, Outcome.completed())
    for event in ("lease.expired", "zombie.found", "recovery.acted", "lease.stale_result"):
        record = lines.of(event)[0]
        assert (record.levelno, record.__dict__["worker"]) == (logging.WARNING, "w"), event
    assert lines.of("lease.stale_result")[0].__dict__["fence"] == taken.lease.fence


def test_each_stored_event_is_told_once_and_in_order(store: PersistenceAdapter, lines: Kept) -> None:
    for _ in range(3):
        enqueue_one(store)
        complete(store, claim_one(store))
    event_names = [record.__dict__["event"] for record in lines.records]
    assert event_names == ["job.queued", "job.claimed", "run.ended"] * 3
    assert len(events_of(store, "run.ended")) == 3


def test_what_was_rolled_back_is_not_told(store: PersistenceAdapter, lines: Kept) -> None:
    def refused(tx: Transaction) -> None:
        tx.record("job.queued", job_id="nobody")
        raise Conflict("no")

    seen: list[Row] = []
    store.on_commit(seen.extend)
    with pytest.raises(Conflict):
        store.write_sync(refused)
    assert lines.records == [] and seen == []


def test_a_witness_that_breaks_does_not_break_the_store(store: PersistenceAdapter) -> None:
    def broken(committed: Sequence[Row]) -> None:
        raise ZeroDivisionError

    store.on_commit(broken)
    assert enqueue_one(store).id
    assert enqueue_one(store).id


@pytest.mark.rule("SEC-07")
def test_names_from_outside_stay_inside_their_line(store: PersistenceAdapter, lines: Kept) -> None:
    nasty = 'x\r\n{"event":"forged"}\x1b[31m\x7f\u202e\u2028 %s {} Bearer abcdefgh12345678'
    job = enqueue_one(store)
    # The verbs refuse such a reason; what a handler's error or an older version wrote is told all the same.
    store.write_sync(lambda tx: tx.record("job.cancelled", job_id=job.id, reason=nasty))
    store.write_sync(pause, None, by="ann", reason="%s %d {0}")
    for record in lines.of("job.cancelled") + lines.of("queue.paused"):
        assert record.getMessage().isprintable()
        for formatter in (JsonFormatter(), TextFormatter()):
            text = formatter.format(record)
            assert len(text.splitlines()) == 1 and text.isprintable()
            assert "abcdefgh12345678" not in text
        line = json.loads(JsonFormatter().format(record))
        assert line["event"] in ("job.cancelled", "queue.paused")
    cancelled = json.loads(JsonFormatter().format(lines.of("job.cancelled")[0]))
    assert cancelled["data"]["reason"].startswith('x\r\n{"event":"forged"}')


def test_nobody_pays_for_lines_that_nobody_wants(store: PersistenceAdapter) -> None:
    logger = logging.getLogger("holdbeat.events")
    logger.setLevel(logging.ERROR)
    kept = Kept()
    logger.addHandler(kept)
    try:
        enqueue_one(store)
        claim_one(store)
    finally:
        logger.removeHandler(kept)
        logger.setLevel(logging.NOTSET)
    assert kept.records == []
