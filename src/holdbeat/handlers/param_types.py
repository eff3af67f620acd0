"""Shapes: what one annotation means, as a schema for submitters and a reader for handlers.

Guards that the schema and the conversion never disagree: both are made in one place, from one annotation, so
whatever the schema lets through arrives in the handler as the annotated type.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin
from uuid import UUID

from holdbeat.domain.bounds import duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.schema import Schema, matches

Reader = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    schema: Schema
    read: Reader | None = None
    """Converts checked JSON to the annotated type; None where JSON already is that."""

    def value(self, value: Any) -> Any:
        return value if self.read is None else self.read(value)


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None


_PLAIN: dict[Any, Shape] = {
    Any: Shape({}),
    object: Shape({}),
    str: Shape({"type": "string"}),
    bool: Shape({"type": "boolean"}),
    int: Shape({"type": "integer"}, int),
    float: Shape({"type": "number"}, float),
    None: Shape({"type": "null"}),
    type(None): Shape({"type": "null"}),
    list: Shape({"type": "array"}),
    dict: Shape({"type": "object"}),
    set: Shape({"type": "array"}, set),
    frozenset: Shape({"type": "array"}, frozenset),
    tuple: Shape({"type": "array"}, tuple),
    datetime: Shape({"type": "string", "format": "date-time"}, _instant),
    date: Shape({"type": "string", "format": "date"}, date.fromisoformat),
    UUID: Shape({"type": "string", "format": "uuid"}, UUID),
    timedelta: Shape(
        {"type": ["number", "string"], "format": "x-duration"}, lambda value: timedelta(seconds=duration_s(value))
    ),
    Decimal: Shape({"type": ["number", "string"], "format": "x-decimal"}, _decimal),
    Path: Shape({"type": "string"}, Path),
}

_LISTS: dict[Any, Callable[[Any], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class ShapeMaker:
    """Makes the shapes of one job type's parameters; named types are collected in `defs`."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self._named: dict[Any, Shape] = {}

    def shape(self, annotation: Any, place: str) -> Shape:
        """The shape of an annotation; refuses one that JSON cannot carry, naming the parameter."""
        try:
            plain = _PLAIN.get(annotation)
        except TypeError:  # unhashable, such as Annotated with a list
            plain = None
        if plain is not None:
            return plain
        origin, args = get_origin(annotation), get_args(annotation)
        if origin in (typing.Annotated, Required, NotRequired):
            return self.shape(args[0], place)
        if hasattr(annotation, "__supertype__"):
            return self.shape(annotation.__supertype__, place)
        if isinstance(annotation, typing.TypeVar):
            return Shape({})
        if hasattr(annotation, "__value__") and type(annotation).__name__ == "TypeAliasType":
            return self.shape(annotation.__value__, place)
        if origin in (Union, types.UnionType):
            return self._union(args, place)
        if origin is Literal:
            return Shape({"enum": [arg.value if isinstance(arg, Enum) else arg for arg in args]})
        if origin is tuple:
            return self._tuple(args, place)
        if origin in _LISTS:
            return self._list(_LISTS[origin], args[0], place)
        if origin in _MAPPINGS:
            return self._mapping(args[0], args[1], place)
        return self._class(annotation, place)

    def nullable(self, shape: Shape) -> Shape:
        """The same shape, or null."""
        read = shape.read
        schema = {"anyOf": [shape.schema, {"type": "null"}]} if shape.schema else {}
        return Shape(schema, read and (lambda value: None if value is None else read(value)))

    def _union(self, members: tuple[Any, ...], place: str) -> Shape:
        others = [member for member in members if member is not type(None)]
        if len(others) == 1 and len(members) == 2:
            return self.nullable(self.shape(others[0], place))
        shapes = [self.shape(member, place) for member in members]
        schema: Schema = {"anyOf": [shape.schema for shape in shapes]}
        if all(shape.read is None for shape in shapes):
            return Shape(schema)
        root = {"$defs": self.defs}

        def read(value: Any) -> Any:
            # An int that could also be a float stays what JSON said that it is.
            for shape in shapes:
                if matches(shape.schema, value, root=root):
                    if shape.read is float and isinstance(value, int) and _PLAIN[int] in shapes:
                        continue
                    if shape.read is int and isinstance(value, float) and _PLAIN[float] in shapes:
                        continue
                    return shape.value(value)
            return value

        return Shape(schema, read)

    def _list(self, build: Callable[[Any], Any], member: Any, place: str) -> Shape:
        item = self.shape(member, f"{place}[]")
        schema: Schema = {"type": "array", "items": item.schema}
        if build in (set, frozenset):
            schema["uniqueItems"] = True
        if item.read is None:
            return Shape(schema, None if build is list else build)
        return Shape(schema, lambda value: build(item.value(entry) for entry in value))

    def _tuple(self, members: tuple[Any, ...], place: str) -> Shape:
        if len(members) == 2 and members[1] is Ellipsis:
            return self._list(tuple, members[0], place)
        items = [self.shape(member, f"{place}[{index}]") for index, member in enumerate(members)]
        size = len(items)
        schema = {
            "type": "array",
            "prefixItems": [item.schema for item in items],
            "minItems": size,
            "maxItems": size,
        }
        return Shape(schema, lambda value: tuple(item.value(entry) for item, entry in zip(items, value, strict=True)))

    def _mapping(self, key: Any, member: Any, place: str) -> Shape:
        if key not in (str, Any):
            raise _refusal(key, place, "keys of a JSON object are strings")
        item = self.shape(member, f"{place}.*")
        schema: Schema = {"type": "object", "additionalProperties": item.schema}
        if item.read is None:
            return Shape(schema)
        return Shape(schema, lambda value: {name: item.value(entry) for name, entry in value.items()})

    def _class(self, annotation: Any, place: str) -> Shape:
        if not isinstance(annotation, type):
            raise _refusal(annotation, place, "JSON cannot carry it")
        if issubclass(annotation, Enum):
            return _enum(annotation)
        if annotation in self._named:
            return self._named[annotation]
        if hasattr(annotation, "model_json_schema") and hasattr(annotation, "model_validate"):
            return self._model(annotation)
        if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
            return self._record(annotation, place)
        raise _refusal(annotation, place, "JSON cannot carry it")

    def _model(self, model: Any) -> Shape:
        # Its definitions get its name before theirs, so that two models can each have an inner `Item`.
        prefix = self._free_name(model.__name__)
        schema = dict(model.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}"))
        for name, definition in schema.pop("$defs", {}).items():
            self.defs[f"{prefix}.{name}"] = definition
        self.defs[prefix] = schema
        self._named[model] = shape = Shape({"$ref": f"#/$defs/{prefix}"}, model.model_validate)
        return shape

    def _record(self, record: Any, place: str) -> Shape:
        name = self._free_name(record.__name__)
        members: dict[str, Shape] = {}
        is_dataclass = dataclasses.is_dataclass(record)

        def read(value: dict[str, Any]) -> Any:
            known = {key: members[key].value(member) for key, member in value.items()}
            return record(**known)

        # Known before its members are looked at, because a member may be of the same type again.
        self.defs[name] = {}
        self._named[record] = shape = Shape({"$ref": f"#/$defs/{name}"}, read)
        hints = resolved_hints(record, place)
        if is_dataclass:
            fields = [field for field in dataclasses.fields(record) if field.init]
            names = [field.name for field in fields]
            missing = dataclasses.MISSING
            required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
        else:
            names = list(hints)
            required = [member for member in names if _is_required(record, member, hints[member])]
        for member in names:
            members[member] = self.shape(hints[member], f"{place}.{member}")
        self.defs[name] = {
            "type": "object",
            "properties": {name: member.schema for name, member in members.items()},
            "required": required,
            "additionalProperties": False,
        }
        return shape

    def _free_name(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self.defs:
            candidate, number = f"{name}{number}", number + 1
        return candidate


def _is_required(record: Any, member: str, hint: Any) -> bool:
    # Where annotations are text, the class itself does not know of NotRequired.
    origin = get_origin(hint)
    return origin is Required or (origin is not NotRequired and member in record.__required_keys__)


def _enum(kind: type[Enum]) -> Shape:
    if all(isinstance(member.value, str | int | float | bool | None) for member in kind):
        return Shape({"enum": [member.value for member in kind]}, kind)
    return Shape({"enum": [member.name for member in kind]}, lambda name: kind[name])


def resolved_hints(owner: Any, place: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of a class, or of what has `__annotations__`, as objects found among `names`."""
    try:
        return typing.get_type_hints(owner, names, include_extras=True)
    except Exception as error:
        raise Invalid(
            f"The annotations of {place} cannot be understood ({type(error).__name__}: {error}); use names "
            "that exist at the top of its module when the program runs.",
            code="bad_job_type",
            field=place,
        ) from None


def _refusal(annotation: Any, place: str, reason: str) -> Invalid:
    name = getattr(annotation, "__name__", str(annotation))
    return Invalid(
        f"{place} is annotated {name}, but {reason}; use plain types, lists, dicts, enums, datetimes, "
        "dataclasses or pydantic models.",
        code="bad_job_type",
        field=place,
    )
