"""JobRuns and what they left behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from holdbeat.api.problem import answer, encode
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.jobs import bulk_json, read_filter, read_flag
from holdbeat.api.routes import CURSOR, LIMIT, Parameter, Routes
from holdbeat.api.schemas.jobs import BulkResult, BulkRetryRequest, Job, JobRun, JobRunPage
from holdbeat.domain.errors import NotFound
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.run import JobRun as DomainRun
from holdbeat.domain.views import job_json, run_json
from holdbeat.engine.supervisor import artifact_folder
from holdbeat.store.artifact_files import changed
from holdbeat.store.queue.bulk import retry_where
from holdbeat.store.queue.manual_retry import retry_run
from holdbeat.store.reads.jobs import load_run
from holdbeat.store.reads.list_jobs import list_runs
from holdbeat.store.running.run_output import read_artifact
from holdbeat.store.transaction import Transaction

routes = Routes("job runs")
CHUNK = 256 * 1024
_STATUS = ("RUNNING", "COMPLETED", "FAILED", "SKIPPED")
_TEXT = {"type": "string", "minLength": 1, "maxLength": 500}


@routes.get(
    "/api/job-runs",
    answers={200: JobRunPage},
    parameters=(
        Parameter("status", "RUNNING finds those that have not ended.", {"enum": list(_STATUS)}, is_multiple=True),
        Parameter("job_id", "Only the run of this job.", _TEXT),
        Parameter("type", "Only runs of this type.", _TEXT),
        Parameter("error_kind", "Only runs that failed like this.", {"enum": list(ErrorKind)}, is_multiple=True),
        LIMIT,
        CURSOR,
    ),
)
async def list_job_runs(call: ApiRequest) -> Response:
    """List runs, the newest first."""
    filters = {
        "status": call.choices("status", _STATUS) or None,
        "error_kind": call.choices("error_kind", ErrorKind) or None,
        "job_id": call.text("job_id"),
        "type": call.text("type"),
    }
    page = await call.service.store.read(list_runs, filters, limit=call.limit, cursor=call.cursor)
    return answer({"items": [run_json(each.run, each.type) for each in page.items], "next_cursor": page.next_cursor})


@routes.post("/api/job-runs/retry", body=BulkRetryRequest, answers={200: BulkResult})
async def retry_job_runs(call: ApiRequest) -> Response:
    """Try again every job that a filter finds among those that failed or were skipped."""
    given = await call.fields(("filter", "dry_run"), required=("filter",))
    result = await call.service.store.write(retry_where, read_filter(given), dry_run=read_flag(given, "dry_run"))
    return answer(bulk_json(result))


@routes.get("/api/job-runs/{id}", answers={200: JobRun})
async def get_job_run(call: ApiRequest) -> Response:
    """Read one run."""
    run, type_ = await call.service.store.read(_run_and_type, call.id("job run"))
    return answer(run_json(run, type_))


def _run_and_type(tx: Transaction, run_id: str) -> tuple[DomainRun, str]:
    run = load_run(tx, run_id)
    row = tx.one("SELECT type FROM job_runs WHERE id = :id", id=run_id)
    # A run without a type is shown as the most secretive one.
    return run, (str(row[0]) if row and row[0] else "http")


@routes.post("/api/job-runs/{id}/retry", answers={201: Job}, refuses=(400, 409, 413))
async def retry_job_run(call: ApiRequest) -> Response:
    """Try the job of a run again that failed or was skipped."""
    run_id = call.id("job run")
    await call.fields((), may_be_empty=True)
    job = await call.service.store.write(retry_run, run_id)
    return answer(job_json(job), 201, {"Location": f"/api/jobs/{job.id}"})


@routes.get("/api/job-runs/{id}/artifacts/{name:path}", answers={200: "application/octet-stream"})
async def get_artifact(call: ApiRequest) -> Response:
    """Download an artifact of a run; `result` is what the handler returned, as JSON."""
    run_id = call.id("job run")
    name = call.path("name")
    run = await call.service.store.read(load_run, run_id)
    if name == "result" and run.result is not None:
        return _download(encode(run.result), name, "application/json")
    found = await call.service.store.read(read_artifact, run_id, name)
    if found.data is not None:
        return _download(found.data, name)
    folder = artifact_folder(call.service.store, call.service.settings)
    if folder is None or found.path is None:
        raise _gone(run_id, name)
    descriptor = await asyncio.to_thread(_open_inside, folder, Path(found.path))
    if descriptor is None:
        raise _gone(run_id, name)
    if await asyncio.to_thread(_checksum, descriptor) != found.sha256:
        os.close(descriptor)
        raise changed(run_id, name)
    headers = {**_as_attachment(name), "Content-Length": str(found.size)}
    return StreamingResponse(_pieces(descriptor, found.sha256), 200, headers, "application/octet-stream")


def _gone(run_id: str, name: str) -> NotFound:
    return NotFound(f"The artifact {name!r} of run {run_id} is recorded, but its file is not there any more.")


def _download(content: bytes, name: str, media_type: str = "application/octet-stream") -> Response:
    return Response(content, 200, _as_attachment(name), media_type)


def _as_attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"}


def _open_inside(folder: Path, path: Path) -> int | None:
    """Opens a plain file that really lies within the folder; None for anything else, links included."""
    try:
        if path.is_symlink() or not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


def _checksum(descriptor: int) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := os.pread(descriptor, CHUNK, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()


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
