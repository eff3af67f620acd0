"""The test call of an Endpoint: at once, answered to whoever asked, and without a trace in the schedule.

Guards GOV-11: it reads the endpoint and calls; it writes nothing, so neither plan nor counters nor health can change.
"""

from __future__ import annotations

from typing import Any

from holdbeat.domain.errors import HoldbeatError
from holdbeat.handlers.http import HttpFailure, call_http
from holdbeat.handlers.outbound import Outbound
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
