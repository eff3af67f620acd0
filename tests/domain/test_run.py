"""A JobRun: a record that nothing changes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime

import pytest

from holdbeat.domain.run import JobRun, RunStatus


@pytest.mark.rule("INV-002")
def test_no_field_of_a_run_can_be_changed() -> None:
    run = JobRun("run", "job", None, {}, "worker", 1, datetime(2026, 1, 1, tzinfo=UTC), status=RunStatus.COMPLETED)
    for field in fields(JobRun):
        with pytest.raises(FrozenInstanceError):
            setattr(run, field.name, None)
    assert run.status is RunStatus.COMPLETED
