"""Names of templates and schedules: two of a kind never have the same, and no name looks like an id."""

from __future__ import annotations

from typing import Literal

from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.ids import is_id
from holdbeat.store.transaction import Transaction

Kind = Literal["template", "schedule"]


def check_name(kind: Kind, name: str) -> None:
    """Refuses a name in the form of an id."""
    if is_id(name):
        sentence = f"A {kind}'s name must not look like an id: {kind}s are found by either."
        raise Invalid(sentence, code="invalid_text", field="name")


def lock_name(tx: Transaction, kind: Kind, name: str) -> None:
    """On PostgreSQL two callers with one name must wait for each other before they look."""
    tx.lock_pools([f"{kind}:{name}"])


def refuse_taken_name(tx: Transaction, kind: Kind, name: str, own_id: str) -> None:
    """Refuses a name that another of the kind has; archived templates keep theirs."""
    lock_name(tx, kind, name)
    table, archived_at = ("job_templates", "archived_at") if kind == "template" else ("schedules", "NULL")
    holder = tx.one(f"SELECT id, {archived_at} FROM {table} WHERE name = :name", name=name)
    if holder is not None and holder[0] != own_id:
        article = "An archived" if holder[1] is not None else "A"
        sentence = f"{article} {kind} has the name {name!r} already. Choose another."
        raise Conflict(sentence, code="name_taken", field="name", **{f"{kind}_id": holder[0]})
