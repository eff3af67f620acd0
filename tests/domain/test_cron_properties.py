"""Fire times against brute force, around the hours where clocks are turned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdbeat.domain.cron import Cron, Dst, zone_of
from holdbeat.domain.errors import Invalid
from tests.domain import cron_oracle

# Days (UTC) on which the clocks of a zone are turned: by how much, and what is special about it.
TURNS = [
    ("America/New_York", "2026-03-08"),  # +1 h
    ("America/New_York", "2026-11-01"),  # -1 h
    ("Europe/Berlin", "2024-10-27"),
    ("Europe/Dublin", "2025-03-30"),  # negative "saving" in winter
    ("Australia/Lord_Howe", "2017-10-01"),  # +30 min
    ("Australia/Lord_Howe", "2017-04-01"),  # -30 min
    ("America/Sao_Paulo", "2018-11-04"),  # the gap begins at midnight
    ("America/Sao_Paulo", "2018-02-18"),  # the fold ends at midnight
    ("America/Havana", "2025-11-02"),  # the fold begins at midnight
    ("America/St_Johns", "2011-03-13"),  # the gap begins at 00:01
    ("America/St_Johns", "2010-11-07"),  # the fold reaches back into the day before
    ("Asia/Kathmandu", "1985-12-31"),  # +15 min
    ("America/Caracas", "2016-05-01"),  # +30 min for good
    ("America/Caracas", "2007-12-09"),  # -30 min for good
    ("Asia/Pyongyang", "2018-05-04"),  # +30 min at 23:30
    ("Pacific/Chatham", "2025-09-27"),  # the gap begins at 02:45
    ("Antarctica/Troll", "2025-03-30"),  # +2 h
    ("Antarctica/Troll", "2025-10-26"),  # -2 h
    ("Antarctica/Casey", "2009-10-17"),  # +3 h
    ("Antarctica/Casey", "2010-03-04"),  # -3 h
    ("Africa/Casablanca", "2025-02-23"),  # for Ramadan
    ("Africa/Cairo", "2010-08-10"),
    ("Pacific/Apia", "2011-12-30"),  # the day does not exist
    ("Pacific/Kwajalein", "1993-08-21"),  # the day does not exist
    ("Asia/Tokyo", "2026-03-08"),  # nothing happens
    ("UTC", "2026-03-08"),
]
BEFORE, MINUTES = timedelta(hours=26), 100 * 60
# The oracle cannot see times that are moved here from before its walk, nor to where it has not been yet.
BLIND = timedelta(hours=25)


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, often: int) -> str:
    """One field; its values are drawn up to `often`, where the clocks are turned."""
    value = st.integers(low, often)
    terms = st.one_of(
        value.map(str),
        st.tuples(value, st.integers(low, high)).map(lambda pair: "{}-{}".format(*sorted(pair))),
        st.tuples(value, value, st.integers(1, 20)).map(lambda t: f"{min(t[:2])}-{max(t[:2])}/{t[2]}"),
        st.integers(1, 40).map("*/{}".format),
    )
    return draw(st.one_of(st.just("*"), st.lists(terms, min_size=1, max_size=3).map(",".join)))


days = st.one_of(st.just("*"), fields(1, 31, 31), st.sampled_from(["L", "LW", "1,L", "L,*/9"]))
months = st.one_of(st.just("*"), st.just("*"), fields(1, 12, 12), st.sampled_from(["JAN-apr", "oct,NOV"]))
weekdays = st.one_of(
    st.just("*"),
    fields(0, 7, 7),
    st.sampled_from(["0L", "7L", "sun#1", "SUN#2,6", "mon-FRI", "5#5", "fri-7"]),
)
expressions = st.tuples(fields(0, 59, 59), fields(0, 23, 5), days, months, weekdays).map(" ".join)


def parsed(text: str) -> Cron:
    try:
        return Cron.parse(text)
    except Invalid as refusal:
        assert "never" in refusal.detail
        assume(False)
        raise


@pytest.mark.rule("DEC-003", "TIME-01")
@settings(max_examples=220)
@given(expressions, st.sampled_from(TURNS), st.sampled_from(Dst), st.integers(0, 48 * 3600))
def test_fires_around_a_turn_of_the_clocks_are_those_of_brute_force(
    text: str, turn: tuple[str, str], dst: Dst, offset_s: int
) -> None:
    cron, zone = parsed(text), zone_of(turn[0])
    begin = datetime.fromisoformat(turn[1]).replace(tzinfo=UTC) - BEFORE
    after = begin + timedelta(seconds=offset_s)
    end = begin + timedelta(minutes=MINUTES) - BLIND
    expected = [at for at in cron_oracle.fires(text, zone, dst, begin, MINUTES) if after < at < end]
    instants = [fire.at for fire in takewhile(lambda fire: fire.at < end, cron.fires(after, zone, dst))]
    assert instants == expected


@pytest.mark.rule("DEC-003", "TIME-01")
@pytest.mark.parametrize("dst", list(Dst))
@pytest.mark.parametrize("turn", TURNS, ids=" ".join)
def test_every_start_around_a_turn_of_the_clocks_finds_the_same_fires(turn: tuple[str, str], dst: Dst) -> None:
    zone = zone_of(turn[0])
    begin = datetime.fromisoformat(turn[1]).replace(tzinfo=UTC) - BEFORE
    end = begin + timedelta(minutes=MINUTES) - BLIND
    for text in ("7,30 0-23 * * *", "*/20 0-4 * * *", "0 0,2 * * 0-7"):
        expected = cron_oracle.fires(text, zone, dst, begin, MINUTES)
        for minutes in range(0, 72 * 60, 37):
            after = begin + timedelta(minutes=minutes)
            upcoming = next(at for at in expected if at > after)
            if upcoming < end:
                assert Cron.parse(text).next_after(after, zone, dst) == upcoming


@pytest.mark.rule("DEC-003")
@settings(max_examples=80)
@given(
    days,
    months,
    weekdays,
    st.dates(datetime(1900, 1, 1, tzinfo=UTC).date(), datetime(2200, 1, 1, tzinfo=UTC).date()),
)
def test_matching_days_are_those_of_brute_force(day: str, month: str, weekday: str, start: object) -> None:
    text = f"0 0 {day} {month} {weekday}"
    cron = parsed(text)
    begin = datetime.fromisoformat(f"{start}T00:00+00:00")
    walking = cron_oracle.Walking(text)
    expected = [at for n in range(1, 800) if walking.matches((at := begin + timedelta(days=n)).replace(tzinfo=None))]
    fires = cron.fires(begin, zone_of("UTC"), Dst.VIXIE)
    assert [fire.at for fire in islice(fires, len(expected))] == expected


@pytest.mark.rule("DEC-003", "TIME-08")
@settings(max_examples=200)
@given(
    expressions,
    st.sampled_from(TURNS),
    st.sampled_from(Dst),
    st.datetimes(datetime(1890, 1, 1), datetime(2400, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_fires_are_later_one_by_one_on_whole_minutes_and_asked_singly_the_same(
    text: str, turn: tuple[str, str], dst: Dst, after: datetime
) -> None:
    cron, zone = parsed(text), zone_of(turn[0])
    previous = after
    for fire in islice(cron.fires(after, zone, dst), 8):
        assert fire.at > previous
        # Not compared as they are: amid a fold Python calls times of two zones unequal, whatever they are.
        assert fire.local.astimezone(UTC) == fire.at
        assert fire.local.second == fire.local.microsecond == 0 or dst is Dst.SHIFT
        assert fire.note in (None, "gap", "fold")
        if fire.note != "gap":
            assert cron_oracle.Walking(text).matches(fire.local.replace(tzinfo=None))
        assert cron.next_after(previous, zone, dst) == fire.at
        assert cron.next_after(fire.at - timedelta(microseconds=1), zone, dst) == fire.at
        previous = fire.at
