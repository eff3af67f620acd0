"""Health for people and machines that watch."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdbeat.api.problem import answer, problem
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Routes
from holdbeat.api.schemas.others import Health, Readiness

routes = Routes("health")


@routes.get("/healthz", answers={200: Health})
async def get_health(call: ApiRequest) -> Response:
    """Say that this process answers; nothing more is claimed."""
    return answer({"status": "ok"})


@routes.get("/readyz", answers={200: Readiness})
async def get_readiness(call: ApiRequest) -> Response:
    """Prove that this server can do its work: a write, a claim, schedules on time, a worker that beats."""
    checks = (await call.service.readiness.probe())["checks"]
    failed = [check["detail"] for check in checks.values() if not check["ok"]]
    if failed:
        sentence = f"This server is not ready. {' '.join(failed)}"
        return problem(503, "not_ready", sentence, headers={"Retry-After": "1"}, ready=False, checks=checks)
    return answer({"ready": True, "checks": checks})


@routes.get("/metrics", answers={200: "text/plain"})
async def get_metrics(call: ApiRequest) -> Response:
    """Read the metrics in the text format of Prometheus."""
    text, media_type = await asyncio.to_thread(call.service.metrics)
    return Response(text, 200, {"Content-Type": media_type})
