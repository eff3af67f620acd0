"""Schedules, and the preview of timetables that nobody saved yet."""

from __future__ import annotations

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.schedule_routes import Kind, add_routes
from holdbeat.api.routes import ID_OR_NAME, Routes
from holdbeat.api.schemas.schedules import (
    Preview,
    PreviewRequest,
    Schedule,
    ScheduleChange,
    SchedulePage,
    ScheduleRequest,
)
from holdbeat.domain.bounds import check_duration_s, check_line, check_whole_number
from holdbeat.domain.schedule import LONGEST_INTERVAL_S, SHORTEST_INTERVAL_S
from holdbeat.domain.views import preview_json, schedule_json
from holdbeat.store.schedules.schedule_reports import preview_timetable

routes = Routes("schedules", path_id=ID_OR_NAME)
_KIND = Kind(
    "schedule", "/api/schedules", False, schedule_json, Schedule, SchedulePage, ScheduleRequest, ScheduleChange
)


@routes.post("/api/schedules/preview", body=PreviewRequest, answers={200: Preview})
async def preview_schedule_timetable(call: ApiRequest) -> Response:
    """Show the next due times of a cron expression or an interval before it is saved, gaps and folds marked."""
    given = await call.fields(("cron", "interval_s", "timezone", "dst", "after", "n"))
    if given.get("cron") is not None:
        check_line(given["cron"], "cron", 256)
    if given.get("interval_s") is not None:
        check_duration_s(given["interval_s"], "interval_s", SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S)
    for name in ("timezone", "dst"):
        if given.get(name) is not None:
            check_line(given[name], name, 200)
    if given.get("n") is not None:
        check_whole_number(given["n"], "n", 1, 1000)
    fires = await call.service.store.read(preview_timetable, given)
    return answer(preview_json(fires))


add_routes(routes, _KIND)
