"""Batches whose jobs differ in their params alone are stored as columns; what is stored is what single jobs store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from holdbeat.app import App
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.uniform_batch import UniformSubmissions
from holdbeat.job_handle import JobHandle
from holdbeat.pending_job import PendingJob, submissions_of
from holdbeat.settings import Settings
from tests.conformance.acts import count, rows

_OF_EACH_JOB = "id, position"
_COLUMNS = (
    "type, params, priority, resource, retry_policy, timeout_s, cancel_grace_s, not_before, webhook_url, labels, "
    "created_at, hold, effective_priority, ages_at, attempt, trace, partition, title, is_awaited, unique_key, "
    "expires_at, weight, affinity, preemption"
)


@pytest.fixture
def app(store_url: str, clock: ManualClock) -> Iterator[App]:
    app = App(settings=Settings().with_changes(store=store_url, aging_s=60), clock=clock)

    @app.job(title="Send {to}", labels={"team": "mail"}, priority=7)
    async def mail(to: str, copies: int = 1) -> None: ...

    @app.job(partition="customer", affinity="model")
    async def render(customer: str, model: str = "small") -> None: ...

    yield app
    app.close()


PARAMS: list[dict[str, Any]] = [{"to": 'a"\\b'}, {"to": "ü,{}", "copies": 2}, {"to": ""}, {"to": "password=x"}]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"delay": 60, "labels": {"a": "1", "b": "2"}, "timeout": 5, "cancel_grace": None},
    {"priority": 3, "title": "one title", "retries": 2, "expires_in": 90, "weight": 2, "preempt": True},
]


@pytest.mark.rule("QUE-02")
@pytest.mark.parametrize("options", OPTIONS)
def test_a_batch_stores_what_its_jobs_would_store_one_by_one(app: App, options: dict[str, Any]) -> None:
    caller = app.with_options(**options)
    calls = [caller.call("mail", **params) for params in PARAMS]
    assert isinstance(submissions_of(calls), UniformSubmissions)
    singles = [caller.enqueue_many_sync([call])[0] for call in calls]
    batch = caller.enqueue_many_sync(calls)
    stored = rows(app.store, f"SELECT {_COLUMNS} FROM jobs ORDER BY {_OF_EACH_JOB}")
    assert stored[: len(singles)] == stored[len(singles) :]
    labelled = rows(app.store, "SELECT job_id, label FROM job_labels ORDER BY 1, 2")
    for single, member in zip(singles, batch, strict=True):
        assert [label for job_id, label in labelled if job_id == single.id] == [
            label for job_id, label in labelled if job_id == member.id
        ]
        twin = single.job
        twin.id, twin.position = member.job.id, member.job.position
        assert member.job == twin
    places = [handle.job.position for handle in batch]
    assert places == sorted(set(places))


@pytest.mark.rule("QUE-02")
def test_a_batch_whose_type_takes_more_from_the_params_is_looked_at_job_by_job(app: App) -> None:
    app.enqueue_many_sync([app.call("render", customer=name, model=f"m-{name}") for name in ("a", "b")])
    assert rows(app.store, "SELECT partition, affinity FROM jobs ORDER BY position") == [("a", "m-a"), ("b", "m-b")]


@pytest.mark.rule("QUE-02")
@pytest.mark.parametrize(
    ("calls", "field"),
    [
        ([{"to": "x"}, {"to": 5}], "jobs[1].params.to"),
        ([{"to": "x"}, {"copies": 1}], "jobs[1].params.to"),
    ],
)
def test_one_wrong_job_of_a_batch_is_named_and_nothing_is_stored(
    app: App, calls: list[dict[str, Any]], field: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        app.enqueue_many_sync([app.call("mail", **params) for params in calls])
    assert refusal.value.field == field
    assert count(app.store, "jobs") == 0


def at_the_same_time(app: App, calls: list[PendingJob]) -> list[JobHandle | BaseException]:
    """What becomes of calls that tasks of one event loop submit together."""

    async def program() -> list[list[JobHandle] | BaseException]:
        return await asyncio.gather(*[app.enqueue_many([call]) for call in calls], return_exceptions=True)

    return [item if isinstance(item, BaseException) else item[0] for item in asyncio.run(program())]


@pytest.mark.rule("QUE-02", "DEC-008")
def test_callers_of_one_kind_that_are_stored_together_each_get_their_own_answer(app: App) -> None:
    params: list[dict[str, Any]] = [{"to": f"n{number}"} for number in range(12)]
    params[7] = {"to": 7}
    answers = at_the_same_time(app, [app.call("mail", **each) for each in params])
    refused = answers.pop(7)
    assert isinstance(refused, Invalid) and refused.field == "params.to"
    del params[7]
    jobs = [answer.job for answer in answers if isinstance(answer, JobHandle)]
    assert [job.params for job in jobs] == params
    stored = rows(app.store, "SELECT id, title, position FROM jobs")
    assert set(stored) == {(job.id, f"Send {job.params['to']}", job.position) for job in jobs}
    assert count(app.store, "job_labels") == len(jobs)


@pytest.mark.rule("QUE-08", "DEC-008")
def test_callers_of_one_kind_with_a_unique_key_are_decided_one_by_one(app: App) -> None:
    only = app.with_options(unique_key="only", on_duplicate="refuse")
    answers = at_the_same_time(app, [only.call("mail", to="x") for _ in range(8)])
    # Which of them is first is not promised: the first call of a type announces it, and others may pass it meanwhile.
    assert sorted(type(answer).__name__ for answer in answers) == ["Conflict"] * 7 + ["JobHandle"]
    assert count(app.store, "jobs") == 1


def test_calls_with_other_options_or_types_are_not_alike(app: App) -> None:
    first = app.call("mail", to="x")
    for other in (app.call("render", customer="x"), app.with_options(priority=1).call("mail", to="x")):
        assert not isinstance(submissions_of([first, other]), UniformSubmissions)
    keyed = app.with_options(key="one")
    assert not isinstance(submissions_of([keyed.call("mail", to=to) for to in "ab"]), UniformSubmissions)
