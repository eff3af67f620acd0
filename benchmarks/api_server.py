"""What the API benchmark talks to, each in a process of its own: Holdbeat as `holdbeat serve` runs it, or one empty
Starlette route behind the same server with the same settings."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdbeat.api.server import http_config
from holdbeat.app import App
from holdbeat.settings import Settings
from holdbeat.wiring import Composition


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

    return Composition().serve(app, has_worker=slots > 0)


def serve_nothing(port: int) -> int:
    """An empty POST route at the same path."""

    async def nothing(request: Request) -> Response:
        return JSONResponse({}, 201)

    app = Starlette(routes=[Route("/api/jobs", nothing, methods=["POST"])])
    bound = socket.create_server(("127.0.0.1", port), backlog=2048)
    asyncio.run(uvicorn.Server(http_config(app)).serve(sockets=[bound]))
    return 0


if __name__ == "__main__":
    kind, number, *rest = sys.argv[1:]
    sys.exit(serve_nothing(int(number)) if kind == "empty" else serve_holdbeat(int(number), rest[0], int(rest[1])))
