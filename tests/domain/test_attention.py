"""ALR-01: what is said about an operational Event, and what to do about it."""

from __future__ import annotations

import pytest

from holdbeat.domain.attention import ADVICE, advice_for, detail_of
from holdbeat.domain.webhook import OPERATIONAL_EVENTS


@pytest.mark.rule("ALR-01")
def test_each_operational_event_has_words_of_its_own() -> None:
    assert set(ADVICE) == set(OPERATIONAL_EVENTS)
    for name, advice in ADVICE.items():
        assert advice.text(1) and "1,234" in advice.text(1234) and advice.advice.endswith("."), name


@pytest.mark.rule("ALR-01")
def test_an_event_without_words_is_shown_by_its_name() -> None:
    advice = advice_for("gate.closed")
    assert (advice.text(1), advice.text(2)) == ("gate.closed happened", "gate.closed happened 2 times")


@pytest.mark.rule("ALR-01")
def test_the_detail_is_one_line_of_plain_values() -> None:
    assert detail_of({"host": "left", "count": 2, "deep": {"a": 1}}) == "count 2, host left"
    assert detail_of({}) is None
    assert len(detail_of({"text": "x" * 1000}) or "") == 300
