"""Whether params fit a job type's schema, and which names were probably meant.

A small subset of JSON Schema, enough for what Python signatures and pydantic models say: `type`,
`properties`, `required`, `additionalProperties`, `items`, `prefixItems`, `enum`, `const`, `anyOf`, `oneOf`,
`allOf`, bounds of numbers, strings and lists, a few formats, and `$ref` into the schema's own `$defs`.
Unknown keywords are ignored, so a schema can say more than is checked here. Regular expressions from outside
are never run. Values are checked JSON (`params.check_json`), so their depth is bounded and recursion over
them is safe.

Guards against values that are made to be slow: a definition looks at a value once, however many alternatives lead to
it, and the number of rules that one check looks at is bounded.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from holdbeat.domain.address import check_form
from holdbeat.domain.bounds import duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.redaction import check_headers
from holdbeat.schemas.field_bounds import LONGEST_NAME

Schema = dict[str, Any]
_MAX_STEPS = 250
"""More nested rules than this at one place mean a schema that refers to itself without end."""
_MOST_RULES = 1_000_000
"""As many rules one check looks at; the largest params hold about 130,000 values."""
_LONGEST_PLACE = 500
"""Of a member, in the name of a place: a long one would be copied for each of its items."""

_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
TYPES = tuple(_NAMES)


def validate(schema: Schema, value: Any, *, field: str = "params") -> None:
    """Refuses a value that does not fit, naming the first place that does not."""
    if _fits_at_a_glance(schema, value):
        return
    try:
        complaint = _Validation(schema).complaint(schema, value, field)
    except RecursionError:
        complaint = (field, "cannot be checked: the schema refers to itself without end")
    except _TooMuch:
        complaint = (field, "cannot be checked: it is too large for so many alternatives; send it in smaller parts")
    if complaint is not None:
        place, sentence = complaint
        raise Invalid(f"{place} {sentence}.", code="invalid_params", field=place)


_PLAIN_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}
_OF_OBJECTS = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "title", "description"})
_OF_PLAIN_VALUES = frozenset({"type", "default", "title", "description"})


def _fits_at_a_glance(schema: Schema, value: Any) -> bool:
    """Whether all members are known and plainly of their type, as most are. False says nothing; this is far faster."""
    if type(value) is not dict or schema.get("type") != "object" or not _OF_OBJECTS.issuperset(schema):
        return False
    for name in schema.get("required", ()):
        if name not in value:
            return False
    rules = schema.get("properties", {})
    for name, member in value.items():
        rule = rules.get(name)
        if type(rule) is not dict or not _OF_PLAIN_VALUES.issuperset(rule):
            return False
        kind = rule.get("type")
        if type(kind) is not str or _PLAIN_TYPES.get(kind) is not type(member):
            return False
    return True


def matches(schema: Schema, value: Any, *, root: Schema | None = None) -> bool:
    """Whether the value fits; `root` holds the `$defs` when `schema` is a part of a larger one."""
    if root is None and _fits_at_a_glance(schema, value):
        return True
    try:
        return _Validation(root if root is not None else schema).fits(schema, value)
    except (RecursionError, _TooMuch):
        return False


def near_matches(name: str, names: Iterable[str], *, limit: int = 3) -> list[str]:
    """The known names that come closest to an unknown one, best first."""
    by_folded: dict[str, str] = {}
    for known in names:
        by_folded.setdefault(known.casefold(), known)
    close = difflib.get_close_matches(name.casefold()[:200], by_folded, n=limit, cutoff=0.6)
    return [by_folded[folded] for folded in close]


Complaint = tuple[str, str] | None


class _TooMuch(Exception):
    """More rules than a check may look at."""


class _Validation:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_RULES
        self._is_quiet = False
        """Only whether, not where and why: alternatives are tried so, and explained if none fits."""
        self._known: dict[tuple[str, int, str], Complaint] = {}
        """What definitions said of values; all of these live as long as the check."""

    def complaint(self, schema: Any, value: Any, place: str, steps: int = 0) -> Complaint:
        """Where and why the value does not fit, or None."""
        if schema is True or not isinstance(schema, dict):
            return (place, "is not expected here") if schema is False else None
        if steps > _MAX_STEPS:
            return place, "cannot be checked: the schema refers to itself without end"
        self._left -= 1
        if self._left < 0:
            raise _TooMuch
        if "$ref" in schema:
            problem = self._referred(schema["$ref"], value, place, steps)
            if problem:
                return problem
        return (
            self._wrong_kind(schema, value, place)
            or self._wrong_choice(schema, value, place, steps)
            or self._wrong_size(schema, value, place)
            or self._wrong_member(schema, value, place, steps)
        )

    def fits(self, schema: Any, value: Any, steps: int = 0) -> bool:
        """Whether there is no complaint, without the trouble of wording one."""
        was_quiet, self._is_quiet = self._is_quiet, True
        try:
            return self.complaint(schema, value, "", steps) is None
        finally:
            self._is_quiet = was_quiet

    def _referred(self, reference: Any, value: Any, place: str, steps: int) -> Complaint:
        target = self._resolve(reference)
        if target is None:
            return None
        # Two alternatives may lead to one definition, and each of its own alternatives again to two.
        key = (reference, id(value), "quiet" if self._is_quiet else f"at {place}")
        if key not in self._known:
            self._known[key] = self.complaint(target, value, place, steps + 1)
        return self._known[key]

    def _inside(self, place: str, part: str) -> str:
        if self._is_quiet or len(place) > _LONGEST_PLACE:
            return place
        return place + part[:LONGEST_NAME]

    def _resolve(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target: Any = self._root
        for part in reference[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or part not in target:
                return None
            target = target[part]
        return target

    def _wrong_kind(self, schema: Schema, value: Any, place: str) -> Complaint:
        type_ = schema.get("type")
        if type_ is not None:
            kinds = type_ if isinstance(type_, list) else [type_]
            if not any(_is_kind(value, kind) for kind in kinds):
                names = " or ".join(_NAMES.get(kind, str(kind)) for kind in kinds)
                return place, f"must be {names}, not {_kind_of(value)}"
        if "const" in schema and not same(value, schema["const"]):
            return place, f"must be {_shown(schema['const'])}"
        if "enum" in schema and not any(same(value, choice) for choice in schema["enum"]):
            choices = ", ".join(_shown(choice) for choice in schema["enum"][:20])
            return place, f"must be one of {choices}"
        if schema.get("format") == "x-headers" and isinstance(value, dict):
            try:
                check_headers(value)
            except Invalid as refusal:
                return place, f"cannot be sent: {refusal.detail.rstrip('.')}"
        check = _FORMATS.get(schema.get("format", ""))
        if check is not None and isinstance(value, str):
            try:
                check(value)
            except (ValueError, ArithmeticError, Invalid):
                return place, f"must be written as {_FORMAT_EXAMPLES[schema['format']]}"
        return None

    def _wrong_choice(self, schema: Schema, value: Any, place: str, steps: int) -> Complaint:
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if not branches or any(self.fits(branch, value, steps + 1) for branch in branches):
                continue
            if self._is_quiet:
                return place, "fits no alternative"
            problems = [self.complaint(branch, value, place, steps + 1) for branch in branches]
            return _nearest(place, [problem for problem in problems if problem] or [(place, "fits no alternative")])
        for branch in schema.get("allOf", ()):
            complaint = self.complaint(branch, value, place, steps + 1)
            if complaint:
                return complaint
        return None

    def _wrong_size(self, schema: Schema, value: Any, place: str) -> Complaint:
        if isinstance(value, int | float) and not isinstance(value, bool):
            for keyword, holds, words in _NUMBER_BOUNDS:
                if keyword in schema and not holds(value, schema[keyword]):
                    return place, f"must be {words} {schema[keyword]}"
        for kind, least, most, unit in (
            (str, "minLength", "maxLength", "characters"),
            (list, "minItems", "maxItems", "items"),
            (dict, "minProperties", "maxProperties", "members"),
        ):
            if isinstance(value, kind):
                if len(value) < schema.get(least, 0):
                    return place, f"must have at least {schema[least]} {unit}"
                if most in schema and len(value) > schema[most]:
                    return place, f"must have at most {schema[most]} {unit}"
        return None

    def _wrong_member(self, schema: Schema, value: Any, place: str, steps: int) -> Complaint:
        if isinstance(value, dict):
            return self._wrong_property(schema, value, place, steps)
        if isinstance(value, list | tuple):
            if schema.get("uniqueItems") and len({_written(item) for item in value}) < len(value):
                return place, "must not contain the same item twice"
            head = schema.get("prefixItems", [])
            for index, member in enumerate(value):
                rule = head[index] if index < len(head) else schema.get("items", True)
                complaint = self.complaint(rule, member, self._inside(place, f"[{index}]"), steps + 1)
                if complaint:
                    return complaint
        return None

    def _wrong_property(self, schema: Schema, value: dict[str, Any], place: str, steps: int) -> Complaint:
        rules = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                return self._inside(place, f".{name}"), "is required"
        additional = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in rules:
                complaint = self.complaint(rules[name], member, self._inside(place, f".{name}"), steps + 1)
            elif additional is False:
                if self._is_quiet:
                    return place, "has an unknown member"
                close = near_matches(name, rules, limit=1)
                hint = f" (did you mean {close[0]}?)" if close else f"; known are {', '.join(rules) or 'none'}"
                return self._inside(place, f".{name}"), f"is not known{hint}"
            else:
                complaint = self.complaint(additional, member, self._inside(place, f".{name}"), steps + 1)
            if complaint:
                return complaint
        return None


def _nearest(place: str, complaints: list[tuple[str, str]]) -> Complaint:
    """Of several reasons why no alternative fits, the one that got furthest into the value."""
    deepest = max(complaints, key=lambda complaint: len(complaint[0]))
    if len(deepest[0]) > len(place):
        return deepest
    sentences = list(dict.fromkeys(sentence for _, sentence in complaints))
    if all(sentence.startswith("must be ") and ", not " in sentence for sentence in sentences):
        kinds = [sentence.removeprefix("must be ").rpartition(", not ")[0] for sentence in sentences]
        return place, f"must be {' or '.join(kinds)}, not {sentences[0].rpartition(', not ')[2]}"
    return place, " or ".join(sentences)


def _is_kind(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, dict)
        case _:
            return True


def _kind_of(value: Any) -> str:
    for kind, name in (("boolean", "a boolean"), *_NAMES.items()):
        if _is_kind(value, kind):
            return name
    return f"a {type(value).__name__}"


def same(left: Any, right: Any) -> bool:
    """Equality of JSON, where true is not 1."""
    return bool(left == right) and _written(left) == _written(right)


def _written(value: Any) -> str:
    """A form that equal values share: 1 and 1.0 are one number, and true is none."""
    return dumps(_with_whole_numbers(value))


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_with_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(member) for name, member in value.items()}
    return value


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool | None) else str(value).lower().replace("none", "null")
    return text if len(text) <= 60 else text[:59] + "…"


_NUMBER_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", lambda value, bound: value >= bound, "at least"),
    ("maximum", lambda value, bound: value <= bound, "at most"),
    ("exclusiveMinimum", lambda value, bound: value > bound, "more than"),
    ("exclusiveMaximum", lambda value, bound: value < bound, "less than"),
)


def _check_instant(text: str) -> None:
    if len(text) < 11:
        raise ValueError("a date alone is no instant")
    datetime.fromisoformat(text)


_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": _check_instant,
    "date": date.fromisoformat,
    "uuid": UUID,
    "x-url": check_form,
    "x-duration": duration_s,
    "x-decimal": Decimal,
}
_FORMAT_EXAMPLES = {
    "date-time": "an instant like 2026-01-31T09:30:00Z",
    "date": "a date like 2026-01-31",
    "uuid": "a UUID like 123e4567-e89b-12d3-a456-426614174000",
    "x-url": "an address like https://example.com/path",
    "x-duration": "a duration like 90s or 1h30m",
    "x-decimal": "a decimal number like 0.10",
}
