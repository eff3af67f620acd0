"""A Job on its way to the process that runs it, and back into the same Job there."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.job import Hold, Job, JobStatus, RetryPolicy

_LEFT_OUT = ("run", "manual_retries", "progress", "open_steps", "after")
"""What a reader fills in; a handler has no use for it."""


def job_message(job: Job) -> dict[str, Any]:
    message: dict[str, Any] = {}
    for field in fields(job):
        value = getattr(job, field.name)
        if field.name in _LEFT_OUT:
            continue
        if isinstance(value, datetime):
            value = {"at": iso(value)}
        elif isinstance(value, RetryPolicy):
            value = value.as_dict()
        message[field.name] = value
    return message


def job_of(message: dict[str, Any]) -> Job:
    instants = {
        name: from_iso(value["at"])
        for name, value in message.items()
        if name not in ("params", "labels", "retry_policy") and isinstance(value, dict)
    }
    return Job(
        **{
            **message,
            **instants,
            "status": JobStatus(message["status"]),
            "hold": Hold(message["hold"]),
            "retry_policy": RetryPolicy(**message["retry_policy"]),
        }
    )
