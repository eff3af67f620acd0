"""Enqueue: one key one job, batches whole or not at all, and inside the caller's own transaction."""

from __future__ import annotations

from functools import partial
from typing import Any

import apsw
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdbeat.domain.errors import Conflict, HoldbeatError
from holdbeat.domain.job import Job, NewJob
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.enqueue import enqueue
from tests.conformance.acts import OpenStore, claim_all, count, enqueue_all, enqueue_one, look, rows
from tests.conformance.races import together

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def keyed(key: str, request: str = "h", **fields: Any) -> NewJob:
    return NewJob("a", idempotency_key=key, request_hash=request, **fields)


@pytest.mark.rule("QUE-01")
def test_a_hundred_callers_with_one_key_get_one_job(open_store: OpenStore) -> None:
    store, second_store = open_store(), open_store()

    def call(number: int) -> str:
        return enqueue_all((store, second_store)[number % 2], [keyed("key")])[0].id

    results = together([partial(call, number) for number in range(100)])
    assert len(set(map(str, results))) == 1
    assert rows(store, "SELECT id FROM jobs") == [(results[0],)]


@pytest.mark.rule("QUE-01")
def test_the_same_request_again_finds_its_job_in_whatever_state(store: PersistenceAdapter) -> None:
    first = store.write_sync(enqueue, [keyed("key")])
    assert first.any_new
    claim_all(store)
    again = store.write_sync(enqueue, [keyed("key")])
    assert not again.any_new
    assert (again.jobs[0].id, again.jobs[0].status) == (first.jobs[0].id, "RUNNING")
    assert again.known == {first.jobs[0].id}


@pytest.mark.rule("QUE-01")
def test_a_key_that_stands_twice_in_a_batch_makes_one_new_job(store: PersistenceAdapter) -> None:
    made = store.write_sync(enqueue, [keyed("key"), keyed("key")])
    assert made.jobs[0].id == made.jobs[1].id
    assert made.any_new
    assert not made.known


@pytest.mark.rule("QUE-01", "QUE-02")
def test_a_key_used_for_another_request_refuses_the_whole_batch(store: PersistenceAdapter) -> None:
    enqueue_all(store, [keyed("key", "one")])
    with pytest.raises(Conflict) as refusal:
        enqueue_all(store, [NewJob("a"), keyed("new"), keyed("key", "other"), NewJob("a")])
    assert (refusal.value.code, refusal.value.field) == ("idempotency_conflict", "idempotency_key")
    assert count(store, "jobs") == 1
    assert enqueue_all(store, [keyed("new", "anything")])[0].idempotency_key == "new"


@pytest.mark.rule("QUE-01", "QUE-02")
def test_a_key_twice_in_one_batch_is_one_job_or_a_conflict(store: PersistenceAdapter) -> None:
    one, other = enqueue_all(store, [keyed("key"), keyed("key")])
    assert one.id == other.id
    with pytest.raises(Conflict):
        enqueue_all(store, [keyed("two", "x"), keyed("two", "y")])
    assert count(store, "jobs") == 1


@pytest.mark.rule("QUE-02")
def test_an_empty_batch_is_an_empty_answer(store: PersistenceAdapter) -> None:
    assert enqueue_all(store, []) == []


@pytest.mark.rule("QUE-01")
def test_different_keys_from_many_callers_do_not_stand_in_each_others_way(open_store: OpenStore) -> None:
    stores = open_store(), open_store()
    keys = [f"k{n}" for n in range(20)]

    def call(number: int) -> list[Job]:
        turned = keys[number % 7 :] + keys[: number % 7]
        return enqueue_all(stores[number % 2], [keyed(key) for key in turned])

    results = together([partial(call, number) for number in range(24)])
    assert not [item for item in results if isinstance(item, Exception)]
    assert count(stores[0], "jobs") == len(keys)


@pytest.mark.rule("DEC-008", "SEC-06")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    params=st.lists(st.dictionaries(TEXT, JSON, max_size=3), min_size=1, max_size=4),
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    resource=TEXT.filter(bool),
)
def test_whatever_text_goes_in_comes_out_the_same(
    store: PersistenceAdapter, params: list[dict[str, Any]], labels: dict[str, str], resource: str
) -> None:
    made = enqueue_all(store, [NewJob("a", param, labels=labels, resource=resource) for param in params])
    stored_jobs = [look(store, job.id) for job in made]
    assert [job.params for job in stored_jobs] == params
    assert all((job.labels, job.resource) == (labels, resource) for job in stored_jobs)
    assert stored_jobs == made


