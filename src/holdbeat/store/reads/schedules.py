"""Rows of the schedules table as Schedules; schedules/schedule_rows.py writes them."""

from __future__ import annotations

import json

from holdbeat.domain.endpoint import EndpointCall
from holdbeat.domain.schedule import Schedule
from holdbeat.store.reads.columns import field_names, optional, row_reader

SCHEDULE_FIELDS = field_names(Schedule)
SCHEDULE = ", ".join(SCHEDULE_FIELDS)

schedule_of = row_reader(
    Schedule, SCHEDULE_FIELDS, {"endpoint": optional(lambda text: EndpointCall(**json.loads(text)))}
)
"""A row of the SCHEDULE columns as a Schedule."""
