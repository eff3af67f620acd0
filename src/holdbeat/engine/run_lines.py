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
from holdbeat.domain.log_text import one_line
from holdbeat.store.event_lines import Line, log_together

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
        log_together(log, logging.INFO, len(runs), lambda: map(_line, runs))


def _line(run: EndedRun) -> Line:
    settlement, outcome = run.settlement, run.settlement.outcome
    job = "" if run.job_id is None else f"job={run.job_id} "
    kind = "" if outcome.error_kind is None else f" error_kind={outcome.error_kind}"
    text = (
        f"{events.RUN_ENDED} {job}run={settlement.lease_id} worker={settlement.worker_id} fence={settlement.fence} "
        f"type={one_line(run.type)} status={outcome.status} ran_s={run.ran_s:.3f}{kind}"
    )
    return logging.INFO, text, partial(_fields, run)


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
