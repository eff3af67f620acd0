"""Filters over Jobs and JobRuns: an allow-list of names, turned into conditions.

Guards API-02: a filter that is not known is refused, never ignored; and no text from outside becomes SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdbeat.domain.bounds import check_instant
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import JobStatus
from holdbeat.domain.old_words import status_hint
from holdbeat.domain.params import check_text
from holdbeat.domain.run import ErrorKind
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.reads.pagination import Conditions
from holdbeat.store.transaction import Transaction

LIST_FILTERS = (
    "status", "type", "resource", "schedule_id", "group_id", "template_id", "parent_id", "label", "priority",
    "created_before", "created_after",
)  # fmt: skip
BULK_FILTERS = (*LIST_FILTERS, "ids")
_SAME = ("type", "resource", "schedule_id", "group_id", "template_id", "parent_id")
_OUTCOMES = (JobStatus.FAILED, JobStatus.SKIPPED, JobStatus.CANCELLED)
_IDS_MAX = 10_000


def refuse_unknown(filters: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """The filters that say something; a name that is not allowed is Invalid."""
    known = tuple(allowed)
    for name in filters:
        if name not in known:
            raise Invalid(
                f"There is no filter {str(name)[:100]!r}; there are {', '.join(known)}.",
                code="unknown_filter",
                field=str(name)[:100],
            )
    return {name: value for name, value in filters.items() if value is not None}


def one_or_several(value: Any, name: str) -> list[str]:
    """A filter that takes one value or a list of them."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple | set | frozenset) or not values:
        raise Invalid(f"{name} must be a text or a list of texts.", code="invalid_filter", field=name)
    return [check_text(value, name, 500) for value in values]


def choices(value: Any, name: str, vocabulary: Iterable[str]) -> list[str]:
    """Words of a vocabulary; anything else is Invalid."""
    chosen = one_or_several(value, name)
    known = [str(word) for word in vocabulary]
    for choice in chosen:
        if choice not in known:
            hint = status_hint(choice, known) if name == "status" else ""
            raise Invalid(
                f"{name} {choice!r} does not exist; there are {', '.join(known)}.{hint}",
                code="invalid_filter",
                field=name,
            )
    return sorted(set(chosen))


def job_conditions(tx: Transaction, filters: Mapping[str, Any], *, is_joined: bool = False) -> Conditions:
    """The conditions of filters that `refuse_unknown` has let through, over `jobs AS j`.

    With `is_joined` the source begins with `job_labels AS l`, for a page in the order of the first label's index.
    """
    conditions = Conditions()
    if "status" in filters:
        _status(conditions, choices(filters["status"], "status", JobStatus))
    for name in _SAME:
        if name in filters:
            conditions.add(f"j.{name} = :{name}", **{name: check_text(filters[name], name, 500)})
    if "label" in filters:
        for number, text in enumerate(one_or_several(filters["label"], "label")):
            _label(tx, conditions, text, number, is_joined=is_joined and number == 0)
    if "priority" in filters:
        low, high = priority_range(filters["priority"])
        conditions.add("j.priority BETWEEN :priority_low AND :priority_high", priority_low=low, priority_high=high)
    if "ids" in filters:
        ids = one_or_several(filters["ids"], "ids")
        if len(ids) > _IDS_MAX:
            raise Invalid(f"ids may name at most {_IDS_MAX:,} at once.", code="invalid_filter", field="ids")
        conditions.add("j.id IN :ids", ids=ids)
    for name, sign in (("created_before", "<"), ("created_after", ">")):
        if name in filters:
            conditions.add(f"j.created_at {sign} :{name}", **{name: check_instant(filters[name], name)})
    return conditions


def priority_range(value: Any) -> tuple[int, int]:
    """The lowest and the highest priority of a filter: one number, or two with two dots between them (50..100)."""
    low, dots, high = str(value).partition("..")
    try:
        if isinstance(value, bool):
            raise ValueError
        chosen = int(low or 0), int(high or PRIORITY_MAX) if dots else int(low)
    except ValueError:
        chosen = (-1, -1)
    if not 0 <= chosen[0] <= chosen[1] <= PRIORITY_MAX:
        raise Invalid(
            f"priority must be a number from 0 to {PRIORITY_MAX}, or a range such as 50..{PRIORITY_MAX}.",
            code="invalid_filter",
            field="priority",
        )
    return chosen


def error_kinds(value: Any) -> Sequence[str]:
    return choices(value, "error_kind", ErrorKind)


def _status(conditions: Conditions, statuses: Sequence[str]) -> None:
    # Written out, not bound: both planners match partial indexes by the text of the condition.
    if len(statuses) == 1:
        conditions.add(f"j.status = '{statuses[0]}'")
        if statuses[0] == "QUEUED":
            conditions.add("j.priority >= 0")  # without this jobs_queue is not used
    else:
        conditions.add(f"j.status IN ({', '.join(repr(str(status)) for status in statuses)})")
    if all(status in _OUTCOMES for status in statuses):
        conditions.add("j.status IN ('FAILED', 'SKIPPED', 'CANCELLED')")


def label_parts(text: str) -> tuple[str, str]:
    """The name and the value of a label that is written as name=value or name:value."""
    key, sign, value = text.partition("=") if "=" in text else text.partition(":")
    if not sign or not key:
        raise Invalid("label must be written as name=value or name:value.", code="invalid_filter", field="label")
    return key, value


def _label(tx: Transaction, conditions: Conditions, text: str, number: int, *, is_joined: bool) -> None:
    key, value = label_parts(text)
    names = {f"label_key_{number}": key, f"label_value_{number}": value}
    # The index finds the jobs; what follows tells {"a": "b=c"} from {"a=b": "c"}.
    label = {f"label_{number}": f"{key}={value}"}
    if is_joined:
        conditions.add(f"l.label = :label_{number} AND j.id = l.job_id", **label)
    else:
        conditions.add(f"j.id IN (SELECT job_id FROM job_labels WHERE label = :label_{number})", **label)
    if tx.dialect == "sqlite":
        # The operator ->> would read some names as paths into the object.
        conditions.add(
            f"EXISTS (SELECT 1 FROM json_each(j.labels) AS l WHERE l.key = :label_key_{number} "
            f"AND l.value = :label_value_{number})",
            **names,
        )
    else:
        conditions.add(f"j.labels ->> :label_key_{number}::text = :label_value_{number}", **names)
