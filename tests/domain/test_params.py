"""JSON from outside: kept as it was sent, or refused with the same sentence whatever the store."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.errors import Invalid, Malformed
from holdbeat.domain.params import (
    check_json,
    check_labels,
    check_text,
    dumps,
    loads_strict,
    request_hash,
    storable_text,
)

pytestmark = pytest.mark.rule("SEC-06")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def itself() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def sharing(levels: int) -> list[Any]:
    """Small in memory, two to the power of `levels` values when written out."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


REFUSED: list[tuple[Any, str]] = [
    ({"a": "x\x00y"}, "invalid_text"),
    ({"a\x00": 1}, "invalid_text"),
    ({"a": ["\ud800"]}, "invalid_text"),
    ({"\udfff": 1}, "invalid_text"),
    ({"a": float("nan")}, "invalid_number"),
    ({"a": float("inf")}, "invalid_number"),
    ({"a": -float("inf")}, "invalid_number"),
    ({"a": 2**63}, "invalid_number"),
    ({"a": -(2**63) - 1}, "invalid_number"),
    ({"a": 10**5000}, "invalid_number"),
    (nested(65), "too_deep"),
    (nested(100_000), "too_deep"),
    (itself(), "too_deep"),
    (sharing(60), "params_too_large"),
    ({"a": b"bytes"}, "invalid_json"),
    ({"a": {1, 2}}, "invalid_json"),
    ({"a": object()}, "invalid_json"),
    ({1: "a"}, "invalid_json"),
    ("x" * 262_143, "params_too_large"),
    (["x"] * 300_000, "params_too_large"),
    ("é" * 131_072, "params_too_large"),
]


