"""Schedules and endpoints: the same operations for both, since an endpoint is a schedule that calls a URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdbeat.domain.views import endpoint_json, schedule_json
from holdbeat.operations.operation import Operation

if TYPE_CHECKING:
    from holdbeat.domain.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells endpoints from other schedules."""

    noun: str
    is_endpoint: bool
    json: Callable[[Schedule], dict[str, Any]]

    def worded(self, text: str) -> str:
        """A sentence about schedules, about this kind."""
        if not self.is_endpoint:
            return text
        return (
            text.replace("a schedule", "an endpoint")
            .replace("an adaptive schedule", "an endpoint")
            .replace("schedule", "endpoint")
        )


SCHEDULE = Kind("schedule", False, schedule_json)
ENDPOINT = Kind("endpoint", True, endpoint_json)
KINDS = {"schedules": SCHEDULE, "endpoints": ENDPOINT}

METHODS = {
    "create": "schedules.create_schedule",
    "list": "schedule_reports.list_schedules",
    "get": "schedule_reports.get_schedule",
    "update": "schedules.update_schedule",
    "delete": "schedules.delete_schedule",
    "enable": "schedules.enable_schedule",
    "disable": "schedules.disable_schedule",
    "pause": "schedules.pause_schedule",
    "resume": "schedules.resume_schedule",
    "pause_many": "schedules.pause_schedules",
    "resume_many": "schedules.resume_schedules",
    "reset_failures": "schedules.reset_schedule_failures",
    "hint": "schedules.hint_schedule",
    "clear_hints": "schedules.clear_schedule_hints",
    "trigger": "schedules.trigger_schedule",
    "occurrences": "schedule_reports.list_schedule_occurrences",
    "explain": "schedule_reports.explain_schedule",
    "preview": "schedule_reports.preview_schedule",
    "preview_timetable": "schedule_reports.preview_schedule_timetable",
}
"""The operation behind each method of `client.schedules` and `client.endpoints`."""
ENDPOINT_METHODS = {**METHODS, "health": "schedule_reports.get_schedule_health"}


@cache
def method_of(namespace: str, method: str) -> Operation | None:
    """An operation of `schedules` or `endpoints` by the client's name; None if there is none."""
    kind = KINDS[namespace]
    place = (ENDPOINT_METHODS if kind.is_endpoint else METHODS).get(method)
    if place is None:
        return None
    module, _, name = place.partition(".")
    operation: Operation = getattr(import_module(f"holdbeat.operations.{module}"), name)
    return operation.bound(kind, name=name.replace("schedule", kind.noun), doc=kind.worded(operation.__doc__ or ""))


def methods_of(namespace: str) -> dict[str, Operation]:
    """All of them."""
    names = ENDPOINT_METHODS if KINDS[namespace].is_endpoint else METHODS
    return {name: operation for name in names if (operation := method_of(namespace, name)) is not None}
