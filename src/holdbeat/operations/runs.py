"""Operations on job runs, and their artifacts."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdbeat.domain.bounds import check_flag
from holdbeat.domain.errors import NotFound
from holdbeat.domain.views import form, job_json, run_json
from holdbeat.operations.checks import check_filter, guard_shell_retry, id_of, page_json, several
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas.jobs import BulkResult
from holdbeat.store.artifact_files import changed
from holdbeat.store.jobs import bulk, manual_retry
from holdbeat.store.reads.jobs import load_run_and_type
from holdbeat.store.reads.list_jobs import list_runs
from holdbeat.store.reads.rows import RUNS
from holdbeat.store.running.run_output import read_artifact
from holdbeat.store.transaction import Transaction

BYTES = "application/octet-stream"
CHUNK = 256 * 1024


@reads
def list_job_runs(
    tx: Transaction,
    context: OperationContext,
    *,
    status: str | Sequence[str] | None = None,
    job_id: str | None = None,
    type: str | None = None,
    error_kind: str | Sequence[str] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """List runs, the newest first."""
    filters = {
        "status": several(status),
        "error_kind": several(error_kind),
        "job_id": job_id,
        "type": type,
    }
    page = list_runs(tx, filters, limit=limit, cursor=cursor)
    return page_json(page, lambda listed: run_json(listed.run, listed.type))


@reads
def get_job_run(tx: Transaction, context: OperationContext, run_id: str) -> Any:
    """Read one run."""
    run, type_ = load_run_and_type(tx, id_of(tx, run_id, "job run"))
    # Params of a run whose type is not known are shown as those of the type with secrets.
    return run_json(run, type_ or "http")


@writes
def retry_job_run(tx: Transaction, context: OperationContext, run_id: str) -> Any:
    """Retry the job of a run that failed or was skipped."""
    run = RUNS.get(tx, id_of(tx, run_id, "job run"))
    guard_shell_retry(tx, context, run.job_id)
    return job_json(manual_retry.retry_job(tx, run.job_id))


@writes
def retry_job_runs(
    tx: Transaction, context: OperationContext, filter: Mapping[str, Any], *, dry_run: bool = False
) -> Any:
    """Retry every job that matches a filter among those that failed or were skipped."""
    filters = check_filter(filter)
    is_dry_run = check_flag(dry_run, "dry_run")
    result = bulk.retry_where(tx, filters, is_dry_run, with_own_shell_jobs=context.is_admin)
    return form(result, BulkResult)


class ArtifactContent(NamedTuple):
    """The content of an artifact, or the path of its file with the checksum that it had when it was stored."""

    data: bytes | None
    path: str | None
    sha256: str
    media_type: str


def find_artifact(tx: Transaction, run_id: str, name: str) -> ArtifactContent:
    """Finds an artifact of a run; `result` is what the handler returned."""
    run = RUNS.get(tx, id_of(tx, run_id, "job run"))
    if name == "result" and run.result is not None:
        content = json.dumps(run.result, ensure_ascii=False, separators=(",", ":"))
        return ArtifactContent(content.encode("utf-8", "replace"), None, "", "application/json")
    artifact = read_artifact(tx, run.id, name)
    return ArtifactContent(artifact.data, artifact.path, artifact.sha256, BYTES)


def open_artifact(folder: Path | None, artifact: ArtifactContent, run_id: str, name: str) -> int:
    """Opens an artifact's file for reading: a plain file in the folder, no link, unchanged since it was stored."""
    missing = NotFound(f"The artifact {name!r} of run {run_id} is recorded, but its file is not there any more.")
    if folder is None or artifact.path is None:
        raise missing
    file = Path(artifact.path)
    try:
        if file.is_symlink() or not file.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            raise missing
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        raise missing from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise missing
    if _checksum(descriptor) != artifact.sha256:
        os.close(descriptor)
        raise changed(run_id, name)
    return descriptor


def _checksum(descriptor: int) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := os.pread(descriptor, CHUNK, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
