"""Dependencies: what a Job waits for before it may start, and what follows if that ends badly.

Guards DEP-04: a Job can name only what exists, or earlier Jobs of its own batch, so there are no cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid
from holdbeat.schemas.field_bounds import LONGEST_NAME

if TYPE_CHECKING:
    from holdbeat.domain.job import NewJob

MOST_UPSTREAMS = 10_000
_LONGEST_ID = 64
_KINDS = ("job_id", "group_id", "ref")


class OnUpstream(StrEnum):
    """The policy of a Job if an upstream ends otherwise than COMPLETED."""

    CANCEL = "cancel"
    SKIP = "skip"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Upstream:
    """Something that must end before a Job may start: a job, a group, or an earlier job of the batch by its `ref`."""

    job_id: str | None = None
    group_id: str | None = None
    ref: str | None = None
    name: str | None = None
    """The name under which its result is read."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A stored dependency of a chain of jobs."""

    upstream_id: str
    """The first job of the chain that must end, or the group."""
    is_group: bool
    name: str | None = None
    met_at: datetime | None = None
    outcome: str | None = None
    """How it ended."""


def check_after(value: Any, field: str = "after") -> tuple[Upstream, ...]:
    """A list of {job_id | group_id | ref, as?}; a text stands for a job's id."""
    if not isinstance(value, list | tuple):
        raise Invalid(
            f'{field} must be a list such as [{{"job_id": …, "as": "pages"}}].', code="invalid_after", field=field
        )
    if len(value) > MOST_UPSTREAMS:
        raise Invalid(
            f"{field} may name at most {MOST_UPSTREAMS:,} jobs. Put them into a group, and name the group.", field=field
        )
    upstreams = tuple(_upstream(entry, f"{field}[{index}]") for index, entry in enumerate(value))
    names = [upstream.name for upstream in upstreams if upstream.name is not None]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"{field} uses the name {twice!r} twice; give each its own.", code="invalid_after", field=field)
    return upstreams


def _upstream(entry: Any, field: str) -> Upstream:
    if isinstance(entry, str):
        entry = {"job_id": entry}
    if not isinstance(entry, Mapping):
        raise Invalid(f"{field} must be an object with job_id, group_id or ref.", code="invalid_after", field=field)
    values = {name: value for name, value in entry.items() if value is not None}
    unknown = sorted(values.keys() - {*_KINDS, "as"})
    if unknown:
        raise Invalid(
            f"{field} has no member {unknown[0]}; it has job_id, group_id or ref, and as.",
            code="unknown_field",
            field=f"{field}.{unknown[0]}",
        )
    kinds = [name for name in _KINDS if name in values]
    if len(kinds) != 1:
        raise Invalid(f"{field} must have one of job_id, group_id and ref.", code="invalid_after", field=field)
    check_line(values[kinds[0]], f"{field}.{kinds[0]}", LONGEST_NAME if kinds[0] == "ref" else _LONGEST_ID)
    name = values.get("as")
    if name is not None:
        check_line(name, f"{field}.as")
    return Upstream(values.get("job_id"), values.get("group_id"), values.get("ref"), name)


def check_on_upstream(value: Any, field: str = "on_upstream") -> OnUpstream:
    try:
        return OnUpstream(value)
    except ValueError:
        raise Invalid(
            f"{field} must be {', '.join(OnUpstream)}: what to do if something named in after does not complete.",
            code="invalid_choice",
            field=field,
        ) from None


def check_refs(batch: Sequence[NewJob]) -> None:
    """Refuses a `ref` that is used twice, and one that names no earlier job of the batch."""
    earlier: set[str] = set()
    for index, job in enumerate(batch):
        for number, upstream in enumerate(job.after):
            if upstream.ref is not None and upstream.ref not in earlier:
                raise Invalid(
                    f"No job before this one in the batch has the ref {upstream.ref!r}. Put the job with this ref "
                    "first.",
                    code="unknown_ref",
                    field=f"jobs[{index}].after[{number}].ref",
                )
        if job.ref is not None:
            if job.ref in earlier:
                raise Invalid(
                    f"The ref {job.ref!r} is used twice in this batch; give each job its own.",
                    code="duplicate_ref",
                    field=f"jobs[{index}].ref",
                )
            earlier.add(job.ref)


def broken_by(outcome: str) -> str | None:
    """The reason for a Job's end if something that it waits for ended so; None if that was COMPLETED."""
    match outcome:
        case "COMPLETED":
            return None
        case "CANCELLED":
            return "upstream cancelled"
        case "SKIPPED":
            return "upstream skipped"
    return "upstream failed"
