"""Liveness, readiness and metrics."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdbeat.api.problem import answer, problem
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Routes
from holdbeat.schemas.system import Health, Readiness

routes = Routes("health")


@routes.get("/healthz", answers={200: Health})
async def get_health(request: ApiRequest) -> Response:
    """Liveness: this process answers. Nothing else is checked."""
    return answer({"status": "ok"})


@routes.get("/readyz", answers={200: Readiness})
async def get_readiness(request: ApiRequest) -> Response:
    """Readiness: checks a write, a claim, that schedules are on time, and that a worker sends heartbeats."""
    checks = (await request.context.readiness.probe())["checks"]
    failed = [check["detail"] for check in checks.values() if not check["ok"]]
    if failed:
        sentence = f"This server is not ready. {' '.join(failed)}"
        return problem(503, "not_ready", sentence, headers={"Retry-After": "1"}, ready=False, checks=checks)
    return answer({"ready": True, "checks": checks})


@routes.get("/metrics", answers={200: "text/plain"})
async def get_metrics(request: ApiRequest) -> Response:
    """Read the metrics in the text format of Prometheus."""
    text, media_type = await asyncio.to_thread(request.context.metrics)
    return Response(text, 200, {"Content-Type": media_type})
