"""Downloads of what a run left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Routes
from holdbeat.engine.supervisor import artifact_folder
from holdbeat.operations.runs import BYTES, find_artifact, open_artifact

routes = Routes("job runs")
CHUNK = 256 * 1024


@routes.get("/api/job-runs/{id}/artifacts/{name:path}", answers={200: BYTES})
async def get_artifact(request: ApiRequest) -> Response:
    """Download an artifact of a run; `result` is what the handler returned, as JSON."""
    run_id, name = request.id("job run"), request.path("name")
    context = request.context
    data, path, media_type = await context.store.read(find_artifact, run_id, name)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"}
    if data is not None:
        return Response(data, 200, headers, media_type)
    folder = artifact_folder(context.store, context.settings)
    descriptor = await asyncio.to_thread(open_artifact, folder, path, run_id, name)
    headers["Content-Length"] = str(os.fstat(descriptor).st_size)
    return StreamingResponse(_pieces(descriptor), 200, headers, media_type)


async def _pieces(descriptor: int) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(os.read, descriptor, CHUNK):
            yield piece
    finally:
        os.close(descriptor)
