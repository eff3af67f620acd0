"""Which questions a handler may ask."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdbeat.cli.arguments import typed, untyped
from holdbeat.domain.errors import Invalid
from holdbeat.domain.waits import Question, check_answer, check_question

pytestmark = pytest.mark.rule("WAIT-05")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"type": ["string", "nope"]},
        {"type": "object", "properties": {"name": {"type": "nope"}}},
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "nope"}]}},
    ],
)
def test_a_schema_with_a_type_that_no_answer_can_have_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"schema has type .*nope.*, which must be one of string, "):
        check_question("Why?", None, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["string", "null"], "default": {"type": "nope"}},
        {"type": "object", "properties": {"type": {"enum": ["nope"]}}, "required": ["type"]},
        {"type": "object", "properties": {"minimum": {"type": "integer"}, "enum": True}, "additionalProperties": False},
        {"enum": [{"minimum": "a"}], "examples": {"type": "nope"}, "pattern": "["},
    ],
)
def test_a_schema_may_speak_of_types_otherwise(schema: dict[str, Any]) -> None:
    check_question("Why?", None, schema)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"minimum": "a"}, 'minimum "a", which must be a number'),
        ({"maxLength": -1}, "maxLength -1, which must be a whole number from 0"),
        ({"enum": 5}, "enum 5, which must be a list with at least one value"),
        ({"enum": []}, r"enum \[\], which must be a list with at least one value"),
        ({"anyOf": 5}, "anyOf 5, which must be a list with at least one schema"),
        ({"required": "name"}, 'required "name", which must be a list of names'),
        ({"format": ["date"]}, r'format \["date"\], which must be a text'),
        ({"type": {}}, "type {}, which must be one of string, "),
        ({"properties": ["name"]}, r'properties \["name"\], which must be an object'),
        ({"properties": {"name": 5}}, "5 in the place of a schema, which is an object"),
        ({"$defs": {"name": {"items": {"maximum": "x"}}}}, 'maximum "x", which must be a number'),
    ],
)
def test_a_schema_that_no_answer_could_be_checked_against_is_refused(schema: dict[str, Any], fault: str) -> None:
    with pytest.raises(Invalid, match=f"^schema has {fault}") as refusal:
        check_question("Why?", None, schema)
    assert (refusal.value.code, refusal.value.field) == ("invalid_question", "schema")


@pytest.mark.parametrize("choices", [[], "yes", 3])
def test_choices_are_a_list_with_an_answer_in_it(choices: Any) -> None:
    with pytest.raises(Invalid, match="choices must be a list"):
        check_question("Why?", choices, None)


@pytest.mark.parametrize(
    ("choices", "answer"),
    [([0, 1], False), ([True, False], 1), ([{"send": 1}], {"send": True}), ([[0]], [False]), (["1"], 1), ([1], "1")],
)
def test_an_answer_is_one_of_the_choices_as_json_has_it(choices: list[Any], answer: Any) -> None:
    question = Question("q", "j", "Why?", choices, None, datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(Invalid, match="The answer must be one of: "):
        check_answer(question, answer)
    for choice in choices:
        check_answer(question, choice)


def test_the_sentence_about_a_wrong_answer_has_the_choices_as_they_are_sent() -> None:
    question = Question("q", "j", "Why?", ["yes", "1", 1, True, None], None, datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(Invalid, match=r'^The answer must be one of: "yes", "1", 1, true, null\.$'):
        check_answer(question, "no")


@pytest.mark.parametrize(
    ("choice", "shown"),
    [("yes", "yes"), ("1", '"1"'), ("true", '"true"'), (1, "1"), (True, "true"), (None, "null"), ([1], "[1]")],
)
def test_a_listed_choice_is_what_the_command_line_takes_as_the_answer(choice: Any, shown: str) -> None:
    assert untyped(choice) == shown
    assert typed(shown) == choice
