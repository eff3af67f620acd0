"""PostgreSQL at its worst: lost answers, deadlocks, restarts. Nothing twice, nothing lost, and it goes on by itself."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial

import psycopg
import pytest
from psycopg.errors import IdleInTransactionSessionTimeout, TransactionTimeout, UniqueViolation

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import StoreDown, StoreRefused
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.postgres.database import Link
from holdbeat.store.postgres.lost_commit import was_committed
from holdbeat.store.postgres.sessions import end_standing_sessions
from holdbeat.store.postgres.single_jobs import SingleJobStatement
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.postgres.transaction import PostgresTransaction
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce, list_types
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.reservations import cancel_reservation, reserve
from holdbeat.store.single_insert import SingleInsert
from holdbeat.store.transaction import Row, Transaction
from tests.conformance.acts import (
    OpenStore,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_one,
    fail,
    ids_of,
    look,
    open_at,
    rows,
)
from tests.conformance.fault_proxy import CUTS, Cut, FaultProxy
from tests.conformance.races import HeldOpen, in_background, together
from tests.postgres import PostgresServer

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.mark.rule("QUE-01", "DEC-008")
@pytest.mark.parametrize("cut", CUTS)
def test_a_commit_without_an_answer_makes_one_job_never_two(
    open_store: OpenStore, far_store: PersistenceAdapter, proxy: FaultProxy, cut: Cut
) -> None:
    near = open_store()
    made = []
    for number in range(4):
        proxy.arm(cut)
        made.append(enqueue_one(far_store, params={"n": number}).id)
    assert proxy.cuts == 4
    assert [row[0] for row in rows(near, "SELECT id FROM jobs ORDER BY position")] == made


@pytest.mark.rule("QUE-01", "DEC-008")
@pytest.mark.parametrize("cut", CUTS)
def test_a_statement_that_commits_itself_and_has_no_answer_makes_one_job_never_two(
    open_store: OpenStore, far_store: PersistenceAdapter, proxy: FaultProxy, cut: Cut
) -> None:
    near = open_store()
    near.write_sync(announce, [AnnouncedType("a")])
    made = [far_store.write_sync(submit, [Submission(type="a")]).jobs[0]]
    for number in range(4):
        proxy.arm(cut, b"job.queued" if cut == "before the commit arrives" else b"SELECT 1\0")
        made += far_store.write_sync(submit, [Submission(type="a", own={"params": {"n": number}})]).jobs
        # The next one goes the long way unless the type is as it was.
        near.write_sync(announce, [AnnouncedType("a", description=f"changed {number}")])
        made += far_store.write_sync(submit, [Submission(type="a")]).jobs
    assert proxy.cuts == 4
    stored = rows(near, "SELECT id, position, created_at FROM jobs ORDER BY position")
    assert stored == [(job.id, job.position, job.created_at) for job in made]
    assert count(near, "events", "name = 'job.queued'") == len(made)


@pytest.mark.rule("QUE-01", "DEC-008")
def test_a_statement_that_the_server_executes_late_stores_nothing_if_its_job_was_stored_again(
    open_store: OpenStore, far_store: PersistenceAdapter, proxy: FaultProxy
) -> None:
    near = open_store()
    near.write_sync(announce, [AnnouncedType("a")])
    far_store.write_sync(submit, [Submission(type="a")])
    proxy.arm("before the commit arrives", b"job.queued")
    (job,) = far_store.write_sync(submit, [Submission(type="a")]).jobs
    announced_at = near.read_sync(list_types)[0].announced_at
    assert announced_at is not None
    columns = {"type": "text", "priority": "int4", "params": "json"}

    def late(job_id: str) -> Row | None:
        values = {"id": job_id, "type": "a", "priority": 0, "params": "{}"}
        event = {"name": "job.queued", "data": "{}"}
        insert = SingleInsert(job_id, values, event, announced_at, lambda *stored: stored)
        link = Link(open_store.url)
        with contextlib.closing(link):
            return SingleJobStatement(insert, {"id": "text", **columns}, None).execute(link, near.clock, lambda: 1.0)

    assert late("another-job") is not None
    with pytest.raises(UniqueViolation):
        late(job.id)
    assert count(near, "jobs", f"id = '{job.id}'") == count(near, "events", f"job_id = '{job.id}'") == 1


@pytest.mark.rule("CON-003", "DEC-008")
@pytest.mark.parametrize("verb", ["enqueue", "submit"])
@pytest.mark.parametrize("end", ["close", "time out"])
def test_a_store_that_stops_does_not_go_on_asking_for_the_fate_of_a_lost_commit(
    far_store: PersistenceAdapter, proxy: FaultProxy, end: str, verb: str
) -> None:
    far_store.write_sync(announce, [AnnouncedType("a")])

    def write() -> object:
        return enqueue_one(far_store) if verb == "enqueue" else far_store.write_sync(submit, [Submission(type="a")])

    write()  # the writer that is used next has its connection now, and knows the type
    proxy.arm("before the commit arrives", b"COMMIT\0" if verb == "enqueue" else b"job.queued")
    proxy.refuse()
    writing = in_background(write)
    _wait_until(lambda: proxy.cuts == 1)
    assert far_store.reconnect_s >= 5
    if end == "close":
        in_background(far_store.close).result(5)
    else:
        far_store.reconnect_s = 0.1
    with pytest.raises(StoreDown) as error:
        writing.result(5)
    assert error.value.code == "commit_unknown"


@pytest.mark.rule("LEASE-01", "RET-03")
@pytest.mark.parametrize("cut", CUTS)
def test_a_claim_and_a_settle_without_an_answer_are_done_once(
    open_store: OpenStore, far_store: PersistenceAdapter, proxy: FaultProxy, cut: Cut
) -> None:
    near = open_store()
    job = enqueue_one(near)
    proxy.arm(cut)
    taken = claim_one(far_store)
    assert ids_of([taken]) == [job.id]
    assert (count(near, "leases"), count(near, "job_runs")) == (1, 1)
    proxy.arm(cut)
    assert fail(far_store, taken) == "accepted"
    assert proxy.cuts == 2
    assert look(near, job.id).status == "FAILED"
    assert count(near, "jobs", "retry_kind = 'auto'") == 1
    assert count(near, "events", "name = 'lease.stale_result'") == 0


@pytest.mark.rule("DEC-008")
def test_a_transaction_whose_events_are_missing_was_not_committed_whoever_has_its_id_now(
    open_store: OpenStore,
) -> None:
    store = open_store()
    assert isinstance(store, PostgresStore)
    link = Link(open_store.url)
    seen: list[tuple[str, PostgresTransaction]] = []

    def note(tx: Transaction) -> None:
        assert isinstance(tx, PostgresTransaction)
        enqueue(tx, [NewJob("a")])
        seen.append((tx.rows("SELECT pg_current_xact_id()::text")[0][0], tx))

    store.write_sync(note)
    ((xid, tx),) = seen

    def is_committed(xid: str) -> bool:
        return was_committed(link, xid, tx.written, store.clock, timeout_s=lambda: 8.0)

    assert is_committed(xid)
    link.get().execute("DELETE FROM events")
    assert not is_committed(xid)
    assert not is_committed("99999999999")
    link.close()


@pytest.mark.rule("DEC-008", "OPS-06")
def test_backends_that_are_terminated_lose_and_double_nothing(open_store: OpenStore) -> None:
    store = open_store(clock=None)
    stop = threading.Event()
    struck = threading.Event()

    def terminate_all() -> int:
        killed = 0
        with psycopg.connect(open_store.url, autocommit=True) as connection:
            while not stop.wait(0.1):
                result = connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() AND application_name = 'holdbeat'"
                )
                killed += len(result.fetchall())
                if killed >= 3:
                    struck.set()
        return killed

    def enqueue_some(number: int) -> list[str]:
        """At least 25, and on until some were struck, however fast the machine is."""
        ids: list[str] = []
        while len(ids) < 25 or not struck.is_set():
            ids.append(enqueue_one(store, params={"n": [number, len(ids)]}).id)
        return ids

    killing = in_background(terminate_all)
    try:
        results = together([partial(enqueue_some, number) for number in range(4)])
    finally:
        stop.set()
    assert killing.result(10) > 0
    assert not [item for item in results if isinstance(item, Exception)]
    ids = sorted(job_id for item in results if isinstance(item, list) for job_id in item)
    assert [row[0] for row in rows(store, "SELECT id FROM jobs ORDER BY id")] == ids
    assert len(ids) >= 100


@pytest.mark.rule("DEC-008", "OPS-06")
def test_a_server_that_crashes_and_comes_back_interrupts_nobody_for_good(
    open_store: OpenStore, postgres_server: PostgresServer
) -> None:
    store = open_store()
    acknowledged: list[str] = []
    stop = threading.Event()

    def keep_writing() -> None:
        number = 0
        while not stop.is_set():
            acknowledged.append(enqueue_one(store, params={"n": number}).id)
            number += 1

    writing = in_background(keep_writing)
    for _ in range(2):
        before = len(acknowledged)
        while len(acknowledged) < before + 20 and not writing.done():
            stop.wait(0.01)
        postgres_server.restart("immediate")
    before = len(acknowledged)
    while len(acknowledged) < before + 5 and not writing.done():
        stop.wait(0.01)
    stop.set()
    writing.result(30)
    assert [row[0] for row in rows(store, "SELECT id FROM jobs ORDER BY position")] == acknowledged
    complete(store, claim_some(store, 1)[0])


@pytest.mark.rule("OPS-06")
def test_units_that_lock_each_other_are_run_again_and_both_succeed(open_store: OpenStore) -> None:
    store = open_store("unlimited")
    one, other = enqueue_one(store), enqueue_one(store)
    met = threading.Barrier(2)
    tries = []

    def label(first: str, second: str) -> None:
        attempts = 0

        def verb(tx: Transaction) -> None:
            nonlocal attempts
            attempts += 1
            tx.rows("UPDATE jobs SET attempt = attempt + 1 WHERE id = :id RETURNING id", id=first)
            if attempts == 1:
                met.wait(20)
            tx.rows("UPDATE jobs SET attempt = attempt + 1 WHERE id = :id RETURNING id", id=second)

        store.write_sync(verb)
        tries.append(attempts)

    results = together([lambda: label(one.id, other.id), lambda: label(other.id, one.id)])
    assert results == [None, None]
    # One that is run again may lock its first row before the other has woken up, and they meet once more.
    assert min(tries) >= 1 and max(tries) > 1
    assert [look(store, job.id).attempt for job in (one, other)] == [2, 2]


@pytest.mark.rule("DEC-011", "CAP-02")
def test_without_a_limit_claims_do_not_wait_for_each_other(open_store: OpenStore) -> None:
    store = open_store("unlimited")
    first, second = enqueue_one(store), enqueue_one(store)
    with HeldOpen(store, claim, Vacancy("slow", [0], (), ["noop"])) as slow:
        assert ids_of(claim_some(store, 1, worker="quick")) == [second.id]
        assert ids_of(slow.commit()) == [first.id]


@pytest.mark.rule("CAP-02")
def test_claims_of_different_pools_do_not_wait_for_each_other_but_those_of_one_pool_do(
    open_store: OpenStore,
) -> None:
    store = open_store("resources:gpu=1,cpu=1")
    enqueue_one(store, "a", resource="gpu")
    cpu = enqueue_one(store, "b", resource="cpu")
    enqueue_one(store, "a", resource="gpu")
    with HeldOpen(store, claim, Vacancy("slow", [0], (), ["a"], ["gpu"])) as slow:
        assert ids_of(claim_some(store, 1, worker="quick", resources=["cpu"])) == [cpu.id]
        waiting = in_background(lambda: claim_some(store, 1, worker="other", types=["a"], resources=["gpu"]))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        assert len(slow.commit()) == 1
    assert waiting.result(20) == []


@pytest.mark.rule("OPS-06", "DEC-008")
def test_a_unit_that_loses_its_connection_late_is_still_tried_again(open_store: OpenStore, clock: ManualClock) -> None:
    """As one whose process was stopped in the middle of it, while the server restarted."""
    store = open_store()
    backends: list[int] = []

    def slow(tx: Transaction) -> int:
        ((backend,),) = tx.rows("SELECT pg_backend_pid()")
        if not backends:
            backends.append(backend)
            clock.advance(store.reconnect_s + 1)
            with psycopg.connect(open_store.url, autocommit=True) as connection:
                connection.execute("SELECT pg_terminate_backend(%s)", [backend])
            tx.rows("SELECT 1")
        return int(backend)

    assert store.write_sync(slow) not in backends
    assert len(backends) == 1


@pytest.mark.rule("OPS-03")
def test_tables_that_vanish_under_a_running_process_stop_it_loudly(open_store: OpenStore) -> None:
    store = open_store()
    topic_sets: list[frozenset[str]] = []
    store.listen(topic_sets.append)
    enqueue_one(store)
    with psycopg.connect(open_store.url, autocommit=True) as connection:
        connection.execute("DROP TABLE jobs CASCADE")
    with pytest.raises(StoreRefused) as refusal:
        enqueue_one(store)
    assert refusal.value.code == "store_replaced"
    with pytest.raises(StoreRefused):
        enqueue_one(store)
    assert frozenset({"refused"}) in topic_sets


@pytest.mark.rule("OPS-03")
def test_a_server_that_is_not_there_is_said_so_at_the_start(engine: str) -> None:
    with pytest.raises(StoreDown, match="cannot be reached"):
        open_at("postgresql://postgres@127.0.0.1:1/nowhere")


@pytest.mark.rule("DIR-01", "CAP-02")
@pytest.mark.parametrize("concurrency", ["unlimited", "resources:gpu=2"])
def test_a_direct_request_that_two_workers_see_is_served_by_one_of_them(
    open_store: OpenStore, concurrency: str
) -> None:
    store = open_store(concurrency)
    reservation = store.write_sync(reserve, NewJob("a", resource="gpu"), "owner", 600)
    with HeldOpen(store, claim, Vacancy("slow", [0], (), ["a"])) as slow:
        other = in_background(lambda: claim_some(store, 1, worker="other"))
        with contextlib.suppress(TimeoutError):
            other.result(0.3)
        (served,) = slow.commit()
    assert served.reservation.id == reservation.id
    assert other.result(20) == []
    assert count(store, "leases") == 1


@pytest.mark.rule("DIR-03", "CAP-02")
def test_a_direct_request_that_is_withdrawn_while_a_worker_sees_it_is_not_served(open_store: OpenStore) -> None:
    store = open_store("unlimited")
    reservation = store.write_sync(reserve, NewJob("a", resource="gpu"), "owner", 600)
    with HeldOpen(store, cancel_reservation, reservation.id) as withdrawing:
        other = in_background(lambda: claim_some(store, 1, worker="other"))
        with contextlib.suppress(TimeoutError):
            other.result(0.3)
        withdrawing.commit()
    assert other.result(20) == []
    assert count(store, "leases") == 0


def _stand_still(tx: Transaction) -> None:
    """Waits, with everything that the transaction holds, until the server has ended its session."""
    assert isinstance(tx, PostgresTransaction)
    pid = tx.rows("SELECT pg_backend_pid()")[0][0]
    tx.rows("SELECT set_config('idle_in_transaction_session_timeout', '200ms', false)")
    with psycopg.connect(tx.connection.info.dsn, autocommit=True) as watcher:
        there = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        _wait_until(lambda: watcher.execute(there, [pid]).fetchone() is None)


def _wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(400):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come to pass within twenty seconds")


@pytest.mark.rule("CAP-02", "OPS-06")
def test_a_worker_that_stands_still_in_a_claim_loses_its_locks_and_the_claim_is_made_once(
    open_store: OpenStore,
) -> None:
    store, other = open_store("resources:gpu=2"), open_store("resources:gpu=2")
    first, second = (enqueue_one(store, resource="gpu") for _ in range(2))
    tries = []
    is_notified = threading.Event()

    def claim_slowly(tx: Transaction) -> list[Claim]:
        taken = claim(tx, Vacancy("slow", [0], (), ["noop"]))
        tries.append(ids_of(taken))
        if len(tries) == 1:
            _stand_still(tx)
            # Others go on while it does not know yet that it was left behind.
            assert ids_of(claim_some(other, 1, worker="quick")) == [first.id]
            is_notified.set()
        return taken

    assert ids_of(store.write_sync(claim_slowly)) == [second.id]
    assert is_notified.is_set()
    assert tries == [[first.id], [second.id]]
    assert [row[0] for row in rows(store, "SELECT worker_id FROM leases ORDER BY fence")] == ["quick", "slow"]


@pytest.mark.rule("OPS-06")
@pytest.mark.parametrize("error", [IdleInTransactionSessionTimeout, TransactionTimeout])
def test_a_session_that_the_server_ended_is_an_outage_not_a_fault_of_the_data(
    open_store: OpenStore, error: type[psycopg.Error]
) -> None:
    store = open_store()
    store.reconnect_s = 0.0
    tries = []

    def fail_always(tx: Transaction) -> None:
        tries.append(tx)
        raise error("terminating connection")

    with pytest.raises(StoreDown):
        store.write_sync(fail_always)
    with pytest.raises(StoreDown):
        store.read_sync(fail_always)
    enqueue_one(store)


@pytest.mark.rule("DEC-008")
def test_a_unit_that_goes_on_over_a_failed_statement_is_not_called_a_success(open_store: OpenStore) -> None:
    store = open_store()

    def go_on(tx: Transaction) -> None:
        enqueue(tx, [NewJob("a")])
        with contextlib.suppress(psycopg.Error):
            tx.rows("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        store.write_sync(go_on)
    assert count(store, "jobs") == 0


@pytest.mark.rule("CAP-02", "OPS-06")
def test_a_worker_that_stands_still_in_the_middle_of_a_burst_is_ended_by_the_others(open_store: OpenStore) -> None:
    store, other = open_store("resources:gpu=1"), open_store("resources:gpu=1")
    job = enqueue_one(store, resource="gpu")
    tries = []

    def claim_slowly(tx: Transaction) -> list[Claim]:
        taken = claim(tx, Vacancy("slow", [0], (), ["noop"]))
        tries.append(ids_of(taken))
        if len(tries) == 1:
            pid = tx.rows("SELECT pg_backend_pid()")[0][0]
            # Sent, and no word about what is to come: the server takes this session for a busy one.
            assert isinstance(tx, PostgresTransaction)
            tx.connection.pgconn.send_query_params(b"SELECT 1", None)
            tx.connection.pgconn.flush()
            with psycopg.connect(open_store.url, autocommit=True) as watcher:
                busy = (
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'ClientRead' AND state = 'active'"
                )
                _wait_until(lambda: watcher.execute(busy, [pid]).fetchone() is not None)
                assert other.read_sync(end_standing_sessions) == 0
                _wait_until(lambda: other.read_sync(end_standing_sessions, after_s=0.1) > 0)
            assert ids_of(claim_some(other, 1, worker="quick")) == [job.id]
        return taken

    assert store.write_sync(claim_slowly) == []
    assert tries == [[job.id], []]
    assert rows(store, "SELECT worker_id FROM leases") == [("quick",)]


@pytest.mark.rule("OPS-03")
def test_a_server_that_goes_away_while_a_store_is_opened_is_said_so(proxy: FaultProxy) -> None:
    proxy.arm("before the commit arrives")
    with pytest.raises(StoreDown, match="cannot be reached"):
        open_at(proxy.url)
    open_at(proxy.url).close()
