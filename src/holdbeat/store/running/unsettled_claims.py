"""The claims that a worker holds, as the store knows them.

Guards LEASE-01 where the answer to a claim was lost: the claim may have happened all the same, and then the worker
must take up what is its own, or nobody would execute it while its heartbeats keep it alive.
"""

from __future__ import annotations

from holdbeat.domain.lease import Claim
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.reads.rows import LEASES, RESERVATIONS
from holdbeat.store.transaction import Transaction


def held_claims(tx: Transaction, worker_id: str) -> list[Claim]:
    """Every claim of this worker that has not been settled, whole, as `claim` returned it."""
    leases = LEASES.all(tx, "WHERE worker_id = :id AND slot IS NOT NULL ORDER BY id", id=worker_id)
    jobs = {job.id: job for job in load_jobs(tx, [lease.job_id for lease in leases if lease.job_id])}
    reservation_ids = [lease.reservation_id for lease in leases if lease.reservation_id]
    requests = RESERVATIONS.all(tx, "WHERE id IN :ids", ids=reservation_ids) if reservation_ids else []
    reservations = {reservation.id: reservation for reservation in requests}
    claims = []
    for lease in leases:
        work = jobs.get(lease.job_id or "") or reservations.get(lease.reservation_id or "")
        if work is not None:
            claims.append(Claim(lease, work))
    return claims
