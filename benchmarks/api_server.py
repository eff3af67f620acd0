"""What the API benchmark talks to, each in a process of its own: Holdbeat as `holdbeat serve` runs it, with an empty
route besides, or one empty Starlette route behind the same HTTP server."""

from __future__ import annotations

import asyncio
import socket
import sys
from datetime import UTC, datetime

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.system import routes
from holdbeat.api.server import http_config
from holdbeat.app import App
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import DEFAULT_RETRY_POLICY, Job, JobStatus
from holdbeat.domain.views import job_json
from holdbeat.schemas import jobs as schemas
from holdbeat.settings import Settings
from holdbeat.wiring import Composition


def add_empty_route() -> None:
    """A route of Holdbeat's own server that does what every route must, and nothing else.

    The access middleware lets it in, its body is read and parsed, and a job's JSON is encoded and sent.
    """
    now = datetime.now(UTC)
    job = Job(IdSource().new(now), "noop", {}, JobStatus.QUEUED, 0, 1024, "default", DEFAULT_RETRY_POLICY, now)
    sent = job_json(job)

    @routes.post("/api/empty", body=schemas.JobRequest, answers={201: schemas.Job})
    async def empty(request: ApiRequest) -> Response:
        """Nothing."""
        await request.object()
        return answer(sent, 201, {"Location": f"/api/empty/{job.id}"})


def serve_holdbeat(port: int, store: str, slots: int) -> int:
    """Holdbeat with a no-op handler in so many slots; without a worker if there are none."""
    app = App(
        settings=Settings().with_changes(
            store=store, port=port, slots=slots, http_slots=0, concurrency="unlimited", log_level="warning"
        )
    )

    @app.job(retries=0)
    async def noop() -> None:
        return None

    add_empty_route()
    return Composition().serve(app, has_worker=slots > 0)


def serve_nothing(port: int) -> int:
    """A route of Starlette alone, which reads nothing and answers `{}`."""

    async def nothing(request: Request) -> Response:
        return JSONResponse({}, 201)

    app = Starlette(routes=[Route("/api/jobs", nothing, methods=["POST"])])
    bound = socket.create_server(("127.0.0.1", port), backlog=2048)
    asyncio.run(uvicorn.Server(http_config(app)).serve(sockets=[bound]))
    return 0


if __name__ == "__main__":
    kind, number, *rest = sys.argv[1:]
    sys.exit(serve_nothing(int(number)) if kind == "bare" else serve_holdbeat(int(number), rest[0], int(rest[1])))
