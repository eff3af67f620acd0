"""Titles of jobs in both stores: made at submission, kept by retries."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.job import Job
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.manual_fire import trigger_schedule
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.schedules.schedules import create_schedule
from tests.conformance.acts import look

pytestmark = pytest.mark.rule("TTL-01")


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("story", {}, {"title": "Story: {prompt}"}), AnnouncedType("plain")])


def send_one(store: PersistenceAdapter, **request: Any) -> Job:
    return look(store, store.write_sync(submit, [Submission.read(request)]).jobs[0].id)


def test_a_job_has_the_title_that_was_given_or_one_made_from_its_params(store: PersistenceAdapter) -> None:
    assert send_one(store, type="story", params={"prompt": "a fox"}).title == "Story: a fox"
    assert send_one(store, type="story", params={"prompt": "a fox"}, title="Mine\x07 <b>").title == "Mine <b>"
    assert send_one(store, type="plain", params={"n": 3, "password": "hunter22"}).title == "n=3"
    assert send_one(store, type="plain").title == "plain"


def test_a_retry_keeps_the_title_of_its_original(store: PersistenceAdapter) -> None:
    job = send_one(store, type="plain", title="Mine")
    store.write_sync(cancel_job, job.id)
    assert store.write_sync(retry_job, job.id).title == "Mine"


def test_the_job_of_a_schedule_has_the_name_of_the_schedule(store: PersistenceAdapter) -> None:
    fields = {"name": "nightly", "type": "plain", "interval_s": 3600, "params": {"n": 1}}
    schedule = store.write_sync(create_schedule, fields)
    _, job = store.write_sync(trigger_schedule, schedule.id)
    assert look(store, job.id).title == "nightly"
