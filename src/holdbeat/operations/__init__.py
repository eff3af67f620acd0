"""Operations: what a client can ask for, each written once.

The API's routes, the command line on a store, and whatever comes later call the same function with the same plain
arguments and get the same JSON. The arguments of an operation are those of the client's method of the same name, so
`LocalBackend` finds an operation by the name of the method that was called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdbeat.operations.operation import Operation

MODULES = {
    "submitting": ("submit_job", "submit_jobs"),
    "jobs": (
        "list_jobs", "get_job", "update_job", "cancel_job", "cancel_jobs", "retry_job", "rerun_job",
        "move_job", "explain_job", "job_events", "get_queue", "reorder_queue", "pause_queue", "resume_queue",
    ),
    "output": ("get_logs", "get_chunks", "get_reservation_logs", "get_reservation_chunks"),
    "durable": ("list_steps", "send_signal", "get_graph", "list_questions", "answer_question"),
    "runs": ("list_job_runs", "get_job_run", "retry_job_run", "retry_job_runs"),
    "limits": ("list_limits", "set_limit", "reset_limit"),
    "groups": ("create_group", "list_groups", "get_group", "cancel_group"),
    "templates": ("create_template", "list_templates", "get_template", "update_template", "archive_template"),
    "reservations": (
        "list_reservations", "get_reservation", "explain_reservation", "cancel_reservation", "extend_reservation",
        "release_reservation",
    ),
    "webhooks": (
        "create_webhook", "list_webhooks", "get_webhook", "update_webhook", "delete_webhook", "rotate_webhook",
        "test_webhook", "webhook_secret", "rotate_webhook_secret", "list_deliveries", "get_delivery", "redeliver",
    ),
    "keys": ("list_keys", "create_key", "revoke_key"),
    "system": (
        "stats", "workers", "job_types", "list_events", "search_events", "list_attention", "mark_attention_seen",
    ),
}  # fmt: skip
"""Where each operation lives, so that a command loads one module of them. Those of schedules and endpoints are
`kinds.METHODS`, and are named `schedules.pause` or `endpoints.pause`."""

_MODULE_OF = {name: module for module, names in MODULES.items() for name in names}


def find_operation(name: str) -> Operation | None:
    """The operation behind a method of the client, e.g. `cancel_job` or `endpoints.pause`; None if there is none."""
    namespace, _, method = name.rpartition(".")
    operation: Operation | None
    if namespace:
        operation = import_module("holdbeat.operations.kinds").method_of(namespace, method)
    elif name in _MODULE_OF:
        operation = getattr(import_module(f"holdbeat.operations.{_MODULE_OF[name]}"), name)
    else:
        operation = None
    return operation
