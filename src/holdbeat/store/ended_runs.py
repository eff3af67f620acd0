"""Ended runs, by type and end.

A run that completes needs no new entry in an index of `job_runs`, so what looks for the runs of a stretch of time finds
them through the jobs that had them, in the index jobs_ran. `j` is the job.
"""

from __future__ import annotations

from holdbeat.store.transaction import Transaction

RUN_END = "coalesce(j.run_ended_at, j.finished_at)"
"""A run ends with its job, but for that of a job that was cancelled while it ran."""
HAD_RUN = "j.started_at IS NOT NULL AND j.finished_at IS NOT NULL"
"""The condition of jobs_ran. A cancelled job is in it before its run has ended."""
RUN_HAS_ENDED = f"{HAD_RUN} AND (j.status <> 'CANCELLED' OR j.run_ended_at IS NOT NULL)"
RUN_OUTCOME = "CASE j.status WHEN 'CANCELLED' THEN 'FAILED' ELSE j.status END"

_NEXT_TYPE = f"SELECT min(j.type) FROM jobs j WHERE {HAD_RUN}"
_TYPES = (
    f"WITH RECURSIVE ended(type) AS (SELECT ({_NEXT_TYPE}) "
    f"UNION ALL SELECT ({_NEXT_TYPE} AND j.type > ended.type) FROM ended WHERE ended.type IS NOT NULL) "
    "SELECT type FROM ended WHERE type IS NOT NULL"
)
"""By seeking from one type to the next in the index."""


def ended_types(tx: Transaction) -> list[str]:
    """Every type of which a run has ended or a job was cancelled while it ran, by name."""
    return tx.column(_TYPES)
