"""The test call of an endpoint, which needs no transaction that lasts as long as the call.

Guards GOV-11: it reads the endpoint and calls; it writes nothing, so neither plan nor counters nor health can change.
"""

from __future__ import annotations

from typing import Any

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.redaction import redacted_headers
from holdbeat.handlers.http import HttpFailure, call_http
from holdbeat.handlers.outbound import Outbound
from holdbeat.operations.checks import check_reference
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.endpoints import endpoint_call


async def try_endpoint(store: PersistenceAdapter, outbound: Outbound, reference: str) -> dict[str, Any]:
    """Calls the endpoint now: {ok, error, error_kind, result}, the result as that of an `http` job."""
    params = await store.read(endpoint_call, reference)
    try:
        result = await call_http(outbound, params)
    except HttpFailure as failure:
        return {"ok": False, "error": failure.message, "error_kind": failure.kind, "result": failure.result}
    except HoldbeatError as refusal:
        return {"ok": False, "error": refusal.detail, "error_kind": "rejected", "result": None}
    return {"ok": True, "error": None, "error_kind": None, "result": result}


_OF_RESULT = ("status_code", "headers", "body", "truncated", "duration_s")


async def test_endpoint(store: PersistenceAdapter, outbound: Outbound, reference: str) -> dict[str, Any]:
    """Call an endpoint at once and show what came back; neither its plan nor its health change."""
    tried = await try_endpoint(store, outbound, check_reference(reference))
    result = tried.pop("result") or {}
    answer = {**tried, **{name: result.get(name) for name in _OF_RESULT}}
    if isinstance(answer["headers"], dict):
        answer["headers"] = redacted_headers(answer["headers"])
    return answer
