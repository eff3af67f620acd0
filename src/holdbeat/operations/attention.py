"""Operations on what needs attention: read it, and mark what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdbeat.domain.attention import AttentionItem
from holdbeat.domain.clock import iso
from holdbeat.operations.checks import check_texts
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.store.attention import mark_seen, read_attention

if TYPE_CHECKING:
    from holdbeat.store.transaction import Transaction


@reads
def list_attention(tx: Transaction, context: OperationContext) -> Any:
    """List what a person should look at, with since when and what to do, what is worst first."""
    return {"items": [item_json(item) for item in read_attention(tx)]}


@writes
def mark_attention_seen(tx: Transaction, context: OperationContext, name: str | None = None) -> Any:
    """Mark operational events as seen, of one name or all; states stay until they are mended."""
    mark_seen(tx, None if name is None else check_texts([name], "name", "names", 1)[0])
    return {"items": [item_json(item) for item in read_attention(tx)]}


def item_json(item: AttentionItem) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "text": item.text,
        "detail": item.detail,
        "advice": item.advice,
        "since": None if item.since is None else iso(item.since),
        "last_at": None if item.last_at is None else iso(item.last_at),
        "count": item.count,
        "job_id": item.job_id,
        "schedule_id": item.schedule_id,
        "type": item.type,
        "resource": item.resource,
        "can_be_seen": item.can_be_seen,
    }
