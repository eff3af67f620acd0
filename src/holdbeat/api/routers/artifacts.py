"""Downloads of what a run left behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Routes
from holdbeat.engine.supervisor import artifact_folder
from holdbeat.operations.runs import BYTES, CHUNK, find_artifact, open_artifact

routes = Routes("job runs")


@routes.get("/api/job-runs/{id}/artifacts/{name:path}", answers={200: BYTES})
async def get_artifact(request: ApiRequest) -> Response:
    """Download an artifact of a run; `result` is what the handler returned, as JSON."""
    run_id, name = await request.id("job run"), request.path("name")
    context = request.context
    artifact = await context.store.read_for_client(find_artifact, run_id, name)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"}
    if artifact.data is not None:
        return Response(artifact.data, 200, headers, artifact.media_type)
    folder = artifact_folder(context.store, context.settings)
    descriptor = await asyncio.to_thread(open_artifact, folder, artifact, run_id, name)
    headers["Content-Length"] = str(os.fstat(descriptor).st_size)
    return StreamingResponse(_pieces(descriptor, artifact.sha256), 200, headers, artifact.media_type)


async def _pieces(descriptor: int, sha256: str) -> AsyncIterator[bytes]:
    """The content, whose last piece is sent only if nobody has changed the file since it was checked."""
    digest = hashlib.sha256()
    last = b""
    try:
        while piece := await asyncio.to_thread(os.read, descriptor, CHUNK):
            digest.update(piece)
            if last:
                yield last
            last = piece
        if digest.hexdigest() != sha256:
            raise OSError("an artifact was changed while it was sent")
        if last:
            yield last
    finally:
        os.close(descriptor)
