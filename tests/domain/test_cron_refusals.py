"""What is no cron expression and no timezone is refused, always in the same way and at once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdbeat.domain.cron import Cron, zone_of
from holdbeat.domain.errors import Invalid


def refusal_of(text: Any) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        Cron.parse(text)
    assert type(refusal.value) is Invalid
    assert (refusal.value.code, refusal.value.field) == ("invalid_cron", "cron")
    assert refusal.value.detail.isascii()
    assert refusal.value.detail.isprintable()
    return refusal.value


def refuse_or_describe(text: str) -> None:
    try:
        sentence = Cron.parse(text).describe()
    except Invalid as refusal:
        assert (refusal.code, refusal.field) == ("invalid_cron", "cron")
    else:
        assert sentence


@pytest.mark.rule("DEC-003", "SEC-06")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("60 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("5-5/0 * * * *", "minute"),
        ("10-5 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("1, * * * *", "minute"),
        ("5/15 * * * *", "minute"),
        ("5-64/30 * * * *", "minute"),
        ("** * * * *", "minute"),
        ("*/5/5 * * * *", "minute"),
        ("*-5 * * * *", "minute"),
        ("MON * * * *", "minute"),
        ("H * * * *", "minute"),
        ("0~30 * * * *", "minute"),
        ("+5 * * * *", "minute"),
        ("1_0 * * * *", "minute"),
        ("1.5 * * * *", "minute"),
        ("0x5 * * * *", "minute"),
        ("\0 * * * *", "minute"),
        ("5\0 * * * *", "minute"),
        ("\u0665 * * * *", "minute"),
        ("\u00b2 * * * *", "minute"),
        ("\uff15 * * * *", "minute"),
        ("\ud800 * * * *", "minute"),
        ("9" * 200 + " * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* 22-2 * * *", "hour"),
        ("* L * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * 32 * *", "day-of-month"),
        ("* * ? * *", "day-of-month"),
        ("* * 15W * *", "day-of-month"),
        ("* * L-3 * *", "day-of-month"),
        ("* * L/2 * *", "day-of-month"),
        ("* * 1#2 * *", "day-of-month"),
        ("* * * 0 *", "month"),
        ("* * * 13 *", "month"),
        ("* * * january *", "month"),
        ("* * * NOV-FEB *", "month"),
        ("* * * MON *", "month"),
        ("* * * * 8", "day-of-week"),
        ("* * * * fri-sun", "day-of-week"),
        ("* * * * fr\u0131", "day-of-week"),
        ("* * * * \u017fun", "day-of-week"),
        ("* * * * monday", "day-of-week"),
        ("* * * * L", "day-of-week"),
        ("* * * * 1#0", "day-of-week"),
        ("* * * * 1#6", "day-of-week"),
        ("* * * * 1-5#2", "day-of-week"),
        ("* * * * *#2", "day-of-week"),
        ("* * * * */SUN", "day-of-week"),
        ("* * * * *\n", "day-of-week"),
        ("* * * * JAN", "day-of-week"),
    ],
)
def test_the_refusal_names_the_field_at_fault(text: str, name: str) -> None:
    assert f"The {name} field " in refusal_of(text).detail


@pytest.mark.rule("DEC-003", "SEC-06")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "*",
        "* * * *",
        "* * * * * *",
        "0 0 0 1 1 * 2026",
        "*\u00a0* * * *",
        "@",
        "@reboot",
        "@every 5m",
        "@daily *",
        "@DAILY",
        "@hourly\n",
        "daily",
        "* * * * * /bin/true",
    ],
)
def test_anything_but_five_fields_or_a_nickname_is_refused(text: str) -> None:
    refusal_of(text)


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize("value", [None, 5, 1.5, b"* * * * *", ["* * * * *"], {"cron": "*"}])
def test_what_is_no_text_is_refused_like_a_bad_text(value: Any) -> None:
    refusal_of(value)


@pytest.mark.rule("SEC-06")
def test_an_expression_may_have_256_characters_and_no_more() -> None:
    longest = ("0,15,30 " + "0," * 110 + "9 * * *").ljust(256)
    assert len(longest) == 256
    assert Cron.parse(longest).text == longest
    assert "256" in refusal_of(longest + " ").detail
    refusal_of("9" * 5000)
    refusal_of(",".join(["1"] * 20_000) + " * * * *")


@pytest.mark.rule("DEC-003", "SEC-06")
@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *",
        "0 0 30 2 *",
        "0 0 30-31 FEB *",
        "0 0 31 4,6,9,11 *",
        "0 0 31 2 */2",
        "0 0 */32 * 1#2",
        "0 0 */10 2 1#5",
        "0 0 */40 * 0L",
    ],
)
def test_a_date_that_never_comes_is_refused_at_once(text: str) -> None:
    begun = time.thread_time()
    detail = refusal_of(text).detail
    assert time.thread_time() - begun < 0.01
    assert "never" in detail
    assert "day-of-month" in detail


@pytest.mark.rule("SEC-06")
@settings(max_examples=400)
@given(st.one_of(st.text(max_size=300), st.text(alphabet="0123456789*/-,#LWlw@ \tMONJANsunfri", max_size=40)))
@example("1#" + "1" * 250)
@example("*/" + "0" * 250)
def test_no_text_raises_anything_but_the_refusal(text: str) -> None:
    refuse_or_describe(text)


@pytest.mark.rule("SEC-06")
@settings(max_examples=400)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["*", "0", "1", "5", "7", "12", "59", "L", "W", "#", "-", "/", ",", "JAN", "sun"]),
            min_size=1,
            max_size=6,
        ).map("".join),
        min_size=5,
        max_size=5,
    ).map(" ".join)
)
def test_no_five_fields_raise_anything_but_the_refusal(text: str) -> None:
    refuse_or_describe(text)


@pytest.mark.rule("DEC-010")
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "Mars/Olympus",
        "Europe/Nowhere",
        "europe/berlin",
        "EUROPE/BERLIN",
        "utc",
        " UTC",
        "UTC ",
        "UTC\n",
        "UTC\0",
        "Europe",
        "Europe/",
        "/Europe/Berlin",
        "/etc/passwd",
        "../../etc/passwd",
        "Europe/../Europe/Berlin",
        "Europe//Berlin",
        "./UTC",
        "Europe\\Berlin",
        "C:\\Windows",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "posixrules",
        "localtime",
        "Factory",
        "zone.tab",
        "tzdata.zi",
        "leapseconds",
        "+01:00",
        "UTC+1",
        "CEST",
        "Europe/Berl\u0131n",
        "\ud800",
        "A" * 1_000_000,
        None,
        5,
        ["UTC"],
    ],
)
def test_an_unknown_timezone_is_refused(name: Any) -> None:
    begun = time.thread_time()
    with pytest.raises(Invalid) as refusal:
        zone_of(name)
    assert (refusal.value.code, refusal.value.field) == ("unknown_timezone", "timezone")
    assert refusal.value.detail.isascii()
    assert time.thread_time() - begun < 0.5


@pytest.mark.rule("DEC-010")
@settings(max_examples=200)
@given(st.text(max_size=60))
def test_no_name_raises_anything_but_the_refusal(name: str) -> None:
    try:
        assert zone_of(name).key == name
    except Invalid as refusal:
        assert refusal.code == "unknown_timezone"


@pytest.mark.rule("DEC-010")
@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12"])
def test_a_known_timezone_is_found_and_kept(name: str) -> None:
    assert zone_of(name).key == name
    assert zone_of(name) is zone_of(name)


@pytest.mark.rule("DEC-010")
def test_a_misspelled_timezone_gets_a_proposal() -> None:
    with pytest.raises(Invalid, match="did you mean Europe/Berlin"):
        zone_of("europe/berlin")


@pytest.mark.rule("DEC-003", "SEC-06")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 * * 5-1", "'5-1' runs backwards"),
        ("0 0 * * fri-sun", "ends with 7"),
        ("0 22-2 * * *", "the hour field '22-2'"),
        ("0 0 * nov-feb *", "'NOV-FEB' runs backwards"),
        ("1, 2 * * * *", "a list has no spaces in it"),
        ("0 0 0 * * *", "neither seconds nor years"),
        ("@every 5m", "give interval_s"),
        ("@daily x", "'@daily x' is not a known nickname"),
    ],
)
def test_a_refusal_says_what_to_do_instead(text: str, words: str) -> None:
    assert words.lower() in refusal_of(text).detail.lower()
