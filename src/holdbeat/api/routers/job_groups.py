"""JobGroups: several jobs with a common fate."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, LIMIT, Parameter, Routes
from holdbeat.api.schemas.base import CancelRequest
from holdbeat.api.schemas.jobs import GroupPage, GroupRequest, JobGroup
from holdbeat.api.submitting import guard_shell, read_submissions
from holdbeat.domain.api_key import Scope
from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupMode, GroupStatus, OnFailure
from holdbeat.domain.group import JobGroup as DomainGroup
from holdbeat.domain.job import Job
from holdbeat.domain.submission import Submission
from holdbeat.domain.views import group_json
from holdbeat.store.queue.cancel import cancel_group
from holdbeat.store.queue.groups import load_group
from holdbeat.store.queue.submission import submit_group
from holdbeat.store.reads.list_jobs import list_groups
from holdbeat.store.transaction import Transaction

routes = Routes("job groups")
Choice = TypeVar("Choice", bound=StrEnum)


@routes.post("/api/job-groups", body=GroupRequest, answers={201: JobGroup}, refuses=(409,))
async def create_job_group(call: ApiRequest) -> Response:
    """Submit several jobs with a common fate: one after the other, or side by side."""
    given = await call.fields(("name", "mode", "on_failure", "jobs"), required=("mode", "jobs"))
    name = given.get("name")
    mode = _choice(GroupMode, given["mode"], "mode")
    on_failure = _choice(OnFailure, given.get("on_failure", OnFailure.STOP), "on_failure")
    if name is not None:
        check_line(name, "name", 200)
    submissions = read_submissions(call, given["jobs"])
    is_admin = call.scope.covers(Scope.ADMIN)
    group, jobs = await call.service.store.write(_submit, name, mode, on_failure, submissions, is_admin)
    return answer(group_json(group, jobs), 201, {"Location": f"/api/job-groups/{group.id}"})


def _submit(
    tx: Transaction,
    name: str | None,
    mode: GroupMode,
    on_failure: OnFailure,
    submissions: Sequence[Submission],
    is_admin: bool,
) -> tuple[DomainGroup, list[Job]]:
    if not is_admin:
        guard_shell(tx, submissions)
    return submit_group(tx, name, mode, on_failure, submissions)


def _choice(kind: type[Choice], value: Any, field: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise Invalid(f"{field} must be one of {', '.join(kind)}.", code="unknown_choice", field=field) from None


@routes.get(
    "/api/job-groups",
    answers={200: GroupPage},
    parameters=(
        Parameter("status", "Only groups of this status.", {"enum": list(GroupStatus)}, is_multiple=True),
        Parameter("name", "Only groups of this name.", {"type": "string", "minLength": 1, "maxLength": 500}),
        LIMIT,
        CURSOR,
    ),
)
async def list_job_groups(call: ApiRequest) -> Response:
    """List groups without their jobs, the newest first."""
    filters = {"status": call.choices("status", GroupStatus) or None, "name": call.text("name")}
    page = await call.service.store.read(list_groups, filters, limit=call.limit, cursor=call.cursor)
    items = []
    for group in page.items:
        shown = group_json(group, [])
        del shown["jobs"]
        items.append(shown)
    return answer({"items": items, "next_cursor": page.next_cursor})


@routes.get("/api/job-groups/{id}", answers={200: JobGroup})
async def get_job_group(call: ApiRequest) -> Response:
    """Read a group with all its jobs, retries included."""
    return answer(group_json(*await call.service.store.read(load_group, call.id("job group"))))


@routes.post(
    "/api/job-groups/{id}/cancel", body=CancelRequest, body_optional=True, answers={200: JobGroup}, refuses=(409,)
)
async def cancel_job_group(call: ApiRequest) -> Response:
    """Cancel every unfinished job of a group."""
    group_id = call.id("job group")
    given = await call.fields(("reason",), may_be_empty=True)
    reason = given.get("reason")
    if reason is not None:
        check_line(reason, "reason", 500)
    return answer(group_json(*await call.service.store.write(_cancel, group_id, reason)))


def _cancel(tx: Transaction, group_id: str, reason: str | None) -> tuple[DomainGroup, list[Job]]:
    cancel_group(tx, group_id, reason)
    return load_group(tx, group_id)
