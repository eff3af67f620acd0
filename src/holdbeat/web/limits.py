"""What the page of the limits reads: what holds now, who uses it, and who waits for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.usage import usage
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.reads.affinity import affinity_counts
from holdbeat.store.reads.limit_figures import limit_figures
from holdbeat.store.reads.needs_attention import SlotHolder, occupants
from holdbeat.store.transaction import Transaction
from holdbeat.web.request import Ask

HOLDERS_SHOWN = 5
PARTITIONS_SHOWN = 6


def read_limits(tx: Transaction, ask: Ask) -> dict[str, Any]:
    limits = limits_in_force(tx)
    holders: dict[str, list[SlotHolder]] = {}
    for each in occupants(tx, 1000):
        for pool in limits.covering(each.resource, each.type):
            holders.setdefault(pool.limit.name, []).append(each)
    partitions: dict[str, Counter[str]] = {}
    for lease in usage(tx):
        for pool in limits.covering(lease.resource, lease.type):
            if pool.limit.per_partition or pool.limit.fair:
                partitions.setdefault(pool.limit.name, Counter())[lease.partition] += lease.amount
    rows = [
        {
            "figures": figures,
            "limit": figures.limit,
            "holders": holders.get(figures.limit.name, []),
            "partitions": partitions.get(figures.limit.name, Counter()).most_common(),
            "values": _values(figures.limit.as_dict()),
        }
        for figures in limit_figures(tx)
    ]
    return {
        "limits": rows,
        "resources": sorted(limits.resources),
        "types": [job_type.name for job_type in list_types(tx)],
        "affinities": affinity_counts(tx),
        "holders_shown": HOLDERS_SHOWN,
        "partitions_shown": PARTITIONS_SHOWN,
    }


def _values(limit: dict[str, Any]) -> dict[str, Any]:
    """What the form for a change begins with."""
    rate = limit["rate"] or {}
    return {"slots": limit["slots"], **{f"rate.{name}": value for name, value in rate.items()}}
