"""The hot statements go by their index: the length of the queue and of the history does not matter to them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.reads.chains import roots_of
from holdbeat.store.reads.event_log import newest_events
from holdbeat.store.reads.list_jobs import list_jobs, list_runs
from holdbeat.store.reads.queue_view import queue
from holdbeat.store.reads.stats import stats
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import settle
from holdbeat.store.running.workers import beat
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import OpenStore, change, claim_some, enqueue_all, rows, settlement
from tests.conformance.plans import Plan, plans_of

LONG = frozenset({"jobs", "j", "job_runs", "r", "events", "e"})
"""Tables that grow without end, by name and alias."""
QUEUED, DONE, DELAYED = 12_000, 12_000, 2_000


def fill(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A store that has been in use: a long queue, a longer history, some delayed work."""
    lanes = [(type_, resource) for type_ in ("a", "b", "c") for resource in ("default", "gpu")]

    def request(number: int, **fields: object) -> NewJob:
        type_, resource = lanes[number % len(lanes)]
        return NewJob(type_, resource=resource, priority=number % 4, **fields)  # type: ignore[arg-type]

    for _ in range(DONE // 4000):
        enqueue_all(store, [request(n) for n in range(4000)])
    change(store, "UPDATE jobs SET status = 'COMPLETED', finished_at = :now", now=clock.now())
    change(
        store,
        "INSERT INTO job_runs (id, job_id, type, resource, started_at, finished_at, status) "
        "SELECT 'run-' || id, id, type, resource, created_at, created_at, 'COMPLETED' FROM jobs",
    )
    change(store, "UPDATE jobs SET status = 'FAILED', permanently_failed = :yes WHERE id LIKE '%7'", yes=True)
    for _ in range(QUEUED // 4000):
        enqueue_all(store, [request(n) for n in range(4000)])
    later = clock.now() + timedelta(seconds=10)
    enqueue_all(store, [request(n, not_before=later) for n in range(10)])
    much_later = clock.now() + timedelta(days=1)
    enqueue_all(store, [request(n, not_before=much_later) for n in range(DELAYED)])
    enqueue_all(store, [request(n, labels={"team": "y" if n % 10 else "x"}) for n in range(4000)])
    clock.advance(10)


def complaints(what: str, plans: list[Plan], *, needs: str | None = None) -> list[str]:
    """What is wrong with these plans, in words."""
    matching = [
        f"{what}: reads all of {sorted(plan.tables_read_whole & LONG)}: {plan.sql} {plan.steps}"
        for plan in plans
        if plan.tables_read_whole & LONG
    ]
    matching += [f"{what}: sorts: {plan.sql} {plan.steps}" for plan in plans if plan.sorts_table and not _named(plan)]
    if needs and not any(needs in plan.indexes for plan in plans):
        matching.append(f"{what}: does not use {needs}: {[(plan.sql, plan.steps) for plan in plans]}")
    return matching


def _named(plan: Plan) -> bool:
    """Whether the rows are those of a list that was handed in, so that there are no more of them than in it."""
    return bool(re.search(r"IN \(SELECT value FROM json_each|= ANY\(|IN :|id = (:|%)|= %\(ids\)s", plan.sql))


@pytest.mark.rule("INV-004")
def test_no_hot_statement_reads_the_whole_queue_or_puts_it_in_order(
    open_store: OpenStore, clock: ManualClock, engine: str
) -> None:
    store = open_store()
    fill(store, clock)
    taken = claim_some(store, 20, worker="busy", types=["a", "b", "c"])
    change(store, "INSERT INTO events (name, at) SELECT 'job.queued', created_at FROM jobs")
    change(store, "ANALYZE")
    words = [settlement(one, Outcome.completed()) for one in taken[:5]]
    words += [settlement(one, Outcome.failed(ErrorKind.ERROR, "x")) for one in taken[5:10]]
    change(store, "UPDATE jobs SET hold = 1, not_before = created_at WHERE id IN :ids", ids=_some_queued(store))
    vacancy = Vacancy("w", range(10), (), ["a", "b", "c"])
    problems = complaints("claim", plans_of(store, claim, vacancy), needs="jobs_ready")
    problems += complaints("promotion", plans_of(store, claim, vacancy), needs="jobs_delayed")
    problems += complaints("settle", plans_of(store, settle, words))
    keyed = [NewJob("a", idempotency_key="k", request_hash="h")]
    problems += complaints("enqueue", plans_of(store, enqueue, keyed), needs="jobs_key")
    problems += complaints("cancel", plans_of(store, cancel_job, taken[11].lease.job_id))
    problems += complaints("beat", plans_of(store, beat, "busy", LeaseTerms()))
    problems += complaints("list of jobs", plans_of(store, list_jobs))
    problems += complaints("list of failures", plans_of(store, list_jobs, {"status": "FAILED"}), needs="jobs_outcome")
    # A few hundred keys of a label may be sorted; the jobs themselves are read one by one.
    by_label = complaints("list by label", plans_of(store, list_jobs, {"label": "team=x"}))
    problems += [complaint for complaint in by_label if "sorts" not in complaint or "jobs_pkey" not in complaint]
    problems += complaints("list of tips", plans_of(store, list_jobs, only_tips=True))
    failed_tips = plans_of(store, list_jobs, {"status": "FAILED"}, only_tips=True)
    problems += complaints("list of tips that failed", failed_tips)
    problems += complaints("roots", plans_of(store, roots_of, [lease.lease.job_id for lease in taken[:50]]))
    problems += complaints("list of runs", plans_of(store, list_runs))
    # SQLite needs no index for it: the id is the table's own key.
    events = plans_of(store, newest_events)
    problems += complaints("newest events", events, needs="events_newest") if engine == "postgres" else []
    first_page = plans_of(store, queue, limit=50)[:1]
    problems += complaints("list of the queue", first_page, needs="jobs_queue")
    assert not problems, "\n".join(problems)


@pytest.mark.rule("INV-004")
def test_a_settle_finds_its_jobs_by_their_ids_alone(open_store: OpenStore) -> None:
    """Every job leaves an entry in the index of running jobs until the next vacuum of PostgreSQL."""
    store = open_store()
    enqueue_all(store, [NewJob("a") for _ in range(600)])
    settlements = [settlement(one, Outcome.completed()) for one in claim_some(store, 200, types=["a"])]
    indexes = {name for plan in plans_of(store, settle, settlements) for name in plan.indexes}
    assert "jobs_running" not in indexes
    assert indexes


@pytest.mark.rule("QUE-05", "INV-004")
def test_ageing_goes_by_its_index_whether_jobs_are_counted_already_or_not(
    open_store: OpenStore, clock: ManualClock
) -> None:
    fill(open_store(), clock)
    store = open_store(aging_s=5)

    def looks() -> list[Plan]:
        """How the claim finds whom to raise; what it found it then writes by id."""
        plans = plans_of(store, claim, Vacancy("w", range(10), (), ["a", "b", "c"]))
        return [plan for plan in plans if plan.sql.startswith("SELECT id, effective_priority")]

    assert len(looks()) == 2
    problems = complaints("before any statistics", looks(), needs="jobs_ageing")
    change(store, "ANALYZE")
    problems += complaints("nobody is counted", looks(), needs="jobs_ageing")
    for _ in range(15):
        claim_some(store, 1, types=["nobody-has-this"])
    change(store, "ANALYZE")
    problems += complaints("all are counted", looks(), needs="jobs_ageing")
    clock.advance(5)
    problems += complaints("all are due", looks(), needs="jobs_ageing")
    assert not problems, "\n".join(problems)


@pytest.mark.rule("DEP-01")
def test_jobs_that_wait_for_others_are_counted_by_their_dependencies_whatever_the_statistics_say(
    store: PersistenceAdapter, clock: ManualClock, engine: str
) -> None:
    """An ANALYZE by hand may have come while the queue was empty."""

    def counted(state: str) -> list[str]:
        plans = [plan for plan in plans_of(store, stats) if "dependencies" in plan.sql]
        assert len(plans) == 1
        return complaints(state, plans, needs="dependencies_unmet" if engine == "sqlite" else None)

    problems = counted("before any statistics")
    enqueue_all(store, [NewJob("a") for _ in range(3000)])
    change(store, "UPDATE jobs SET status = 'COMPLETED', finished_at = :now", now=clock.now())
    change(store, "ANALYZE")
    problems += counted("the queue was always empty")
    enqueue_all(store, [NewJob("a") for _ in range(3000)])
    change(
        store,
        "INSERT INTO dependencies (job_id, number, upstream_id, is_group) "
        "SELECT id, 1, 'x', :no FROM jobs WHERE status = 'QUEUED' LIMIT 50",
        no=False,
    )
    problems += counted("the queue was empty and is long now")
    change(store, "ANALYZE")
    problems += counted("the queue is long")
    assert not problems, "\n".join(problems)


@pytest.mark.rule("FND-01")
def test_runs_that_have_not_ended_are_found_by_the_jobs_that_run(store: PersistenceAdapter, clock: ManualClock) -> None:
    fill(store, clock)
    indexes = {name for plan in plans_of(store, list_runs, {"status": "RUNNING"}) for name in plan.indexes}
    assert "jobs_running" in indexes


def _some_queued(store: PersistenceAdapter) -> list[str]:
    return [row[0] for row in rows(store, "SELECT id FROM jobs WHERE status = 'QUEUED' AND hold = 0 LIMIT 5")]


@pytest.mark.rule("INV-004")
@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELECT id FROM jobs WHERE webhook_url = 'x'", "reads all"),
        ("SELECT id FROM jobs WHERE status = 'QUEUED' AND hold = 0 AND resource = 'gpu' ORDER BY created_at", "sorts"),
    ],
)
def test_a_statement_that_reads_or_sorts_the_queue_would_be_noticed(
    open_store: OpenStore, clock: ManualClock, sql: str, complaint: str
) -> None:
    store = open_store()
    enqueue_all(store, [NewJob("a", resource=("gpu", "cpu")[n % 20 > 0]) for n in range(3000)])
    change(store, "ANALYZE")

    def ask(tx: Transaction) -> None:
        tx.rows(sql)

    assert any(complaint in item for item in complaints("this", plans_of(store, ask)))
