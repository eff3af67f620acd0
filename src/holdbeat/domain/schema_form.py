"""Whether a JSON Schema that somebody wrote by hand can be used to check a value.

Only the keywords that `schema.validate` reads are looked at; it ignores all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdbeat.domain.params import dumps
from holdbeat.domain.schema import TYPES


def fault_of(schema: Any) -> str | None:
    """What is wrong with the first keyword that cannot be read, or that no value could fit; None if there is none."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, Mapping):
        return f"{dumps(schema)[:60]} in the place of a schema, which is an object"
    for keyword, value in schema.items():
        fault = None
        if keyword in _FORMS:
            is_right, form = _FORMS[keyword]
            fault = None if is_right(value) else f"{keyword} {dumps(value)[:60]}, which must be {form}"
        if fault is None and keyword in _SCHEMAS:
            fault = fault_of(value)
        elif fault is None and keyword in _LISTS_OF_SCHEMAS:
            fault = next((found for part in value if (found := fault_of(part)) is not None), None)
        elif fault is None and keyword in _SCHEMAS_BY_NAME:
            fault = next((found for part in value.values() if (found := fault_of(part)) is not None), None)
        if fault is not None:
            return fault
    return None


_SCHEMAS = frozenset({"items", "additionalProperties"})
_LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS_BY_NAME = frozenset({"properties", "$defs"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_type(value: Any) -> bool:
    names = value if _is_filled_list(value) else [value]
    return all(isinstance(name, str) and name in TYPES for name in names)


_Form = tuple[Callable[[Any], bool], str]
_NUMBER: _Form = (_is_number, "a number")
_COUNT: _Form = (_is_count, "a whole number from 0")
_SOME_SCHEMAS: _Form = (_is_filled_list, "a list with at least one schema")
_OBJECT: _Form = (lambda value: isinstance(value, dict), "an object")
_TEXT: _Form = (lambda value: isinstance(value, str), "a text")
_FORMS: dict[str, _Form] = {
    "type": (_is_type, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": (_is_filled_list, "a list with at least one value"),
    "required": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of names",
    ),
    "format": _TEXT,
    "$ref": _TEXT,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _SOME_SCHEMAS),
    **dict.fromkeys(("properties", "$defs"), _OBJECT),
}
