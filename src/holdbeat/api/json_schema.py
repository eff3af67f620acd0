"""JSON Schema from the TypedDicts of `holdbeat.schemas`, for the components of the OpenAPI document."""

from __future__ import annotations

import types
from collections.abc import Mapping
from inspect import cleandoc
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

REF = "#/components/schemas/"
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}
_NAMES = {"GroupSummaryPage": "GroupPage", "JobTemplatePage": "TemplatePage", "LogLinePage": "LogPage"}
"""Names of components that are not the name of the item and the word Page."""


def schema_name(schema: Any) -> str:
    """The component's name: that of the TypedDict; a generic one is named after its item, as in JobPage."""
    origin = get_origin(schema)
    if origin is None:
        return str(schema.__name__)
    name: str = get_args(schema)[0].__name__ + {"Page": "Page", "Items": "List"}[origin.__name__]
    return _NAMES.get(name, name)


def field_names(schema: Any) -> frozenset[str]:
    """The fields that a schema declares; none for Any."""
    return frozenset(getattr(get_origin(schema) or schema, "__annotations__", ()))


class Components:
    """Collects the schemas that a document refers to, each once."""

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}

    def reference(self, schema: Any) -> dict[str, Any]:
        """A reference to a schema, which is added with all that it refers to."""
        name = schema_name(schema)
        if name not in self.schemas:
            self.schemas[name] = {}
            self.schemas[name] = self._object(schema, name)
        return {"$ref": REF + name}

    def _object(self, schema: Any, name: str) -> dict[str, Any]:
        origin = get_origin(schema) or schema
        item = get_args(schema)
        kind = getattr(schema, "__holdbeat_kind__", None)
        properties = {}
        for field, hint in get_type_hints(origin, include_extras=True).items():
            if item:
                hint = list[item[0]] if field == "items" else hint  # type: ignore[valid-type]
            properties[field] = self._property(hint, kind, field in origin.__required_keys__)
        declared: dict[str, Any] = {"title": name, "type": "object"}
        if schema.__doc__ and not schema.__doc__.startswith("dict("):
            declared["description"] = cleandoc(schema.__doc__)
        declared["properties"] = properties
        required = [field for field in properties if field in origin.__required_keys__]
        if required:
            declared["required"] = required
        if name != "Problem":
            declared["additionalProperties"] = getattr(schema, "__holdbeat_open__", False)
        example = getattr(schema, "__holdbeat_example__", None)
        if example:
            declared["examples"] = [example]
        return declared

    def _property(self, hint: Any, kind: str | None, is_required: bool) -> dict[str, Any]:
        declared = self.of(hint)
        is_nullable = {"type": "null"} in declared.get("anyOf", ())
        if kind == "request" and not is_required and is_nullable:
            declared.setdefault("default", None)
        if kind == "change" or declared.get("default") is ...:
            declared.pop("default", None)
        return declared

    def of(self, hint: Any) -> dict[str, Any]:
        if isinstance(hint, types.GenericAlias | types.UnionType) or get_origin(hint) is not None:
            return self._compound(hint)
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if isinstance(hint, type) and issubclass(hint, dict):
            return self.reference(hint)
        raise TypeError(f"{hint!r} has no JSON Schema")

    def _compound(self, hint: Any) -> dict[str, Any]:
        origin, args = get_origin(hint), get_args(hint)
        if origin in (NotRequired, Required):
            return self.of(args[0])
        if origin is Annotated:
            declared = self.of(args[0])
            for extra in args[1:]:
                assert isinstance(extra, Mapping), hint
                declared = {**declared, **extra}
            return declared
        if origin is Literal:
            plain = _PLAIN[type(args[0])]
            return {**plain, "const": args[0]} if len(args) == 1 else {**plain, "enum": list(args)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(arg) for arg in args]}
        if origin is list:
            return {"type": "array", "items": self.of(args[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(args[1]) or True}
        return self.reference(hint)
