"""Rows of the schedules table as Schedules; schedules/schedule_rows.py writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from holdbeat.domain.cron import Dst
from holdbeat.domain.endpoint import EndpointCall
from holdbeat.domain.schedule import CatchUp, Overlap, Schedule
from holdbeat.store.transaction import Transaction

SCHEDULE_FIELDS = tuple(field.name for field in fields(Schedule))
"""In the order of the Schedule itself."""
SCHEDULE = ", ".join(SCHEDULE_FIELDS)

_CATCH_UP = {policy.value: policy for policy in CatchUp}
_OVERLAP = {policy.value: policy for policy in Overlap}
_DST = {policy.value: policy for policy in Dst}


def schedule_of(tx: Transaction, row: Sequence[Any]) -> Schedule:
    """A row of the SCHEDULE columns as a Schedule."""
    time = tx.time
    return Schedule(
        row[0], row[1], tx.instant(row[2]), bool(row[3]), row[4], row[5], _read(row[6]), row[7], row[8],
        _read(row[9]), row[10], row[11], _read(row[12]), row[13], row[14], row[15],
        _DST[row[16]], row[17], time(row[18]), time(row[19]), _CATCH_UP[row[20]], row[21], _OVERLAP[row[22]],
        bool(row[23]), row[24], row[25], time(row[26]), row[27], row[28], time(row[29]), row[30], time(row[31]),
        time(row[32]), row[33], row[34], time(row[35]), time(row[36]), _read(row[37]), row[38],
        row[39], row[40], None if row[41] is None else EndpointCall(**json.loads(row[41])), row[42],
    )  # fmt: skip


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)
