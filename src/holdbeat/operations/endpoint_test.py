"""The test call of an endpoint, which needs no transaction that lasts as long as the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdbeat.domain.redaction import redacted_headers
from holdbeat.engine.endpoint_test import try_endpoint
from holdbeat.operations.checks import check_reference

if TYPE_CHECKING:
    from holdbeat.handlers.outbound import Outbound
    from holdbeat.store.adapter import PersistenceAdapter

_OF_RESULT = ("status_code", "headers", "body", "truncated", "duration_s")


async def test_endpoint(store: PersistenceAdapter, outbound: Outbound, reference: str) -> dict[str, Any]:
    """Call an endpoint at once and show what came back; neither its plan nor its health change."""
    tried = await try_endpoint(store, outbound, check_reference(reference))
    result = tried.pop("result") or {}
    answer = {**tried, **{name: result.get(name) for name in _OF_RESULT}}
    if isinstance(answer["headers"], dict):
        answer["headers"] = redacted_headers(answer["headers"])
    return answer
