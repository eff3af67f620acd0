"""Operations on limits: read them with what they hold, set them, take back what was set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.limit import FIELDS
from holdbeat.domain.views import form
from holdbeat.operations.checks import checked_fields
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas import limits as schemas
from holdbeat.store.limits import changes as limit_changes
from holdbeat.store.reads.limit_figures import LimitFigures, limit_figures
from holdbeat.store.transaction import Transaction


@reads
def list_limits(tx: Transaction, context: OperationContext) -> Any:
    """List the limits in force, with the slots in use, the jobs that wait and when a rate permits the next start."""
    return {"items": [_limit_json(figures) for figures in limit_figures(tx)]}


@writes
def set_limit(tx: Transaction, context: OperationContext, name: str, changes: Mapping[str, Any]) -> Any:
    """Set fields of a limit, or create one. It overrides what settings declare, at once and on all workers."""
    limit_changes.set_limit(tx, name, checked_fields(changes, FIELDS), by=context.caller)
    return next(_limit_json(figures) for figures in limit_figures(tx) if figures.limit.name == name)


@writes
def reset_limit(tx: Transaction, context: OperationContext, name: str) -> Any:
    """Reset a limit to what the settings declare. A limit that nothing declares is removed."""
    limit_changes.reset_limit(tx, name, by=context.caller)
    return {"items": [_limit_json(figures) for figures in limit_figures(tx) if figures.limit.name == name]}


def _limit_json(figures: LimitFigures) -> dict[str, Any]:
    limit = figures.limit
    return form(
        figures,
        schemas.Limit,
        **limit.as_dict(),
        name=limit.name,
        origin=limit.origin,
        version=limit.version,
        declared=None if figures.declared is None else figures.declared.as_dict(),
        throttled=[{"partition": part or None, "until": iso(until)} for part, until in figures.throttled],
    )
