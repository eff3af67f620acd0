"""Fire times: the published cases, the three policies by name, the edges of the calendar."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from holdbeat.domain.cron import Cron, Dst, zone_of
from holdbeat.domain.errors import Invalid

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "cron_cases.json").read_text(encoding="utf-8")
)["cases"]


def walls(text: str, zone: str, after: str, dst: str = "vixie", n: int = 3) -> list[str]:
    fires = Cron.parse(text).fires(datetime.fromisoformat(after), zone_of(zone), Dst(dst))
    return [fire.local.isoformat(timespec="minutes") for fire in islice(fires, n)]


def notes(text: str, zone: str, after: str, dst: str = "vixie", n: int = 3) -> list[str | None]:
    fires = Cron.parse(text).fires(datetime.fromisoformat(after), zone_of(zone), Dst(dst))
    return [fire.note for fire in islice(fires, n)]


@pytest.mark.rule("DEC-003", "TIME-01")
@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] == "next"], ids=lambda c: c["id"])
def test_fire_times_agree_with_real_cron(case: dict[str, Any]) -> None:
    cron, zone = Cron.parse(case["expr"]), zone_of(case["tz"])
    fires = islice(cron.fires(datetime.fromisoformat(case["start"]), zone, Dst.VIXIE), len(case["expected"]))
    assert [fire.local.isoformat() for fire in fires] == case["expected"]


@pytest.mark.rule("DEC-003", "SEC-06")
@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] == "invalid"], ids=lambda c: c["id"])
def test_what_real_cron_refuses_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        Cron.parse(case["expr"])
    assert (refusal.value.code, refusal.value.field) == ("invalid_cron", "cron")


@pytest.mark.rule("TIME-01")
@pytest.mark.parametrize(
    ("dst", "expected"),
    [
        ("vixie", ["2026-03-08T03:00-04:00", "2026-03-09T02:30-04:00"]),
        ("skip", ["2026-03-09T02:30-04:00", "2026-03-10T02:30-04:00"]),
        ("shift", ["2026-03-08T03:30-04:00", "2026-03-09T02:30-04:00"]),
    ],
)
def test_a_fixed_time_in_a_gap_follows_its_policy(dst: str, expected: list[str]) -> None:
    assert walls("30 2 * * *", "America/New_York", "2026-03-08T00:00-05:00", dst, 2) == expected


@pytest.mark.rule("TIME-01")
@pytest.mark.parametrize("dst", list(Dst))
def test_a_fixed_time_in_a_fold_fires_in_the_first_pass_only(dst: Dst) -> None:
    assert walls("30 1 * * *", "America/New_York", "2026-11-01T00:00-04:00", dst, 2) == [
        "2026-11-01T01:30-04:00",
        "2026-11-02T01:30-05:00",
    ]


@pytest.mark.rule("TIME-01")
@pytest.mark.parametrize("dst", list(Dst))
@pytest.mark.parametrize("text", ["*/30 * * * *", "0,30 * * * *", "*/30 1-2 * * *", "0,30 */1 * * *"])
def test_a_field_that_begins_with_a_star_follows_elapsed_time_through_a_fold_under_every_policy(
    text: str, dst: Dst
) -> None:
    assert walls(text, "America/New_York", "2026-11-01T01:10-04:00", dst, n=4) == [
        "2026-11-01T01:30-04:00",
        "2026-11-01T01:00-05:00",
        "2026-11-01T01:30-05:00",
        "2026-11-01T02:00-05:00",
    ]


@pytest.mark.rule("TIME-01")
@pytest.mark.parametrize("dst", list(Dst))
def test_a_field_that_begins_with_a_star_fires_at_least_once_per_step_when_clocks_change(dst: Dst) -> None:
    for after in ("2026-03-08T00:00-05:00", "2026-11-01T00:00-04:00"):
        fires = walls("*/30 * * * *", "America/New_York", after, dst, n=12)
        instants = [datetime.fromisoformat(fire) for fire in fires]
        assert {later - earlier for earlier, later in pairwise(instants)} == {timedelta(minutes=30)}


@pytest.mark.rule("TIME-01")
def test_a_star_in_the_middle_of_a_list_does_not_make_the_time_elapsed() -> None:
    assert walls("0,*/30 1 * * *", "America/New_York", "2026-11-01T01:10-04:00", n=2) == [
        "2026-11-01T01:30-04:00",
        "2026-11-02T01:00-05:00",
    ]


@pytest.mark.rule("TIME-01")
def test_many_fixed_times_in_one_gap_fire_once_behind_it() -> None:
    assert walls("0-59/5 2 * * *", "America/New_York", "2026-03-08T00:00-05:00", n=2) == [
        "2026-03-08T03:00-04:00",
        "2026-03-09T02:00-04:00",
    ]


@pytest.mark.rule("TIME-01")
def test_shifted_times_and_ordinary_ones_come_in_order_and_once() -> None:
    text, after = "0,45 2,3 * * *", "2026-03-08T00:00-05:00"
    assert walls(text, "America/New_York", after, "shift", 3) == [
        "2026-03-08T03:00-04:00",
        "2026-03-08T03:45-04:00",
        "2026-03-09T02:00-04:00",
    ]
    assert walls("45 2 * * *", "America/New_York", "2026-03-08T03:10-04:00", "shift", 1) == ["2026-03-08T03:45-04:00"]


@pytest.mark.rule("TIME-01")
@pytest.mark.parametrize(
    ("text", "zone", "after", "dst", "expected"),
    [
        ("15 2 * * *", "Australia/Lord_Howe", "2017-10-01T00:00+10:30", "vixie", "2017-10-01T02:30+11:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2017-10-01T00:00+10:30", "shift", "2017-10-01T02:45+11:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2017-10-01T00:00+10:30", "skip", "2017-10-02T02:15+11:00"),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00-03:00", "vixie", "2018-11-04T01:00-02:00"),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00-03:00", "skip", "2018-11-05T00:00-02:00"),
        ("30 2 * * *", "Antarctica/Troll", "2025-03-30T00:30+00:00", "vixie", "2025-03-30T03:00+02:00"),
        ("30 2 * * *", "Antarctica/Troll", "2025-03-30T00:30+00:00", "shift", "2025-03-30T04:30+02:00"),
        ("0 3 * * *", "Antarctica/Casey", "2009-10-18T00:00+08:00", "vixie", "2009-10-18T05:00+11:00"),
        ("0 3 * * *", "Antarctica/Casey", "2009-10-18T00:00+08:00", "shift", "2009-10-18T06:00+11:00"),
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00-10:00", "vixie", "2011-12-31T00:00+14:00"),
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00-10:00", "skip", "2011-12-31T09:00+14:00"),
        ("0 9 30 * *", "Pacific/Apia", "2011-12-29T12:00-10:00", "shift", "2011-12-31T09:00+14:00"),
        ("0 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00-10:00", "skip", "2012-12-30T09:00+14:00"),
        ("*/20 * * * *", "Pacific/Apia", "2011-12-29T23:50-10:00", "vixie", "2011-12-31T00:00+14:00"),
    ],
)
def test_gaps_of_every_length_are_gaps(text: str, zone: str, after: str, dst: str, expected: str) -> None:
    assert walls(text, zone, after, dst, 1) == [expected]


@pytest.mark.rule("TIME-01")
def test_a_gap_that_ends_amid_a_minute_fires_at_the_next_whole_one() -> None:
    # Liberia moved from -00:44:30 to UTC: the clocks went from 00:00:00 to 00:44:30.
    cron, zone = Cron.parse("30 0 * * *"), zone_of("Africa/Monrovia")
    behind = datetime(1972, 1, 7, 0, 45, tzinfo=UTC)
    assert cron.next_after(datetime(1972, 1, 6, 12, tzinfo=UTC), zone, Dst.VIXIE) == behind
    assert cron.next_after(behind - timedelta(seconds=20), zone, Dst.VIXIE) == behind
    assert cron.next_after(behind, zone, Dst.VIXIE) == behind.replace(day=8, minute=30)


@pytest.mark.rule("TIME-08")
def test_a_preview_marks_gaps_and_folds() -> None:
    new_york, spring = "America/New_York", "2026-03-07T12:00-05:00"
    assert notes("30 2 * * *", new_york, spring) == ["gap", None, None]
    assert notes("30 2 * * *", new_york, spring, "shift") == ["gap", None, None]
    assert notes("30 2 * * *", new_york, spring, "skip") == [None, None, None]
    assert notes("0 * * * *", new_york, "2026-03-08T00:30-05:00") == [None, None, None]
    assert notes("30 1 * * *", new_york, "2026-10-31T12:00-04:00") == ["fold", None, None]
    assert notes("0 * * * *", new_york, "2026-11-01T00:00-04:00") == ["fold", "fold", None]


@pytest.mark.rule("TIME-08")
def test_a_preview_shows_the_same_instant_twice_in_utc_and_on_the_wall() -> None:
    after = datetime(2026, 6, 1, tzinfo=UTC)
    fire = next(Cron.parse("30 9 * * 1-5").fires(after, zone_of("Asia/Kathmandu"), Dst.VIXIE))
    assert fire.at == fire.local == datetime(2026, 6, 1, 3, 45, tzinfo=UTC)
    assert fire.at.tzinfo is UTC
    assert fire.local.isoformat() == "2026-06-01T09:30:00+05:45"


@pytest.mark.rule("DEC-003")
@pytest.mark.parametrize(
    ("nickname", "text"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_a_nickname_fires_when_its_five_fields_do(nickname: str, text: str) -> None:
    for after in ("2026-03-08T00:00-05:00", "2026-11-01T00:30-04:00"):
        assert walls(nickname, "America/New_York", after, n=5) == walls(text, "America/New_York", after, n=5)


@pytest.mark.rule("DEC-003")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 1,L * *", ["2026-01-31", "2026-02-01", "2026-02-28"]),
        ("0 0 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        ("0 0 * * 5L", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("0 0 * * MON#2", ["2026-01-12", "2026-02-09", "2026-03-09"]),
        ("0 0 * * 7#1,3#5", ["2026-02-01", "2026-03-01", "2026-04-05"]),
        ("0 0 13 * 5", ["2026-01-13", "2026-01-16", "2026-01-23"]),
        ("0 0 */13 * 5", ["2026-02-27", "2026-03-27", "2026-05-01"]),
        ("0 0 31 2 1", ["2026-02-02", "2026-02-09", "2026-02-16"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 29 2 */7", ["2032-02-29", "2060-02-29", "2088-02-29"]),
        ("0 0 5-5/2 * *", ["2026-02-05", "2026-03-05", "2026-04-05"]),
        ("0 0 * * sat-7", ["2026-01-10", "2026-01-11", "2026-01-17"]),
    ],
)
def test_days_are_chosen_as_written(text: str, expected: list[str]) -> None:
    assert [wall[:10] for wall in walls(text, "UTC", "2026-01-09T12:00+00:00")] == expected


@pytest.mark.rule("DEC-003")
def test_a_fire_is_strictly_after_the_moment_asked_about() -> None:
    cron, zone = Cron.parse("* * * * *"), zone_of("UTC")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert cron.next_after(noon, zone, Dst.VIXIE) == noon + timedelta(minutes=1)
    assert cron.next_after(noon - timedelta(microseconds=1), zone, Dst.VIXIE) == noon
    elsewhere = noon.astimezone(timezone(timedelta(hours=-7)))
    assert cron.next_after(elsewhere, zone, Dst.VIXIE) == noon + timedelta(minutes=1)


@pytest.mark.rule("DEC-003")
def test_a_moment_without_a_zone_is_not_an_instant() -> None:
    with pytest.raises(ValueError, match="aware"):
        Cron.parse("* * * * *").next_after(datetime(2026, 1, 1), zone_of("UTC"), Dst.VIXIE)  # noqa: DTZ001


@pytest.mark.rule("DEC-003")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Apia", "Asia/Tokyo", "Etc/GMT+12"])
@pytest.mark.parametrize("dst", list(Dst))
@pytest.mark.parametrize("text", ["* * * * *", "0 0 29 2 *", "30 2 * * *", "59 23 31 12 *", "0 0 * 2 1#5"])
def test_there_is_no_due_time_after_the_end_of_the_calendar(zone: str, dst: Dst, text: str) -> None:
    cron = Cron.parse(text)
    last = datetime.max.replace(tzinfo=UTC)
    assert cron.next_after(last, zone_of(zone), dst) is None
    for before_the_end in (timedelta(hours=1), timedelta(days=1), timedelta(days=400)):
        at = cron.next_after(last - before_the_end, zone_of(zone), dst)
        assert at is None or at > last - before_the_end
    first = datetime.min.replace(tzinfo=UTC)
    at = cron.next_after(first, zone_of(zone), dst)
    assert at is not None
    assert at > first


@pytest.mark.rule("DEC-003")
def test_expressions_with_the_same_text_are_one() -> None:
    cron = Cron.parse("30 9 * * 1-5")
    assert cron is Cron.parse("30 9 * * 1-5")
    copy = pickle.loads(pickle.dumps(cron))
    assert (copy, hash(copy), copy.text) == (cron, hash(cron), "30 9 * * 1-5")
    assert cron != Cron.parse("30 9 * * 1-6")
    with pytest.raises(AttributeError):
        cron.text = "* * * * *"  # type: ignore[misc]


@pytest.mark.rule("TIME-08")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("30 9 * * 1-5", "at 09:30 on Monday through Friday"),
        ("@hourly", "at the start of every hour"),
        ("0 0 29 2 *", "at 00:00 on February 29"),
        ("0 0 * * 1#2", "at 00:00 on the second Monday of the month"),
        # Without a star either field of days is enough: here the one that names all days decides.
        ("0 0 1-31 * 1", "at 00:00 every day"),
        ("0 0 1-15,16-31 * 1", "at 00:00 every day"),
        ("0 0 5 * 0-6", "at 00:00 every day"),
        ("0 0 5 * 1-7", "at 00:00 every day"),
        ("0 0 5 * 1-6", "at 00:00 on the fifth day of month and on Monday through Saturday"),
        ("0 0 */2 * 1", "at 00:00 on every second day of month if it's on Monday"),
        # A step beyond the end leaves one value.
        ("*/100 * * * *", "at the start of every hour"),
        ("0 */24 * * *", "at 00:00 every day"),
        ("0 0 * * */7", "at 00:00 on Sunday"),
        ("0 0 1-31/40 * *", "at 00:00 on the first day of every month"),
    ],
)
def test_an_expression_can_be_said_in_words(text: str, sentence: str) -> None:
    assert Cron.parse(text).describe() == sentence


@pytest.mark.rule("DEC-003")
@pytest.mark.parametrize("text", ["0 9 * * 1-5", "*/5 * * * *", "30 2 * * *", "@monthly"])
def test_planning_a_hundred_thousand_schedules_fits_in_a_minute(text: str) -> None:
    cron, zone = Cron.parse(text), zone_of("America/New_York")
    after: datetime | None = datetime(2026, 1, 1, tzinfo=UTC)
    begun = time.thread_time()
    for _ in range(2000):
        assert after is not None
        after = cron.next_after(after, zone, Dst.VIXIE)
    assert (time.thread_time() - begun) / 2000 < 1 / 20_000


@pytest.mark.rule("DEC-003")
@pytest.mark.parametrize("dst", list(Dst))
@pytest.mark.parametrize("text", ["0 0 29 2 */7", "0 0 * 2 1#5", "0-59 0-23 29 2 *", "0 0 */30 12 5L"])
def test_a_sparse_expression_is_planned_within_ten_milliseconds(text: str, dst: Dst) -> None:
    cron, zone = Cron.parse(text), zone_of("Australia/Lord_Howe")
    for year in (1889, 2026, 2088, 9950):
        begun = time.thread_time()
        cron.next_after(datetime(year, 3, 1, tzinfo=UTC), zone, dst)
        assert time.thread_time() - begun < 0.01


@pytest.mark.rule("DEC-003")
@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 * * */7", ["04 Sun", "11 Sun", "18 Sun"]),
        ("0 0 * * 7-7", ["04 Sun", "11 Sun", "18 Sun"]),
        ("0 0 * * 0-7", ["02 Fri", "03 Sat", "04 Sun"]),
        ("0 0 * * 5-7", ["02 Fri", "03 Sat", "04 Sun"]),
        ("0 0 * * 6-7/2", ["03 Sat", "10 Sat", "17 Sat"]),
        ("0 0 * * */2", ["03 Sat", "04 Sun", "06 Tue"]),
        ("0 0 * jAn sUn#2", ["11 Sun", "10 Sun", "09 Sun"]),
        ("0 0 * * 7#1", ["04 Sun", "01 Sun", "01 Sun"]),
        ("0 0 * * 7L", ["25 Sun", "22 Sun", "29 Sun"]),
        ("0 0 LW * *", ["30 Fri", "27 Fri", "31 Tue"]),
        ("0 0 13 * 5", ["02 Fri", "09 Fri", "13 Tue"]),
        ("0 0 */2 * 1", ["05 Mon", "19 Mon", "09 Mon"]),
        ("0 0 30 2 1", ["02 Mon", "09 Mon", "16 Mon"]),
        ("@midnight", ["02 Fri", "03 Sat", "04 Sun"]),
        ("@annually", ["01 Fri", "01 Sat", "01 Mon"]),
        ("0 0 1-31 * 1", ["02 Fri", "03 Sat", "04 Sun"]),
    ],
)
def test_what_cron_leaves_to_its_reader_is_read_as_cron_reads_it(text: str, days: list[str]) -> None:
    fires = Cron.parse(text).fires(datetime(2026, 1, 1, tzinfo=UTC), zone_of("UTC"), Dst.VIXIE)
    assert [fire.at.strftime("%d %a") for fire in islice(fires, len(days))] == days
