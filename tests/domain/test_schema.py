"""Params against a schema: the first place that does not fit is named, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.schema import Schema, matches, near_matches, validate

pytestmark = pytest.mark.rule("QUE-06")

STORY: Schema = {
    "type": "object",
    "properties": {
        "words": {"type": "integer", "minimum": 1, "maximum": 1000},
        "title": {"type": "string", "minLength": 1, "maxLength": 5},
        "tone": {"enum": ["dry", "warm", 1]},
        "kind": {"const": "story"},
        "due": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "key": {"type": "string", "format": "uuid"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "tree": {"$ref": "#/$defs/Tree"},
        "scores": {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
        "any": {"x-unknown": 1},
    },
    "required": ["words"],
    "additionalProperties": False,
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
            "additionalProperties": False,
        }
    },
}

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "params.words", "is required"),
    ({"words": "three"}, "params.words", "must be an integer, not a string"),
    ({"words": True}, "params.words", "must be an integer, not a boolean"),
    ({"words": 1.5}, "params.words", "must be an integer, not a number"),
    ({"words": None}, "params.words", "must be an integer, not null"),
    ({"words": 0}, "params.words", "must be at least 1"),
    ({"words": 1001}, "params.words", "must be at most 1000"),
    ({"words": 1, "wrods": 2}, "params.wrods", "is not known (did you mean words?)"),
    ({"words": 1, "title": ""}, "params.title", "must have at least 1 characters"),
    ({"words": 1, "title": "long title"}, "params.title", "must have at most 5 characters"),
    ({"words": 1, "tone": "wet"}, "params.tone", "must be one of 'dry', 'warm', 1"),
    ({"words": 1, "tone": True}, "params.tone", "must be one of 'dry', 'warm', 1"),
    ({"words": 1, "kind": "poem"}, "params.kind", "must be 'story'"),
    ({"words": 1, "due": "tomorrow"}, "params.due", "must be written as an instant like 2026-01-31T09:30:00Z"),
    ({"words": 1, "due": "2026-01-31"}, "params.due", "must be written as an instant like 2026-01-31T09:30:00Z"),
    ({"words": 1, "day": "2026-02-30"}, "params.day", "must be written as a date like 2026-01-31"),
    ({"words": 1, "tags": ["a", 1]}, "params.tags[1]", "must be a string, not an integer"),
    ({"words": 1, "tags": ["a", "a"]}, "params.tags", "must not contain the same item twice"),
    ({"words": 1, "tags": list("abcd")}, "params.tags", "must have at most 3 items"),
    ({"words": 1, "tags": "abc"}, "params.tags", "must be a list, not a string"),
    ({"words": 1, "pair": [1, 2]}, "params.pair[1]", "must be a string, not an integer"),
    ({"words": 1, "pair": [1]}, "params.pair", "must have at least 2 items"),
    ({"words": 1, "either": "x"}, "params.either", "must be an integer or null, not a string"),
    ({"words": 1, "tree": {"children": [{}, {"children": [{"x": 1}]}]}},
     "params.tree.children[1].children[0].x", "is not known; known are children"),
    ({"words": 1, "scores": {"a": 1, "b": 0}}, "params.scores.b", "must be more than 0"),
]  # fmt: skip


@pytest.mark.parametrize(("params", "field", "sentence"), REFUSED)
def test_params_that_do_not_fit_are_refused_at_their_place(params: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(Invalid) as refusal:
        validate(STORY, params)
    assert (refusal.value.code, refusal.value.field) == ("invalid_params", field)
    assert refusal.value.detail == f"{field} {sentence}."


@pytest.mark.parametrize(
    "params",
    [
        {"words": 1},
        {"words": 7.0, "tone": 1, "kind": "story", "any": object},
        {"words": 1, "due": "2026-01-31T09:30:00.123+02:00", "day": "2026-01-31"},
        {"words": 1, "key": "123e4567-e89b-12d3-a456-426614174000", "tags": [], "pair": [1, "a", None]},
        {"words": 1, "either": None, "tree": {"children": [{"children": []}]}, "scores": {"a": 0.5}},
    ],
)
def test_params_that_fit_are_accepted(params: dict[str, Any]) -> None:
    validate(STORY, params)


def test_the_nearest_alternative_explains_the_refusal() -> None:
    schema = {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
        ]
    }
    with pytest.raises(Invalid) as refusal:
        validate(schema, {"url": 7})
    assert refusal.value.detail == "params.url must be a string, not an integer."


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"},
        {"anyOf": [{"$ref": "#"}]},
    ],
)
def test_a_schema_that_refers_to_itself_without_end_is_a_refusal_and_no_crash(schema: Schema) -> None:
    with pytest.raises(Invalid):
        validate(schema, {})
    assert not matches(schema, {})


def test_unknown_keywords_foreign_references_and_regular_expressions_are_ignored() -> None:
    validate({"$ref": "https://example.org/schema", "pattern": "(a+)+$", "if": False, "format": "email"}, "a" * 50)
    validate({"$ref": "#/$defs/missing"}, 1)


def test_the_names_that_were_probably_meant_are_found() -> None:
    names = ["story", "research", "embed", "upsert"]
    assert near_matches("stroy", names) == ["story"]
    assert near_matches("STORY", names) == ["story"]
    assert near_matches("reserch", names) == ["research"]
    assert near_matches("zzz", names) == []
    assert near_matches("x" * 1_000_000, names) == []


# -- values that are made to be slow -------------------------------------------------------------------------

UNION: Schema = {
    "type": "object",
    "properties": {"tree": {"anyOf": [{"$ref": "#/$defs/Add"}, {"$ref": "#/$defs/Mul"}]}},
    "$defs": {
        name: {
            "type": "object",
            "properties": {
                "child": {"anyOf": [{"$ref": "#/$defs/Add"}, {"$ref": "#/$defs/Mul"}, {"type": "null"}]},
                "kind": {"const": name.lower()},
            },
            "required": ["child", "kind"],
            "additionalProperties": False,
        }
        for name in ("Add", "Mul")
    },
}


def tree(depth: int, leaf: Any) -> Any:
    value = leaf
    for level in range(depth):
        value = {"child": value, "kind": "mul" if level % 2 else "add"}
    return {"tree": value}


@pytest.mark.rule("SEC-06")
def test_a_deep_value_of_alternatives_is_checked_once_for_each_definition() -> None:
    validate(UNION, tree(60, None))
    assert matches(UNION, tree(60, None))
    with pytest.raises(Invalid) as refused:
        validate(UNION, tree(60, "no leaf"))
    assert refused.value.field == "params.tree" + ".child" * 60
    assert not matches(UNION, tree(60, "no leaf"))


@pytest.mark.rule("SEC-06")
def test_alternatives_that_lead_to_themselves_come_to_an_end() -> None:
    endless: Schema = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    with pytest.raises(Invalid):
        validate(endless, {"a": 1})


@pytest.mark.rule("SEC-06")
def test_a_long_list_without_repetition_is_found_to_be_one() -> None:
    unique: Schema = {"type": "array", "uniqueItems": True}
    validate(unique, list(range(45_000)))
    assert not matches(unique, [*range(45_000), 44_999.0])


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        ([1, 1.0], False),
        (["1", 1], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([[1, 2], [2, 1]], True),
        ([[1.0], [1]], False),
    ],
)
def test_two_items_are_the_same_as_json_has_it(items: list[Any], is_unique: bool) -> None:
    assert matches({"uniqueItems": True}, items) is is_unique


@pytest.mark.rule("SEC-06")
def test_more_alternatives_than_can_be_tried_are_refused_and_not_tried() -> None:
    many: Schema = {"type": "array", "items": {"anyOf": [{"const": number} for number in range(1000)]}}
    with pytest.raises(Invalid, match="too large for so many alternatives"):
        validate(many, [999] * 5000)
    assert not matches(many, [999] * 5000)
    validate(many, [999] * 500)


@pytest.mark.rule("SEC-06")
def test_a_long_name_is_cut_where_a_place_is_named() -> None:
    with pytest.raises(Invalid) as refused:
        validate({"additionalProperties": {"items": {"type": "string"}}}, {"k" * 130_000: ["a", 1]})
    assert refused.value.field == "params." + "k" * 199 + "[1]"
