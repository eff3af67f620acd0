"""The one JSON form: complete, in ISO-8601, and without secrets."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.group import GroupMode, GroupStatus, JobGroup, OnFailure
from holdbeat.domain.job import Job, JobStatus, RetryPolicy
from holdbeat.domain.redaction import REDACTED, SECRET_HEADERS, is_secret_header, redacted_headers
from holdbeat.domain.reservation import Reservation, ReservationStatus
from holdbeat.domain.run import JobRun, Outcome, RunStatus
from holdbeat.domain.views import group_json, job_json, reservation_json, run_json

NOW = datetime(2026, 1, 31, 9, 30, 0, 123000, tzinfo=UTC)
SECRET = "hunter2"


def http_job(params: dict[str, object], type_: str = "http") -> Job:
    job = Job("j", type_, params, JobStatus.COMPLETED, 0, 100, "http", RetryPolicy(), NOW)
    job.run = JobRun("r", "j", None, params, "w", 1, NOW, NOW, RunStatus.COMPLETED)
    return job


@pytest.mark.rule("SEC-07")
@pytest.mark.parametrize("name", sorted(SECRET_HEADERS))
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_a_secret_header_is_shown_as_the_mark_however_it_is_spelled(name: str, spelled: object) -> None:
    assert callable(spelled)
    header = spelled(name)
    as_json_form = json.dumps(job_json(http_job({"url": "https://example.com", "headers": {header: SECRET, "A": "b"}})))
    assert SECRET not in as_json_form
    assert as_json_form.count(REDACTED) == 2
    assert '"A": "b"' in as_json_form


@pytest.mark.rule("SEC-07")
@given(headers=st.dictionaries(st.text(), st.text()))
def test_redaction_keeps_names_and_all_that_is_no_secret(headers: dict[str, str]) -> None:
    output = redacted_headers(headers)
    assert output.keys() == headers.keys()
    assert all(output[name] == (REDACTED if is_secret_header(name) else value) for name, value in headers.items())


@pytest.mark.rule("SEC-07")
def test_showing_a_job_does_not_change_what_it_will_run_with() -> None:
    params: dict[str, object] = {"headers": {"Authorization": SECRET}}
    job_json(http_job(params))
    assert params == {"headers": {"Authorization": SECRET}}


@pytest.mark.rule("SEC-07")
def test_params_of_other_types_are_shown_as_they_are() -> None:
    assert job_json(http_job({"headers": {"Cookie": "x"}}, "story"))["params"] == {"headers": {"Cookie": "x"}}


@pytest.mark.rule("DEC-006")
def test_a_job_in_json_has_every_public_field() -> None:
    as_json_form = job_json(http_job({}))
    internal = {"hold", "trace", "is_awaited", "preemption"}
    derived = {"continued_by", "waits_for", "preempt", "preemptible"}
    assert {field.name for field in fields(Job)} - internal | derived == as_json_form.keys()
    assert as_json_form["created_at"] == "2026-01-31T09:30:00.123Z"
    assert as_json_form["status"] == "COMPLETED"


@pytest.mark.rule("DEC-006")
def test_a_run_shows_what_its_handler_returned_as_result() -> None:
    run = JobRun("r", "j", None, {}, "w", 1, NOW)
    assert run_json(run)["result"] is None
    run = replace(run, artifacts=json.loads(Outcome.completed({"n": 1}).artifacts_text()))
    assert run_json(run)["result"] == {"n": 1}
    names = {field.name for field in fields(JobRun)} - {"omitted_result_bytes"}
    assert names | {"result", "result_bytes", "result_url"} == run_json(run).keys()


@pytest.mark.rule("DEC-006")
def test_groups_and_reservations_show_their_fields() -> None:
    group = JobGroup("g", None, GroupMode.PARALLEL, OnFailure.STOP, GroupStatus.QUEUED, NOW)
    assert {field.name for field in fields(JobGroup)} - {"is_awaited"} | {"jobs"} == group_json(group, []).keys()
    reservation = Reservation("x", "a", "gpu", ReservationStatus.ACTIVE, NOW, NOW, "w", {"secret": SECRET})
    assert SECRET not in json.dumps(reservation_json(reservation))
