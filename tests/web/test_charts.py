"""The picture of the timeline is true: each stretch of work in a lane of its kind, none over another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdbeat.store.reads.timeline import Span
from holdbeat.web.charts import lanes, time_ticks
from tests.api.serving import Served

NOW = datetime(2026, 11, 16, 1, 50, 30, tzinfo=UTC)
ZONE = ZoneInfo("UTC")


def _span(number: int, slot: int | None, resource: str, began_s: float, ended_s: float, job: str | None) -> Span:
    began, ended = NOW - timedelta(seconds=began_s), NOW - timedelta(seconds=ended_s)
    return Span(str(number), job, "t", resource, "w", slot, began, ended, "COMPLETED", None)


@pytest.mark.rule("DIR-01")
def test_a_direct_request_whose_slot_is_forgotten_is_drawn_in_a_lane_of_its_kind() -> None:
    spans = [
        _span(1, 0, "gpu", 60, 10, "a"),
        _span(2, -1, "http", 60, 50, "b"),
        _span(3, None, "gpu", 40, 30, None),
        _span(4, None, "http", 40, 30, None),
        _span(5, None, "http", 35, 20, None),
    ]
    (lane,) = lanes(spans, NOW - timedelta(seconds=120), NOW, ZONE, by_worker=True)
    by_name = {row["name"]: [bar["span"].id for bar in row["bars"]] for row in lane["rows"]}
    assert by_name == {"slot 1": ["1"], "slot 2": ["3"], "http 1": ["2", "4"], "http 2": ["5"]}


def test_the_lanes_of_a_resource_hold_its_work_whichever_slot_it_had() -> None:
    spans = [
        _span(1, 0, "gpu", 60, 50, "a"),
        _span(2, 3, "gpu", 50, 40, "b"),
        _span(3, None, "gpu", 45, 30, None),
        _span(4, 1, "cpu", 60, 10, "c"),
    ]
    drawn = lanes(spans, NOW - timedelta(seconds=120), NOW, ZONE)
    by_name = {lane["name"]: [[bar["span"].id for bar in row["bars"]] for row in lane["rows"]] for lane in drawn}
    assert by_name == {"cpu": [["4"]], "gpu": [["1", "2"], ["3"]]}


@pytest.mark.parametrize(("count", "height", "names"), [(12, 30, list(range(1, 13))), (21, 9, [1, 11, 21])])
def test_lanes_are_in_the_order_of_their_numbers_and_narrow_where_there_are_many(
    count: int, height: int, names: list[int]
) -> None:
    spans = [_span(number, number, "http", 60, 10, f"job {number}") for number in range(count)]
    for by_worker, prefix in ((False, ""), (True, "slot ")):
        (lane,) = lanes(spans, NOW - timedelta(seconds=120), NOW, ZONE, by_worker=by_worker)
        assert lane["height"] == height
        assert [row["name"] for row in lane["rows"] if row["name"]] == [f"{prefix}{name}" for name in names]
        assert [bar["span"].id for row in lane["rows"] for bar in row["bars"]] == [str(each) for each in range(count)]


@pytest.mark.rule("UI-01")
def test_the_axis_is_labelled_in_the_reader_s_zone() -> None:
    ticks = time_ticks(NOW - timedelta(hours=1), NOW, ZoneInfo("Asia/Kolkata"))
    assert ticks[-1]["label"] == "07:10"


def test_the_axis_of_two_minutes_counts_seconds_and_that_of_an_hour_does_not() -> None:
    short = [tick["label"] for tick in time_ticks(NOW - timedelta(minutes=2), NOW, ZONE)]
    assert short == ["01:48:40", "01:49:00", "01:49:20", "01:49:40", "01:50:00", "01:50:20"]
    assert [tick["label"] for tick in time_ticks(NOW - timedelta(hours=1), NOW, ZONE)][-1] == "01:40"


def test_whoever_has_just_begun_sees_the_last_two_minutes(served: Served) -> None:
    served.run_job("echo")
    assert "in the last 2 min" in served.client.get("/ui/timeline").text
    assert "in the last 15 min" in served.client.get("/ui/timeline", params={"zoom": "15m"}).text
