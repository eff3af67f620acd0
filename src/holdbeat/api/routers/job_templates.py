"""JobTemplates: named defaults, edited under a version."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, ID_OR_NAME, IF_MATCH, LIMIT, Parameter, Routes
from holdbeat.api.schemas.jobs import JobTemplate, TemplateChange, TemplatePage, TemplateRequest
from holdbeat.api.submitting import needs_admin
from holdbeat.domain.api_key import Scope
from holdbeat.domain.template import JobTemplate as DomainTemplate
from holdbeat.domain.views import kept_params, template_json
from holdbeat.handlers.shell import SHELL
from holdbeat.store.queue.templates import archive_template, create_template, get_template, patch_template
from holdbeat.store.reads.list_jobs import list_templates
from holdbeat.store.transaction import Transaction

routes = Routes("job templates", path_id=ID_OR_NAME)
_FIELDS = tuple(TemplateRequest.model_fields)


def _answer(template: DomainTemplate, status: int = 200) -> Response:
    headers = {"ETag": f'"{template.version}"'}
    if status == 201:
        headers["Location"] = f"/api/job-templates/{template.id}"
    return answer(template_json(template), status, headers)


@routes.post("/api/job-templates", body=TemplateRequest, answers={201: JobTemplate}, refuses=(409,))
async def create_job_template(call: ApiRequest) -> Response:
    """Make a template."""
    given = await call.fields(_FIELDS, required=("name", "type"))
    if given["type"] == SHELL:
        call.require_admin("Making a shell template")
    return _answer(await call.service.store.write(create_template, given), 201)


@routes.get(
    "/api/job-templates",
    answers={200: TemplatePage},
    parameters=(
        Parameter("type", "Only templates of this type.", {"type": "string", "minLength": 1, "maxLength": 500}),
        Parameter("archived", "Archived ones, or all.", {"enum": ["true", "false", "all"], "default": "false"}),
        LIMIT,
        CURSOR,
    ),
)
async def list_job_templates(call: ApiRequest) -> Response:
    """List templates, the newest first."""
    archived: Any = {None: None, "true": True, "false": False, "all": "all"}[
        call.choice("archived", ("true", "false", "all"))
    ]
    filters = {"type": call.text("type"), "archived": archived}
    page = await call.service.store.read(list_templates, filters, limit=call.limit, cursor=call.cursor)
    return answer({"items": [template_json(each) for each in page.items], "next_cursor": page.next_cursor})


@routes.get("/api/job-templates/{id}", answers={200: JobTemplate})
async def get_job_template(call: ApiRequest) -> Response:
    """Read a template by its id or its name."""
    return _answer(await call.service.store.read(get_template, call.path("id")))


@routes.patch(
    "/api/job-templates/{id}",
    body=TemplateChange,
    answers={200: JobTemplate},
    refuses=(409, 412),
    parameters=(IF_MATCH,),
)
async def update_job_template(call: ApiRequest) -> Response:
    """Change a template. Jobs that were made from it stay as they are."""
    reference, version = call.path("id"), call.expected_version()
    changes = await call.fields(_FIELDS)
    is_admin = call.scope.covers(Scope.ADMIN)
    return _answer(await call.service.store.write(_change, reference, changes, version, is_admin))


def _change(
    tx: Transaction, reference: str, changes: dict[str, Any], version: int | None, is_admin: bool
) -> DomainTemplate:
    template = get_template(tx, reference)
    if SHELL in (template.type, changes.get("type")) and not is_admin:
        raise needs_admin("Changing a shell template")
    if template.type == "http" and isinstance(changes.get("default_params"), dict):
        kept = kept_params(changes["default_params"], template.default_params, "default_params")
        changes = {**changes, "default_params": kept}
    return patch_template(tx, reference, changes, version=version)


@routes.delete("/api/job-templates/{id}", answers={200: JobTemplate}, refuses=(409, 412), parameters=(IF_MATCH,))
async def archive_job_template(call: ApiRequest) -> Response:
    """Archive a template: no new jobs, and its schedules are disabled."""
    reference, version = call.path("id"), call.expected_version()
    is_admin = call.scope.covers(Scope.ADMIN)
    return _answer(await call.service.store.write(_archive, reference, version, is_admin))


def _archive(tx: Transaction, reference: str, version: int | None, is_admin: bool) -> DomainTemplate:
    if get_template(tx, reference).type == SHELL and not is_admin:
        raise needs_admin("Archiving a shell template")
    return archive_template(tx, reference, version=version)
