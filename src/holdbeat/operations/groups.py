"""Operations on job groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.domain.bounds import check_choice, check_line
from holdbeat.domain.group import GroupMode, OnFailure, ThenWhen, check_then_when
from holdbeat.domain.views import form, group_json
from holdbeat.operations import checks
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas.jobs import GroupSummary
from holdbeat.store.jobs import cancel
from holdbeat.store.queue.groups import load_group
from holdbeat.store.reads import list_jobs as job_lists
from holdbeat.store.transaction import Transaction


@writes
def create_group(tx: Transaction, context: OperationContext, request: Mapping[str, Any]) -> Any:
    """Submit several jobs as a group, in sequence or in parallel."""
    from holdbeat.operations.submitting import guard_submissions, read_submission, read_submissions
    from holdbeat.store.jobs.submit import Then, submit_group

    fields = checks.checked_fields(
        request, ("name", "mode", "on_failure", "jobs", "then", "then_when"), required=("mode", "jobs")
    )
    name = fields.get("name")
    mode = check_choice(GroupMode, fields["mode"], "mode")
    on_failure = check_choice(OnFailure, fields.get("on_failure", OnFailure.STOP), "on_failure")
    if name is not None:
        check_line(name, "name")
    submissions = read_submissions(context, fields["jobs"])
    then = None
    has_then = fields.get("then") is not None
    when = check_then_when(fields.get("then_when", ThenWhen.COMPLETED), has_then=has_then)
    if has_then:
        then = Then(read_submission(context, fields["then"], place="then."), when)
    guard_submissions(tx, context, [*submissions, *([then.submission] if then else [])])
    return group_json(*submit_group(tx, name, mode, on_failure, submissions, then))


@reads
def list_groups(
    tx: Transaction,
    context: OperationContext,
    *,
    status: str | Sequence[str] | None = None,
    name: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """List groups without their jobs, the newest first."""
    filters = {"status": checks.several(status), "name": name}
    page = job_lists.list_groups(tx, filters, limit=limit, cursor=cursor)
    return checks.page_json(page, lambda group: form(group, GroupSummary))


@reads
def get_group(tx: Transaction, context: OperationContext, group_id: str) -> Any:
    """Read a group with all its jobs, including retries."""
    return group_json(*load_group(tx, checks.id_of(tx, group_id, "job group")))


@writes
def cancel_group(tx: Transaction, context: OperationContext, group_id: str, reason: str | None = None) -> Any:
    """Cancel every unfinished job of a group."""
    cancel.cancel_group(tx, checks.id_of(tx, group_id, "job group"), reason)
    return group_json(*load_group(tx, group_id))
