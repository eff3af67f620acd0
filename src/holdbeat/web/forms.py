"""Reads for the pages on which jobs, schedules, endpoints and webhooks are made or changed.

They offer only what exists: the types that were announced, with their params, and the templates that are in use. What
is made, is made through the API, and what that refuses is shown beside the field in the API's own words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from holdbeat.domain.endpoint import METHODS
from holdbeat.domain.views import endpoint_json, schedule_json
from holdbeat.domain.webhook import WEBHOOK_EVENTS
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.reads.list_jobs import list_templates
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.schedules.schedules import get_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.web.request import PageRequest
from holdbeat.web.schedules import trial

BUILT_IN = ("http", "shell")
TEMPLATES_OFFERED = 200
EVENT_WORDS = {
    "job.run.completed": "a run has succeeded",
    "job.run.failed": "a run has failed, also when it is tried again",
    "job.run.skipped": "a run found nothing to do",
    "job.cancelled": "a job was cancelled",
    "job.permanently_failed": "a job has failed and is not tried again",
    "group.finished": "all jobs of a group have ended",
    "zombie.found": "the worker of a run was gone",
    "lease.expired": "a lease ran out and was recovered",
    "lease.stale_result": "a result came after its lease was gone, and was refused: the run may have happened twice",
    "clock.jumped": "the clock of a machine jumped, or differs from the database's",
    "schedule.missed": "a due time passed while nobody could fire it",
    "schedule.duplicate_refused": "a due time came up a second time and was not fired again",
    "webhook.disabled": "another subscription was disabled",
    "limit.changed": "a limit was made, changed or removed",
    "queue.starved": "direct requests have left the queue no slot for long",
}


@dataclass(frozen=True, slots=True)
class Param:
    """One param of a type, as its schema describes it."""

    name: str
    kind: str
    is_required: bool
    about: str
    input: str
    """How it is asked for: text, number, flag, choice or json."""
    choices: list[Any]
    default: Any


@dataclass(frozen=True, slots=True)
class OfferedType:
    """A job type in the list of choices."""

    name: str
    description: str | None
    example: str
    is_served: bool
    params: list[Param]
    schema: dict[str, Any]
    priority: int
    resource: str


def offered_types(tx: Transaction) -> list[OfferedType]:
    """All types that were announced; those of the app first, and of these the ones that a worker runs now."""
    served = {name for worker in live_workers(tx) if worker.stopping_at is None for name in worker.types}
    offered = [
        OfferedType(
            job_type.name,
            job_type.description,
            json.dumps(_example(job_type.schema), indent=2),
            job_type.name in served,
            _params(job_type.schema),
            job_type.schema,
            job_type.defaults.get("priority") or 0,
            job_type.defaults.get("resource") or "default",
        )
        for job_type in list_types(tx)
    ]
    return sorted(offered, key=lambda job_type: (job_type.name in BUILT_IN, not job_type.is_served, job_type.name))


def read_new_job(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    return {
        "types": offered_types(tx),
        "templates": list_templates(tx, limit=TEMPLATES_OFFERED).items,
        "chosen": request.text("type"),
    }


def read_new_schedule(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    return {**read_new_job(tx, request), "zones": _zones(), **trial(tx, request)}


def read_new_endpoint(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    return {"methods": METHODS, "zones": _zones()}


def read_change_schedule(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    schedule = get_schedule(tx, request.path["id"])
    is_endpoint = schedule.endpoint is not None
    menu = "endpoints" if is_endpoint else "schedules"
    types = [] if is_endpoint else offered_types(tx)
    first = next((job_type for job_type in types if job_type.name == schedule.type), None)
    templates = [] if is_endpoint else list_templates(tx, limit=TEMPLATES_OFFERED).items
    missing = None
    if schedule.type and not first:
        missing = f"type:{schedule.type}"
    elif schedule.template_id and all(template.id != schedule.template_id for template in templates):
        missing = f"template:{schedule.template_id}"
    return {
        "types": types,
        "templates": templates,
        "missing": missing,
        "first": first,
        "values": schedule.params or {} if first and _fits_form(schedule.params or {}, first.params) else None,
        "menu": menu,
        "schedule": endpoint_json(schedule) if is_endpoint else schedule_json(schedule),
        "is_endpoint": is_endpoint,
        "api": f"/api/{menu}/{schedule.id}",
        "page": f"/ui/{menu}/{schedule.id}",
        "methods": [(method, method) for method in METHODS],
        "zones": _zones(),
    }


def _fits_form(values: dict[str, Any], params: list[Param]) -> bool:
    """Whether each value can be shown in the field of its param, and read from there again."""
    fields = {param.name: param for param in params}

    def fits(value: Any, field: Param | None) -> bool:
        if field is None:
            return False
        if field.input == "text":
            return isinstance(value, str) and value == value.strip() != "" and value.isprintable()
        if field.input == "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        if field.input == "flag":
            return isinstance(value, bool)
        return value in field.choices if field.input == "choice" else value is not None

    return bool(fields) and all(fits(value, fields.get(name)) for name, value in values.items())


def read_new_webhook(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    return {"events": {name: EVENT_WORDS.get(name, "") for name in WEBHOOK_EVENTS}}


@cache
def _zones() -> list[str]:
    """Names to choose a timezone from; others are taken too if they exist."""
    return ["UTC", *sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))]


_EXAMPLES: dict[str, Any] = {"string": "", "integer": 1, "number": 1.0, "boolean": False, "array": [], "object": {}}


def _example(schema: dict[str, Any]) -> dict[str, Any]:
    """Params that show which ones there are."""
    properties = schema.get("properties", {})
    required = set(schema.get("required", ()))
    names = [name for name in properties if name in required] or list(properties)[:3]
    return {name: properties[name].get("default", _EXAMPLES.get(_kinds(properties[name])[0])) for name in names}


def _params(schema: dict[str, Any]) -> list[Param]:
    required = set(schema.get("required", ()))
    params = [
        Param(
            name,
            " or ".join(_kinds(property_)),
            name in required,
            _about(property_),
            _input(property_),
            property_.get("enum") or [],
            property_.get("default"),
        )
        for name, property_ in schema.get("properties", {}).items()
        if isinstance(property_, dict)
    ]
    # The schema lists them by name; what must be filled in comes first.
    return sorted(params, key=lambda param: not param.is_required)


def _input(schema: dict[str, Any]) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        return "choice"
    kinds = [kind for kind in _kinds(schema) if kind != "null"]
    if kinds == ["boolean"]:
        return "flag"
    if kinds == ["string"]:
        return "text"
    return "number" if kinds and set(kinds) <= {"integer", "number"} else "json"


def _about(schema: dict[str, Any]) -> str:
    """The limits of one param in a few words."""
    parts = [str(schema["description"])] if schema.get("description") else []
    if isinstance(schema.get("enum"), list):
        parts.append("one of " + ", ".join(json.dumps(choice) for choice in schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        parts.append(f"{low} to {high}")
    elif low is not None or high is not None:
        parts.append(f"at least {low}" if high is None else f"at most {high}")
    if schema.get("default") is not None and _input(schema) != "flag":
        parts.append(f"default {json.dumps(schema['default'])}")
    return "; ".join(parts)


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        return [str(name) for name in kind]
    if isinstance(kind, str):
        return [kind]
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    names = [name for choice in choices if isinstance(choice, dict) for name in _kinds(choice)]
    return names or (["string"] if "enum" in schema else ["anything"])
