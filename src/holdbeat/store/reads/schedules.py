"""Rows of the schedules table as Schedules; schedules/schedule_rows.py writes them."""

from __future__ import annotations

import json
from dataclasses import fields

from holdbeat.domain.cron import Dst
from holdbeat.domain.endpoint import EndpointCall
from holdbeat.domain.schedule import CatchUp, Overlap, Schedule
from holdbeat.store.reads.columns import TIME, member_of, optional, row_reader

SCHEDULE_FIELDS = tuple(field.name for field in fields(Schedule))
"""In the order of the Schedule itself."""
SCHEDULE = ", ".join(SCHEDULE_FIELDS)

schedule_of = row_reader(
    Schedule,
    SCHEDULE_FIELDS,
    {
        "created_at": TIME,
        "enabled": bool,
        "params": optional(json.loads),
        "retry_policy": optional(json.loads),
        "labels": optional(json.loads),
        "dst": member_of(Dst),
        "start_at": TIME,
        "end_at": TIME,
        "catch_up": member_of(CatchUp),
        "overlap": member_of(Overlap),
        "adaptive": bool,
        "paused_until": TIME,
        "hint_interval_expires_at": TIME,
        "hint_next_run_at": TIME,
        "hint_next_run_expires_at": TIME,
        "last_run_at": TIME,
        "next_run_at": TIME,
        "last_decision": optional(json.loads),
        "endpoint": optional(lambda text: EndpointCall(**json.loads(text))),
    },
)
"""A row of the SCHEDULE columns as a Schedule."""
