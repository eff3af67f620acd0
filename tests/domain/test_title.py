"""Titles: one line that says what a job is about, and never a secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.errors import Invalid
from holdbeat.domain.title import LONGEST_TITLE, check_pattern, job_title

pytestmark = pytest.mark.rule("TTL-01")


def test_the_given_title_wins_over_pattern_schedule_and_params() -> None:
    title = job_title("story", {"prompt": "a fox"}, title="Mine", pattern="Story: {prompt}", schedule_name="nightly")
    assert title == "Mine"
    assert job_title("story", {"prompt": "a fox"}, pattern="Story: {prompt}", schedule_name="n") == "Story: a fox"
    assert job_title("story", {"prompt": "a fox"}, schedule_name="nightly") == "nightly"
    assert job_title("story", {"prompt": "a fox", "words": 500}) == "prompt=a fox, words=500"
    assert job_title("story", {}) == "story"


def test_a_pattern_takes_the_default_of_a_param_that_was_left_out() -> None:
    schema = {"properties": {"words": {"type": "integer", "default": 400}}}
    assert job_title("story", {}, pattern="{words} words", schema=schema) == "400 words"


@pytest.mark.parametrize(
    "params",
    [
        {"password": "hunter22hunter", "n": 1},
        {"api_key": "hunter22hunter", "n": 1},
        {"access_token": "hunter22hunter", "n": 1},
        {"note": "Authorization: Bearer hunter22hunter", "n": 1},
        {"dsn": "postgresql://anna:hunter22hunter@db/x", "n": 1},
        {"deep": {"password": "hunter22hunter"}, "n": 1},
        {"url": "https://example.org/x?key=hunter22hunter", "n": 1},
    ],
)
def test_no_secret_of_the_params_is_in_the_title(params: dict[str, Any]) -> None:
    assert "hunter22hunter" not in job_title("report", params)
    assert "n=1" in job_title("report", params)
    for name in params:
        assert "hunter22hunter" not in job_title("report", params, pattern=f"Report {{{name}}}")


def test_a_call_is_named_by_its_method_and_address_without_credentials_and_query() -> None:
    params = {"url": "https://anna:pw@example.org/a/b?key=1#c", "method": "POST", "headers": {"Cookie": "x"}}
    assert job_title("http", params) == "POST https://example.org/a/b?…"


@given(st.text(max_size=2000))
def test_every_title_is_one_visible_line_of_at_most_120_characters(text: str) -> None:
    for title in (job_title("t", {}, title=text), job_title("t", {"x": text}), job_title("t", {}, pattern=text)):
        assert 1 <= len(title) <= LONGEST_TITLE
        assert len(title.splitlines()) == 1
        assert "\x00" not in title and "\x1b" not in title and "\u202e" not in title


def test_a_pattern_that_names_no_param_of_the_type_is_refused() -> None:
    with pytest.raises(Invalid, match="does not take"):
        check_pattern("Story: {promt}", ["prompt"], takes_others=False)
    assert check_pattern("Story: {anything}", ["prompt"], takes_others=True) == "Story: {anything}"
    with pytest.raises(Invalid):
        check_pattern("x" * 121, [], takes_others=True)
