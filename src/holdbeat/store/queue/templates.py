"""JobTemplates: named defaults from which Jobs are made.

Guards INV-005 by touching no Job: changing or archiving a template concerns future submissions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Conflict, Invalid, NotFound, refuse_stale
from holdbeat.domain.job import JobTemplate
from holdbeat.domain.params import check_labels, check_text, dumps
from holdbeat.domain.redaction import refuse_marks
from holdbeat.domain.submission import DEFAULT_READERS, check_params
from holdbeat.schemas.field_bounds import LONGEST_DESCRIPTION, LONGEST_NAME
from holdbeat.store.queue.job_types import Catalogue
from holdbeat.store.queue.unique_names import check_name, lock_name, refuse_taken_name
from holdbeat.store.reads.columns import optional, row_writer
from holdbeat.store.reads.ids import row_by_name
from holdbeat.store.reads.rows import TEMPLATES
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def _name(value: Any, field: str) -> str:
    name = check_line(value, field)
    check_name("template", name)
    return name


_REQUIRED: dict[str, Callable[[Any, str], Any]] = {
    "name": _name,
    "type": check_line,
}
_EMPTIED: dict[str, Callable[[Any, str], Any]] = {
    "default_params": check_params,
    "labels": lambda value, field: check_labels(value, field=field),
}
_NULLABLE: dict[str, Callable[[Any, str], Any]] = {
    **DEFAULT_READERS,
    "description": lambda value, field: check_text(value, field, LONGEST_DESCRIPTION, min_length=0, multiline=True),
}


_row = row_writer(TEMPLATES.fields, (), {"default_params": dumps, "retry_policy": optional(dumps), "labels": dumps})


def create_template(tx: Transaction, fields: Mapping[str, Any]) -> JobTemplate:
    """Stores a template. Its type must be known, its params must fit, its name must be free."""
    template = JobTemplate(tx.new_id(), "", "", created_at=tx.now)
    for name in _REQUIRED:
        if fields.get(name) is None:
            raise Invalid(f"A template needs a {name}.", code="missing_field", field=name)
    _apply(tx, template, fields)
    if template.type == "http":
        refuse_marks(template.default_params, "default_params")
    refuse_taken_name(tx, "template", template.name, template.id)
    tx.insert("job_templates", TEMPLATES.fields, [_row(template)])
    return template


def get_template(tx: Transaction, reference: str, *, locked: bool = False) -> JobTemplate:
    """A template by its name, its id or a part of the id, or NotFound."""
    row = row_by_name(tx, "job template", TEMPLATES.columns, reference, locked=locked, by_part=True)
    if row is None:
        raise NotFound(f"There is no job template {reference[:LONGEST_NAME]!r}.")
    return TEMPLATES.read(tx, row)


def find_template(tx: Transaction, reference: str) -> JobTemplate | None:
    row = row_by_name(tx, "job template", TEMPLATES.columns, reference)
    return None if row is None else TEMPLATES.read(tx, row)


def named_template(tx: Transaction, reference: Any) -> JobTemplate:
    """The template that a request names by its id or its name; Invalid if there is none."""
    template = find_template(tx, reference) if isinstance(reference, str) else None
    if template is None:
        raise Invalid(
            f"There is no job template {str(reference)[:LONGEST_NAME]!r}. Name one by its id or its name.",
            code="unknown_template",
            field="template",
        )
    return template


def patch_template(
    tx: Transaction, reference: str, changes: Mapping[str, Any], *, version: int | None = None
) -> JobTemplate:
    """Changes the given fields. With a `version` that is not the present one nothing is changed (Stale)."""
    template = get_template(tx, reference, locked=True)
    refuse_stale(f"Template {template.name}", template.version, version, template_id=template.id)
    if template.archived_at is not None:
        raise Conflict(
            f"Template {template.name} is archived and changes no more.",
            code="archived",
            template_id=template.id,
        )
    old_name = template.name
    _apply(tx, template, changes)
    if template.name != old_name:
        refuse_taken_name(tx, "template", template.name, template.id)
    template.version += 1
    tx.update("job_templates", TEMPLATES.fields, _row(template))
    return template


def save_template(tx: Transaction, name: str, type_: str, fields: Mapping[str, Any]) -> JobTemplate:
    """Makes the template of that name, or changes it to what is given: for programs that declare their templates.

    Declaring once more what is there already changes nothing, not even its version.
    """
    declared = {**fields, "name": name, "type": type_}
    # Processes that declare the same at once wait for each other here, before they look.
    lock_name(tx, "template", _name(name, "name"))
    present = find_template(tx, name)
    if present is None:
        return create_template(tx, declared)
    changed = replace(present)
    _apply(tx, changed, declared)
    return present if changed == present and present.archived_at is None else patch_template(tx, present.id, declared)


def archive_template(tx: Transaction, reference: str, *, version: int | None = None) -> JobTemplate:
    """Lets no new Job be made from the template, and disables its Schedules. Once is as good as twice."""
    template = get_template(tx, reference, locked=True)
    if template.archived_at is not None:
        return template
    refuse_stale(f"Template {template.name}", template.version, version, template_id=template.id)
    template.archived_at = tx.now
    template.version += 1
    tx.update("job_templates", TEMPLATES.fields, _row(template))
    tx.record(events.TEMPLATE_ARCHIVED, template_id=template.id, template_name=template.name)
    for (schedule_id,) in tx.rows(
        "UPDATE schedules SET enabled = :no, next_run_at = NULL, replan_at = NULL, wake_at = NULL, trouble = NULL, "
        "version = version + 1 WHERE template_id = :id AND enabled = :yes RETURNING id",
        id=template.id,
        yes=True,
        no=False,
    ):
        tx.record(
            events.SCHEDULE_CHANGED,
            schedule_id=schedule_id,
            change="disabled",
            reason=f"its template {template.name} was archived",
        )
        tx.wake(Topic.SCHEDULES)
    return template


def _apply(tx: Transaction, template: JobTemplate, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name in _REQUIRED:
            setattr(template, name, _REQUIRED[name](value, name))
        elif name in _EMPTIED:
            setattr(template, name, {} if value is None else _EMPTIED[name](value, name))
        elif name in _NULLABLE:
            setattr(template, name, None if value is None else _NULLABLE[name](value, name))
        else:
            field_names = ", ".join((*_REQUIRED, *_EMPTIED, *_NULLABLE))
            sentence = f"{name} is not a field of a template; its fields are {field_names}."
            raise Invalid(sentence, code="unknown_field", field=str(name))
    if "type" in fields or "default_params" in fields:
        catalogue = Catalogue(tx)
        template.type = catalogue.resolve(template.type).name
        catalogue.check_params(template.type, template.default_params, partial=True)
