"""The JobTemplate: named defaults from which Jobs are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class JobTemplate:
    id: str
    name: str
    type: str
    default_params: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None
    resource: str | None = None
    retry_policy: dict[str, Any] | None = None
    """The members that it sets; the others come from the job type."""
    timeout_s: float | None = None
    cancel_grace_s: float | None = None
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    description: str | None = None
    archived_at: datetime | None = None
    version: int = 1
    created_at: datetime | None = None
