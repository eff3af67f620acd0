"""What the end of a chain means for the schedule that made it."""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.job import Job
from holdbeat.store.transaction import Transaction
from holdbeat.store.verbs.groups import open_gates


def after_chains(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Lets fires that waited for an unfinished job of their schedule go on."""
    schedules = sorted({job.schedule_id for job in jobs if job.schedule_id})
    waiting = tx.rows(
        "SELECT schedule_id, id, hold, status FROM jobs "
        "WHERE schedule_id IN :ids AND status IN ('QUEUED', 'RUNNING') ORDER BY schedule_id, id",
        ids=schedules,
    )
    held = {
        row[0]
        for row in tx.rows(
            "SELECT j.schedule_id FROM leases l JOIN jobs j ON j.id = l.job_id WHERE j.schedule_id IN :ids",
            ids=schedules,
        )
    }
    for schedule in schedules:
        mine = [row for row in waiting if row[0] == schedule]
        if schedule in held or any(row[2] != 3 for row in mine):
            continue
        if mine:
            open_gates(tx, [mine[0][1]])