# --- QUE-03: the caller's own transaction ----------------------------------------------------------------


class Caller:
    """A program with a connection of its own to the database in which the store lives."""

    def __init__(self, url: str, **options: Any) -> None:
        self.is_sqlite = url.startswith("sqlite")
        self.connection: Any = None
        if self.is_sqlite:
            self.connection = apsw.Connection(url.removeprefix("sqlite:///"))
        else:
            self.connection = psycopg.connect(url, **options)
        self.connection.execute("CREATE TABLE orders (n integer)")
        if not self.is_sqlite:
            self.connection.commit()

    def begin(self) -> None:
        if self.is_sqlite:
            self.connection.execute("BEGIN IMMEDIATE")

    def end(self, how: str) -> None:
        if self.is_sqlite:
            self.connection.execute(how)
        elif how == "COMMIT":
            self.connection.commit()
        else:
            self.connection.rollback()

    def enqueue(self, store: PersistenceAdapter, request: NewJob) -> Job:
        tx = store.joined(self.connection)
        made = enqueue(tx, [request])
        tx.write_events()
        return made.jobs[0]


@pytest.mark.rule("QUE-03")
def test_a_job_enqueued_in_the_callers_transaction_exists_once_it_commits(open_store: OpenStore) -> None:
    store = open_store()
    caller = Caller(open_store.url)
    caller.begin()
    caller.connection.execute("INSERT INTO orders VALUES (1)")
    job = caller.enqueue(store, NewJob("a", {"n": 1}))
    assert count(store, "jobs") == 0
    caller.end("COMMIT")
    assert look(store, job.id).params == {"n": 1}
    assert rows(store, "SELECT job_id FROM events WHERE name = 'job.queued'") == [(job.id,)]
    assert [taken.lease.job_id for taken in claim_all(store)] == [job.id]
    caller.connection.close()


@pytest.mark.rule("QUE-03")
def test_a_job_enqueued_in_a_transaction_that_is_rolled_back_never_was(open_store: OpenStore) -> None:
    store = open_store()
    caller = Caller(open_store.url)
    caller.begin()
    caller.connection.execute("INSERT INTO orders VALUES (1)")
    caller.enqueue(store, keyed("key"))
    caller.end("ROLLBACK")
    assert (count(store, "jobs"), count(store, "orders"), count(store, "events")) == (0, 0, 0)
    assert enqueue_one(store, idempotency_key="key", request_hash="other")
    caller.connection.close()


@pytest.mark.rule("QUE-03", "QUE-01")
@pytest.mark.parametrize("style", ["plain", "dict rows"])
def test_the_callers_transaction_finds_a_key_that_is_there_whatever_its_connection_is_like(
    open_store: OpenStore, style: str
) -> None:
    store = open_store()
    there = enqueue_all(store, [keyed("key", params={"n": [1, "x"]}, labels={"a": "b"})])[0]
    options = {"row_factory": psycopg.rows.dict_row} if style == "dict rows" else {}
    caller = Caller(open_store.url, **options)
    caller.begin()
    assert caller.enqueue(store, keyed("key")) == there
    caller.end("COMMIT")
    assert count(store, "jobs") == 1
    caller.connection.close()


@pytest.mark.rule("QUE-03")
def test_a_connection_without_an_open_transaction_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    caller = Caller(open_store.url)
    if not caller.is_sqlite:
        caller.connection.autocommit = True
    with pytest.raises(HoldbeatError) as refusal:
        store.joined(caller.connection)
    assert refusal.value.code == "no_transaction"
    with pytest.raises(HoldbeatError):
        store.joined(object())
    caller.connection.close()


@pytest.mark.rule("QUE-02", "DEP-01")
def test_jobs_that_others_wait_for_and_jobs_that_nobody_waits_for_are_stored_in_one_batch(
    open_store: OpenStore,
) -> None:
    store = open_store()
    flags = [(True, False), (False, False), (False, True)]
    jobs = enqueue_all(store, [NewJob("a", is_awaited=awaited, is_detached=detached) for awaited, detached in flags])
    stored = [look(store, job.id) for job in jobs]
    assert [(job.is_awaited, job.is_detached) for job in stored] == flags
