"""The job types that Apps announce, and what a submission is checked against.

Guards QUE-06: types and their schemas are kept in the store, so every process refuses the same names and params,
whether or not a worker for them lives just now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.schema import Schema, near_matches, validate
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction

_COLUMNS = "name, schema, defaults, aliases, description, announced_at"
_TICK = timedelta(milliseconds=1)
"""The resolution of the store's times."""


@dataclass(slots=True)
class AnnouncedType:
    """A job type as the store knows it. `defaults` is its layer of defaults for new Jobs."""

    name: str
    schema: Schema = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    description: str | None = None
    announced_at: datetime | None = None


def announce(tx: Transaction, types: Sequence[AnnouncedType]) -> list[str]:
    """Makes types known, or known anew, and returns the names that were written.

    What is there already is not written again, so that many processes can start at once and often. Every change has a
    later `announced_at` than the one before it, so this instant identifies a version of the type.
    """
    by_name = {type_.name: type_ for type_ in types}
    tx.lock_pools(["job types"])
    announced = {
        row[0]: (tuple(row[1:5]), tx.instant(row[5]))
        for row in tx.rows(f"SELECT {_COLUMNS} FROM job_types WHERE name IN :names", names=sorted(by_name))
    }
    changed = []
    for name in sorted(by_name):
        type_ = by_name[name]
        row = (dumps(type_.schema), dumps(type_.defaults), dumps(list(type_.aliases)), type_.description)
        known, known_at = announced.get(name, (None, None))
        if known != row:
            announced_at = tx.now if known_at is None else max(tx.now, known_at + _TICK)
            changed.append((name, *row, announced_at))
    if changed:
        tx.execute(
            "INSERT INTO job_types (name, schema, defaults, aliases, description, announced_at) "
            "SELECT t.name, t.schema, t.defaults, t.aliases, t.description, t.announced_at "
            "FROM rows(:types; name text, schema json, defaults json, aliases json, description text, "
            "announced_at time) AS t WHERE true "
            "ON CONFLICT (name) DO UPDATE SET schema = excluded.schema, defaults = excluded.defaults, "
            "aliases = excluded.aliases, description = excluded.description, announced_at = excluded.announced_at",
            types=changed,
        )
        tx.wake(Topic.JOB_TYPES)
    return [row[0] for row in changed]


def list_types(tx: Transaction) -> list[AnnouncedType]:
    """All types that were ever announced, by name."""
    return [_type_of(tx, row) for row in tx.rows(f"SELECT {_COLUMNS} FROM job_types ORDER BY name")]


def unknown_type_error(name: str, names: Iterable[str]) -> Invalid:
    """The refusal of a name that nobody announced, with those that were probably meant."""
    known_names = sorted(names)
    close = near_matches(name, known_names)
    if close:
        hint = f"Did you mean {' or '.join(close)}?"
    elif known_names:
        hint = f"Known are {', '.join(known_names[:20])}{' …' if len(known_names) > 20 else ''}."
    else:
        hint = "No job type is known yet: start an app that registers it."
    return Invalid(f"There is no job type {name[:200]!r}. {hint}", code="unknown_type", field="type", near=close)


class Catalogue:
    """Job types as one transaction sees them: each is read once."""

    def __init__(self, tx: Transaction, *known: AnnouncedType) -> None:
        self._tx = tx
        self._types: dict[str, AnnouncedType] = {type_.name: type_ for type_ in known}
        self._is_complete = False

    def prefetch(self, names: Iterable[str]) -> None:
        """Reads many at once."""
        missing = sorted(set(names) - self._types.keys())
        if missing and not self._is_complete:
            for row in self._tx.rows(f"SELECT {_COLUMNS} FROM job_types WHERE name IN :names", names=missing):
                self._types[row[0]] = self._tx.terms.known_types[row[0]] = _type_of(self._tx, row)

    def find(self, name: str) -> AnnouncedType | None:
        """The type of that name, or else the one that has it as an alias."""
        if name not in self._types:
            self.prefetch([name])
        if name not in self._types and not self._is_complete:
            everything = list_types(self._tx)
            self._is_complete = True
            for type_ in everything:
                self._types[type_.name] = type_
            for type_ in everything:
                for alias in type_.aliases:
                    self._types.setdefault(alias, type_)
        return self._types.get(name)

    def resolve(self, name: str) -> AnnouncedType:
        """`find`, or a refusal with near matches."""
        job_type = self.find(name)
        if job_type is None:
            raise unknown_type_error(name, self._types)
        return job_type

    def check_params(self, name: str, params: dict[str, Any], *, partial: bool = False) -> None:
        """Refuses params that do not fit the schema of the type, if it is known.

        `partial`: the params are defaults, so what is required may still be missing.
        """
        job_type = self.find(name)
        if job_type is not None and job_type.schema:
            schema = {**job_type.schema, "required": []} if partial else job_type.schema
            validate(schema, params, field="default_params" if partial else "params")


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Any:
    """JSON of the table, parsed once; nobody changes what comes from here."""
    return json.loads(text)


def _type_of(tx: Transaction, row: Row) -> AnnouncedType:
    return AnnouncedType(row[0], _parsed(row[1]), _parsed(row[2]), tuple(_parsed(row[3])), row[4], tx.time(row[5]))


def some_type_names(tx: Transaction, limit: int) -> list[str]:
    """The first names of job types, in the database's order."""
    return tx.column("SELECT name FROM job_types ORDER BY name LIMIT :limit", limit=limit)
