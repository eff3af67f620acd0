"""Columns by name: functions that make an object of a row, and a row of an object.

Each is compiled once from the names, as dataclasses compile `__init__`: a claim reads some thirty columns of every job,
and a loop over their names would cost as much as all else that it does in Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from enum import Enum
from typing import Any, Generic, TypeVar

from holdbeat.domain.errors import NotFound
from holdbeat.store.transaction import Row, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class optional:
    """The converter for a column that may be null."""

    convert: Callable[[Any], Any]


class _Time:
    """The converter for a column that holds an instant in the form of the engine, or null."""


TIME = _Time()
Converter = Callable[[Any], Any] | optional | _Time


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _parsed(text: str) -> Any:
    if text == "{}":
        return {}
    try:
        # Stored JSON has no leading blanks, so the decoder need not skip any.
        return _scan(text, 0)[0]
    except StopIteration:
        return json.loads(text)


def field_names(kind: Any, before: str | None = None) -> tuple[str, ...]:
    """The columns of the table of a dataclass: its fields; all of them, or those before one."""
    names = tuple(field.name for field in fields(kind))
    return names if before is None else names[: names.index(before)]


def row_reader(
    kind: type[T], columns: Sequence[str], converters: Mapping[str, Converter] | None = None
) -> Callable[[Transaction, Row], T]:
    """A function that makes a `kind`, a dataclass, of a row that begins with these columns.

    Columns are fields of the same name, and are converted as the type of the field says, or as `converters` do.
    """
    converters = converters or {}
    _refuse_strangers(converters, columns)
    typed = {field.name: _by_type(kind, field) for field in fields(kind) if field.name in columns}  # type: ignore[arg-type]
    converters = {name: converter for name, converter in typed.items() if converter is not None} | dict(converters)
    values = {name: _converted(f"{name}_", name, converters.get(name)) for name in columns}
    source = (
        "def read(tx, row):\n"
        "    time = tx.time\n"
        f"    {', '.join(f'{name}_' for name in columns)} = row[:{len(columns)}]\n"
        f"    return kind({_arguments(kind, values)})\n"
    )
    read: Callable[[Transaction, Row], T] = _compiled(source, "read", kind=kind, **_functions(converters))
    return read


class Table(Generic[T]):
    """A table with a row for each `kind`, a dataclass: its columns are the fields of that, or those before one.

    `noun` names one of them in refusals.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        converters: Mapping[str, Converter] | None = None,
        *,
        before: str | None = None,
        noun: str = "row",
    ) -> None:
        self.name = name
        self.noun = noun
        self.fields = field_names(kind, before)
        self.columns = ", ".join(self.fields)
        self.read = row_reader(kind, self.fields, converters)
        """Makes a `kind` of a row of these columns, and perhaps others after them."""

    def all(self, tx: Transaction, rest: str, /, **params: Any) -> list[T]:
        """Reads the rows that `rest` chooses: the statement after `SELECT … FROM` the table."""
        return [self.read(tx, row) for row in tx.rows(f"SELECT {self.columns} FROM {self.name} {rest}", **params)]

    def first(self, tx: Transaction, rest: str, /, **params: Any) -> T | None:
        """The first of them; None if there is none."""
        row = tx.one(f"SELECT {self.columns} FROM {self.name} {rest}", **params)
        return None if row is None else self.read(tx, row)

    def get(self, tx: Transaction, id: str, *, locked: bool = False) -> T:
        """The one with this id, or NotFound."""
        item = self.first(tx, f"WHERE id = :id{' FOR UPDATE' if locked else ''}", id=id)
        if item is None:
            raise self.unknown(id)
        return item

    def unknown(self, id: str) -> NotFound:
        """The refusal of an id that no row has."""
        return NotFound(f"There is no {self.noun} {id}.", **{f"{self.noun.split()[-1]}_id": id})


def row_writer(
    columns: Sequence[str], parameters: Sequence[str], converters: Mapping[str, Converter]
) -> Callable[..., Row]:
    """Makes a row of these columns: `parameters` are handed in after the object, the others are its attributes."""
    _refuse_strangers(converters, columns)
    _refuse_strangers(parameters, columns)
    attributes = {name: name if name in parameters else f"item_.{name}" for name in columns}
    values = [_converted(value, name, converters.get(name)) for name, value in attributes.items()]
    source = f"def write(item_, {', '.join(parameters)}):\n    return ({', '.join(values)},)\n"
    write: Callable[..., Row] = _compiled(source, "write", **_functions(converters))
    return write


def copier(kind: type[T], names: Sequence[str], parameters: Sequence[str]) -> Callable[..., T]:
    """Makes a `kind` of an object: `parameters` are handed in after it, `names` are its attributes."""
    values = {name: f"item_.{name}" for name in names} | {name: name for name in parameters}
    source = f"def copy(item_, {', '.join(parameters)}):\n    return kind({_arguments(kind, values)})\n"
    copy: Callable[..., T] = _compiled(source, "copy", kind=kind)
    return copy


def _by_type(kind: Any, field: Field[Any]) -> Converter | None:
    """How a column is read into a field of this type; None if it is taken as it is."""
    name, _, is_optional = str(field.type).partition(" | ")
    convert: Callable[[Any], Any]
    members = vars(sys.modules[kind.__module__]).get(name)
    if name == "datetime":
        return TIME
    if name == "bool":
        convert = bool
    elif name.startswith(("dict[", "list[")):
        convert = _parsed
    elif name.startswith("tuple["):
        convert = _parsed_tuple
    elif isinstance(members, type) and issubclass(members, Enum):
        convert = {member.value: member for member in members}.__getitem__
    else:
        return None
    return optional(convert) if is_optional else convert


def _parsed_tuple(text: str) -> tuple[Any, ...]:
    return tuple(_parsed(text))


def _converted(value: str, name: str, converter: Converter | None) -> str:
    if converter is None:
        return value
    if converter is TIME:
        return f"{value} and time({value})"
    if isinstance(converter, optional):
        return f"None if {value} is None else convert_{name}({value})"
    return f"convert_{name}({value})"


def _functions(converters: Mapping[str, Converter]) -> dict[str, Any]:
    """The names that `_converted` uses."""
    return {
        f"convert_{name}": converter.convert if isinstance(converter, optional) else converter
        for name, converter in converters.items()
    }


def _arguments(kind: Any, values: Mapping[str, str]) -> str:
    """The arguments of a dataclass: by place as long as each field has a value, which is faster than by name."""
    _refuse_strangers(values, [field.name for field in fields(kind)])
    arguments: list[str] = []
    is_gap = False
    for field in fields(kind):
        if field.name in values:
            arguments.append(f"{field.name}={values[field.name]}" if is_gap else values[field.name])
        elif not is_gap and (field.default is None or isinstance(field.default, bool)):
            arguments.append(repr(field.default))
        else:
            is_gap = True
    return ", ".join(arguments)


def _refuse_strangers(names: Mapping[str, Any] | Sequence[str], known: Sequence[str]) -> None:
    strangers = set(names) - set(known)
    if strangers:
        raise ValueError(f"No column is named {min(strangers)}.")


def _compiled(source: str, name: str, **names: Any) -> Any:
    exec(source, names)
    return names[name]
