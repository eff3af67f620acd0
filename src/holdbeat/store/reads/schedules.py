"""Rows of the schedules table as Schedules; schedules/schedule_rows.py writes them."""

from __future__ import annotations

import json

from holdbeat.domain.endpoint import EndpointCall
from holdbeat.domain.schedule import Schedule
from holdbeat.store.reads.columns import Table, optional

SCHEDULES = Table("schedules", Schedule, {"endpoint": optional(lambda text: EndpointCall(**json.loads(text)))})
