"""Which questions a handler may ask."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.waits import check_question

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
    with pytest.raises(Invalid, match="the type 'nope', which no answer can have"):
        check_question("Why?", None, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["string", "null"], "default": {"type": "nope"}},
        {"type": "object", "properties": {"type": {"enum": ["nope"]}}, "required": ["type"]},
    ],
)
def test_a_schema_may_speak_of_types_otherwise(schema: dict[str, Any]) -> None:
    check_question("Why?", None, schema)


@pytest.mark.parametrize("choices", [[], "yes", 3])
def test_choices_are_a_list_with_an_answer_in_it(choices: Any) -> None:
    with pytest.raises(Invalid, match="choices must be a list"):
        check_question("Why?", choices, None)
