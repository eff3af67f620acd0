"""Operations on job templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdbeat.domain.job import SHELL
from holdbeat.domain.redaction import kept_params
from holdbeat.domain.views import template_json
from holdbeat.operations.checks import check_admin, check_call, check_reference, checked_fields, page_json
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas.jobs import TemplateRequest
from holdbeat.store.queue import templates
from holdbeat.store.reads import list_jobs as job_lists
from holdbeat.store.transaction import Transaction

_FIELDS = tuple(TemplateRequest.__annotations__)
_FLAGS: dict[str | None, bool] = {"true": True, "false": False}


@writes
def create_template(tx: Transaction, context: OperationContext, request: Mapping[str, Any]) -> Any:
    """Create a template."""
    fields = checked_fields(request, _FIELDS, required=("name", "type"))
    if fields["type"] == SHELL:
        check_admin(context, "Making a shell template")
    check_call(context, fields["type"], fields.get("default_params"), fields.get("webhook_url"))
    return template_json(templates.create_template(tx, fields))


@reads
def list_templates(
    tx: Transaction,
    context: OperationContext,
    *,
    type: str | None = None,
    archived: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """List templates, the newest first."""
    filters = {"type": type, "archived": _FLAGS.get(archived, archived)}
    return page_json(job_lists.list_templates(tx, filters, limit=limit, cursor=cursor), template_json)


@reads
def get_template(tx: Transaction, context: OperationContext, reference: str) -> Any:
    """Read a template by its id or its name."""
    return template_json(templates.get_template(tx, check_reference(reference)))


@writes
def update_template(
    tx: Transaction,
    context: OperationContext,
    reference: str,
    changes: Mapping[str, Any],
    *,
    version: int | None = None,
) -> Any:
    """Change a template. Jobs that were created from it do not change."""
    changes = checked_fields(changes, _FIELDS)
    template = templates.get_template(tx, check_reference(reference))
    if SHELL in (template.type, changes.get("type")):
        check_admin(context, "Changing a shell template")
    type_ = changes.get("type", template.type)
    check_call(context, type_, changes.get("default_params"), changes.get("webhook_url"))
    if template.type == "http" and isinstance(changes.get("default_params"), dict):
        params = kept_params(changes["default_params"], template.default_params, "default_params")
        changes = {**changes, "default_params": params}
    return template_json(templates.patch_template(tx, reference, changes, version=version))


@writes
def archive_template(tx: Transaction, context: OperationContext, reference: str, *, version: int | None = None) -> Any:
    """Archive a template: no new jobs are made from it, and its schedules are disabled."""
    if templates.get_template(tx, check_reference(reference)).type == SHELL:
        check_admin(context, "Archiving a shell template")
    return template_json(templates.archive_template(tx, reference, version=version))
