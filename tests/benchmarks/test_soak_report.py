"""A soak fails when a series ends higher than it began."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.soak_report import ALLOWED, leaks, picture


def _samples(**last: float) -> list[dict[str, float]]:
    """Forty samples of series that stay at 100, apart from those that rise evenly to the given value."""
    return [
        {
            "at_s": 120.0 * number,
            **{name: 100 + (last.get(name, 100) - 100) * number / 39 + number % 3 for name in ALLOWED},
        }
        for number in range(40)
    ]


def test_series_that_stay_where_they_are_are_no_leak() -> None:
    assert leaks(_samples()) == []


@pytest.mark.parametrize("name", [*ALLOWED])
def test_a_series_that_rises_to_the_end_is_a_leak(name: str) -> None:
    assert leaks(_samples(**{name: 12000.0}))[0].startswith(f"{name} grew from ")


def test_what_grows_only_at_the_beginning_is_no_leak() -> None:
    samples = [{**sample, "rss_mb": min(100.0, 50 + 10.0 * number)} for number, sample in enumerate(_samples())]
    assert leaks(samples) == []


def test_rows_that_go_in_passes_are_not_judged_in_a_short_run() -> None:
    samples = [{**sample, "at_s": float(number)} for number, sample in enumerate(_samples(rows=12000.0))]
    assert leaks(samples) == []


@pytest.mark.parametrize("begins_at_s", range(0, 660, 60))
def test_rows_that_rise_between_passes_are_a_leak_only_if_a_pass_leaves_more(begins_at_s: int) -> None:
    """Samples of two hours; a pass every eleven minutes leaves 3,000 rows, and up to 24,000 come before the next."""

    def rows_at(at_s: float, left: float) -> float:
        return left + 21_000 * ((at_s + begins_at_s) % 660) / 660

    def samples(last_left: float) -> list[dict[str, float]]:
        left = [3000 + (last_left - 3000) * number / 239 for number in range(240)]
        return [{"at_s": 30.0 * number, "rows": rows_at(30.0 * number, left[number])} for number in range(240)]

    assert leaks(samples(3000)) == []
    assert leaks(samples(8000))[0].startswith("rows grew from ")


def test_too_few_samples_tell_nothing_and_fail() -> None:
    assert "too few" in leaks(_samples()[:5])[0]


def test_the_picture_has_a_line_for_each_series() -> None:
    root = ElementTree.fromstring(picture(_samples(), "A & B"))
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == len(ALLOWED)
    assert all(len(line.attrib["points"].split()) == 40 for line in lines)