@pytest.mark.parametrize(("value", "code"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_store_could_not_keep_is_refused(value: Any, code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_json(value, field="params")
    assert refusal.value.code == code
    assert (refusal.value.field or "").startswith("params")
    assert not isinstance(refusal.value, Malformed)
    refusal.value.detail.encode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        nested(64),
        {"max": 2**63 - 1, "min": -(2**63), "tiny": 5e-324, "zero": -0.0},
        {"emoji": "😀", "é": "\x01\x7f", "": ""},
        "x" * 262_142,
    ],
)
def test_everything_that_json_can_say_within_the_limits_is_accepted(value: Any) -> None:
    check_json(value, field="params")


def test_the_refusal_names_the_place() -> None:
    with pytest.raises(Invalid) as refusal:
        check_json({"pages": [{"n": 1}, {"n": math.inf}]}, field="params")
    assert refusal.value.field == "params.pages[1].n"


MALFORMED = [
    b"",
    b" ",
    b"[",
    b"[1,]",
    b"[1 2]",
    b"{'a': 1}",
    b'{"a" 1}',
    b'{"a":1,}',
    b'{"a":1',
    b'["\x01"]',
    b'["\\x00"]',
    b'["\\u12"]',
    b"[01]",
    b"[1.]",
    b"[.5]",
    b"[+1]",
    b"[1e]",
    b"nul",
    b"[1] x",
    b"\xff\xfe[\x00]\x00",
    b'["\xed\xa0\x80"]',
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'[{"":' * 50_000,
    b"[" * 100_000 + b"]" * 99_999,
    b"[" * 100_000 + b"]" * 100_001,
    b"[" * 100_000 + b"x" + b"]" * 100_000,
    b"[" * 50_000 + b"1,2,]" + b"]" * 50_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 49_999 + b"]",
    b'{"a":1, "a":2',
    b"[NaN",
    b"[" + b"9" * 5000 + b",]",
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed) as refusal:
        loads_strict(body)
    assert refusal.value.code == "malformed_json"


WELL_FORMED = [
    (b'{"a": 1, "b": {"a": 1, "a": 2}}', "duplicate_key"),
    (b'{"\\u0061": 1, "a": 1}', "duplicate_key"),
    (b"[NaN]", "invalid_number"),
    (b"[Infinity]", "invalid_number"),
    (b"[-Infinity]", "invalid_number"),
    (b"[1e400]", "invalid_number"),
    (b"[-1e400]", "invalid_number"),
    (b"[9223372036854775808]", "invalid_number"),
    (b"[" + b"9" * 5000 + b"]", "invalid_number"),
    (b"[-" + b"9" * 5000 + b"]", "invalid_number"),
    (b'["\\u0000"]', "invalid_text"),
    (b'{"\\u0000": 1}', "invalid_text"),
    (b'["\\ud800"]', "invalid_text"),
    (b'["\\udc00\\ud800"]', "invalid_text"),
    (b"[" * 68 + b"]" * 68, "too_deep"),
    (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
    (b'{"a": [ ' * 50_000 + b'"\\u00e9\\n", -1.5e3 , true' + b" ] } " * 50_000, "too_deep"),
    (b'{"a":{"b":1},"c":' * 50_000 + b"[]" + b"}" * 50_000, "too_deep"),
    (b"[" * 100_000 + b"9" * 5000 + b"]" * 100_000, "too_deep"),
]


@pytest.mark.parametrize(("body", "code"), WELL_FORMED, ids=range(len(WELL_FORMED)))
def test_json_that_cannot_be_kept_is_invalid_and_not_malformed(body: bytes, code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        loads_strict(body)
    assert not isinstance(refusal.value, Malformed)
    assert refusal.value.code == code


def test_nesting_is_judged_the_same_however_deep_the_caller_already_is() -> None:
    def deep(levels: int) -> None:
        if levels:
            return deep(levels - 1)
        with pytest.raises(Invalid) as refusal:
            loads_strict(b"[" * 600 + b"]" * 600)
        assert refusal.value.code == "too_deep"

    deep(sys.getrecursionlimit() - 400)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", max_size=3), inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_is_read_back_the_same(value: Any) -> None:
    check_json(value, field="params")
    assert loads_strict(dumps(value).encode()) == value
    assert loads_strict(json.dumps(value, indent=1).encode()) == value


@given(st.text('[]{}",:0123-+.eE truefalsn\\u\x00\n', max_size=30))
def test_any_text_is_read_as_the_standard_reads_it_or_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(Malformed):
            loads_strict(text.encode())
        return
    try:
        assert loads_strict(text.encode()) == expected
    except Invalid as refusal:
        assert not isinstance(refusal, Malformed)


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_but_a_refusal(body: bytes) -> None:
    try:
        loads_strict(body)
    except Invalid as refusal:
        refusal.detail.encode()


def test_the_written_form_is_compact_and_does_not_depend_on_the_order_of_keys() -> None:
    assert dumps({"b": [1, 2.5, None], "a": "é"}) == '{"a":"é","b":[1,2.5,null]}'


@pytest.mark.rule("QUE-01")
def test_two_requests_have_one_hash_exactly_if_they_are_the_same() -> None:
    assert request_hash({"a": 1, "b": {"c": 2, "d": 3}}) == request_hash({"b": {"d": 3, "c": 2}, "a": 1})
    others = [{"a": 1}, {"a": "1"}, {"a": True}, {"a": None}, {}, {"a": [1]}, {"A": 1}]
    assert len({request_hash(other) for other in others}) == len(others)


@pytest.mark.parametrize("value", ["", "x" * 11, "a\nb", "a\x00", "\x7f", "\ud800", None, 1, b"a"])
def test_names_are_short_storable_and_on_one_line(value: Any) -> None:
    with pytest.raises(Invalid) as refusal:
        check_text(value, "name", 10)
    assert refusal.value.field == "name"


def test_names_may_be_in_any_script_and_sentences_on_several_lines() -> None:
    assert check_text("日本語 ✓", "name", 10) == "日本語 ✓"
    assert check_text("a\nb\t", "text", 10, multiline=True) == "a\nb\t"
    assert check_text("", "text", 10, min_length=0) == ""


@pytest.mark.parametrize(
    "value",
    [
        [],
        "a",
        {"a": 1},
        {"a": None},
        {1: "a"},
        {"": "a"},
        {"a": "x\x00"},
        {"k" * 101: ""},
        {"k": "v" * 501},
        {str(n): "" for n in range(65)},
    ],
)
def test_labels_are_a_small_map_of_strings(value: Any) -> None:
    with pytest.raises(Invalid):
        check_labels(value)
    assert check_labels({"team": "night", "note": ""}) == {"team": "night", "note": ""}


def test_text_of_unknown_origin_is_made_storable_rather_than_refused() -> None:
    assert storable_text("a\x00b\ud800c😀") == "a�b�c😀"
    assert storable_text("x" * 100, 10) == "x" * 9 + "…"


@pytest.mark.rule("SEC-06")
def test_a_long_name_over_many_items_takes_no_more_room_than_they_do() -> None:
    with pytest.raises(Invalid) as refused:
        check_json({"k" * 100_000: [*range(20_000), "\x00"]}, field="params")
    assert len(refused.value.field or "") < 300
