"""The one log line that a run leaves at INFO: its end, with type, outcome and duration.

Logged by the worker that executed the run, after the store has accepted the result. `status` is what the handler's
execution came to; a job that was cancelled meanwhile has a line `job.cancelled` of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from holdbeat.domain import events
from holdbeat.domain.lease import Settlement
from holdbeat.store.event_lines import Line, Lines, log_together

log = logging.getLogger("holdbeat.runs")


class EndedRun(NamedTuple):
    """A run whose handler has ended, until the store has accepted its result."""

    settlement: Settlement
    slot: int
    type: str
    job_id: str | None
    ran_s: float


def log_ended(runs: Sequence[EndedRun]) -> None:
    """Logs the ends of runs that were stored in one commit."""
    if runs and log.isEnabledFor(logging.INFO):
        log_together(log, Lines(logging.INFO, len(runs), lambda: map(_line, runs), lambda: list(map(_text, runs))))


def _line(run: EndedRun) -> Line:
    return logging.INFO, _text(run), partial(_fields, run)


def _text(run: EndedRun) -> str:
    """Ids, numbers and fixed words. A type's name has no character that a log would have to escape."""
    settlement, _, type_, job_id, ran_s = run
    outcome = settlement.outcome
    text = (
        f"{events.RUN_ENDED} job={job_id} run={settlement.lease_id} worker={settlement.worker_id} "
        f"fence={settlement.fence} type={type_} status={outcome.status} ran_s={ran_s:.3f}"
    )
    if job_id is None:
        text = text.replace("job=None ", "", 1)
    return text if outcome.error_kind is None else f"{text} error_kind={outcome.error_kind}"


def _fields(run: EndedRun) -> dict[str, Any]:
    settlement, outcome = run.settlement, run.settlement.outcome
    data: dict[str, Any] = {"type": run.type, "status": outcome.status, "ran_s": round(run.ran_s, 3)}
    fields: dict[str, Any] = {
        "event": events.RUN_ENDED,
        "run": settlement.lease_id,
        "worker": settlement.worker_id,
        "fence": settlement.fence,
        "data": data,
    }
    if run.job_id is not None:
        fields["job"] = run.job_id
    if outcome.error_kind is not None:
        data["error_kind"] = outcome.error_kind
    return fields
