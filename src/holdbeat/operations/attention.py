"""Operations on what needs attention: read it, and mark what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdbeat.domain.attention import AttentionItem
from holdbeat.domain.views import form
from holdbeat.operations.checks import check_texts
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas import system
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
    return form(item, system.AttentionItem)
