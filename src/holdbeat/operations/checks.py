"""Checks of plain arguments that several operations share, and the form of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdbeat.domain.address import check_url
from holdbeat.domain.errors import Forbidden, Invalid, NotFound
from holdbeat.domain.ids import is_id
from holdbeat.domain.old_words import field_hint
from holdbeat.domain.schema import near_matches
from holdbeat.operations.operation import OperationContext
from holdbeat.store.jobs.manual_retry import is_own_shell_job
from holdbeat.store.reads.ids import Noun, id_by_part
from holdbeat.store.transaction import Transaction


def id_of(tx: Transaction, text: str, noun: Noun) -> str:
    """The id of what is named by its id, or by the beginning or the end of it where that is unambiguous (FND-01)."""
    if is_id(text):
        return text
    whole_id = id_by_part(tx, noun, text)
    if whole_id is None:
        raise NotFound(f"There is no {noun} {text[:100]}.")
    return whole_id


def check_reference(text: str) -> str:
    """An id or a name."""
    if "\x00" in text:
        raise NotFound("There is no such thing: its name contains the character NUL.")
    return text


def check_id_filter(value: str | None, field: str) -> str | None:
    if value is not None and not is_id(value):
        raise Invalid(f"{field} must be an id.", code="invalid_id", field=field)
    return value


def check_filter(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Invalid("filter must be an object.", code="invalid_filter", field="filter")
    return value


def check_texts(value: Any, field: str, what: str, most: int) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > most or not all(isinstance(item, str) for item in value):
        raise Invalid(
            f"{field} must be a list of {what}.", code=f"invalid_{field.rpartition('_')[2][:-1]}", field=field
        )
    return list(value)


def several(value: str | Sequence[str] | None) -> list[str] | None:
    """One word, several of them, or several in one text, separated by commas; None if there are none."""
    if value is None:
        return None
    texts = [value] if isinstance(value, str) else value
    return [word for text in texts for word in text.split(",")] or None


def checked_fields(
    value: Any, allowed: Iterable[str], *, required: Iterable[str] = (), place: str = ""
) -> dict[str, Any]:
    """Refuses what is no object, has a field that is not known, or lacks one that is needed."""
    if not isinstance(value, dict):
        subject = f"{place.rstrip('.')} must be" if place else "The body must be"
        raise Invalid(f"{subject} a JSON object.", code="invalid_body", field=place.rstrip(".") or None)
    names = allowed if isinstance(allowed, frozenset | Mapping) else frozenset(allowed)
    for name in value:
        if name not in names:
            close = near_matches(name, names, limit=1)
            hint = field_hint(name)
            if not hint:
                hint = f" Did you mean {close[0]}?" if close else f" Known are: {', '.join(sorted(names)) or 'none'}."
            raise Invalid(f"There is no field {name[:100]} here.{hint}", code="unknown_field", field=place + name)
    for name in required:
        if name not in value:
            raise Invalid(f"The field {place}{name} is missing.", code="missing_field", field=place + name)
    return value


def check_admin(context: OperationContext, what: str) -> None:
    """Refuses what only a key with the scope admin may do."""
    if not context.is_admin:
        raise Forbidden(f"{what} needs a key with the scope admin.", code="needs_admin")


def check_call(context: OperationContext, type_: Any, params: Any, webhook_url: Any = None) -> None:
    """Refuses an `http` job or a webhook that an exposed server would never call (SEC-04).

    Names are judged when they are called.
    """
    if context.strict_policy is None:
        return
    if isinstance(webhook_url, str):
        try:
            check_url(webhook_url, context.strict_policy)
        except Invalid as refusal:
            raise Invalid(refusal.detail, code=refusal.code, field="webhook_url") from None
    url = params.get("url") if type_ == "http" and isinstance(params, Mapping) else None
    if isinstance(url, str):
        check_url(url, context.strict_policy)


def guard_shell_retry(tx: Transaction, context: OperationContext, job_id: str) -> None:
    """Refuses to run a shell job of an admin once more, except one of a template, which any write key may run."""
    if not context.is_admin and is_own_shell_job(tx, job_id):
        check_admin(context, "Retrying a shell job that was made without a template")


def page_json(page: Any, item_json: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    return {"items": [item_json(item) for item in page.items], "next_cursor": page.next_cursor}
