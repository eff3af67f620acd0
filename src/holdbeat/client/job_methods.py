"""Jobs, runs, the queue, groups and templates, as methods of the client."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.client.method import calls, segment, sent, written_once
from holdbeat.schemas.base import Items, Page
from holdbeat.schemas.durable import JobGraph, Question, Signal, Step
from holdbeat.schemas.jobs import (
    BulkResult,
    Explanation,
    GroupSummary,
    Job,
    JobGroup,
    JobRun,
    JobTemplate,
    LogLine,
    PauseList,
    QueuePage,
)
from holdbeat.schemas.system import Chunk, Event


class JobMethods:
    @written_once
    def submit(self: Any, /, type: str | None = None, params: Mapping[str, Any] | None = None, **fields: Any) -> Job:
        """Submits a job: `submit("story", {"prompt": "a fox"}, priority=5)` or `submit(template="nightly")`."""
        return self.submit_job({**sent(type=type, params=params), **fields})

    @written_once
    def submit_job(self: Any, request: Mapping[str, Any]) -> Job:
        """Submits a job. Without an idempotency key it gets one, so that a lost answer cannot make a second job."""
        body = dict(request)
        key = _key_of(request)
        body.pop("idempotency_key", None)
        headers = {}
        if isinstance(key, str) and key and key.isascii() and key.isprintable() and " " not in key:
            headers["Idempotency-Key"] = key
        else:
            body["idempotency_key"] = key
        return self._call("POST", "/api/jobs", body=body, headers=headers, is_repeatable=True)

    @written_once
    def submit_jobs(self: Any, requests: Sequence[Mapping[str, Any]]) -> Items[Job]:
        """Submits several jobs in one transaction: all or none."""
        keyed = [{**request, "idempotency_key": _key_of(request)} for request in requests]
        return self._call("POST", "/api/jobs/batch", body={"jobs": keyed}, is_repeatable=True)

    @calls("GET", "/api/jobs")
    def list_jobs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        type: str | None = None,
        resource: str | None = None,
        schedule_id: str | None = None,
        group_id: str | None = None,
        template_id: str | None = None,
        parent_id: str | None = None,
        label: str | Sequence[str] | None = None,
        priority: int | str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        q: str | None = None,
        order: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Lists jobs, the newest first or by `order` the oldest; `q` is a part of title, id, type, label or param."""

    @calls("GET", "/api/jobs/{job_id}")
    def get_job(self, job_id: str) -> Job:
        """Reads one job."""

    @calls("PATCH", "/api/jobs/{job_id}", body="changes", is_repeatable=True)
    def update_job(self, job_id: str, changes: Mapping[str, Any]) -> Job:
        """Changes priority, params, not_before or labels of a job that is still QUEUED."""

    @calls("POST", "/api/jobs/{job_id}/cancel")
    def cancel_job(self, job_id: str, reason: str | None = None) -> Job:
        """Cancels a job: one that waits never runs, the handler of one that runs is told to stop."""

    @calls("POST", "/api/jobs/cancel", is_repeatable="dry_run")
    def cancel_jobs(self, filter: Mapping[str, Any], *, dry_run: bool = False, reason: str | None = None) -> BulkResult:
        """Cancels every unfinished job that the filter finds."""

    @calls("GET", "/api/jobs/{job_id}/steps")
    def list_steps(self, job_id: str) -> Items[Step]:
        """Lists the steps that a job's chain has kept, in order; long values are cut."""

    @calls("GET", "/api/questions")
    def list_questions(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Question]:
        """Lists the questions that handlers ask and nobody has answered, the oldest first."""

    @calls("POST", "/api/questions/{question_id}/answer")
    def answer_question(self, question_id: str, answer: Any) -> Question:
        """Answers a question; the handler that asked it goes on."""

    @calls("GET", "/api/jobs/{job_id}/graph")
    def get_graph(self, job_id: str) -> JobGraph:
        """Reads the graph around a job: what it depends on, what depends on it, and so on in both directions."""

    @calls("POST", "/api/jobs/{job_id}/signals/{name}")
    def send_signal(self, job_id: str, name: str, payload: Any = None) -> Signal:
        """Sends a signal to a job's chain; it stays there until a handler waits for it."""

    @calls("POST", "/api/jobs/{job_id}/retry")
    def retry_job(self, job_id: str, *, steps: str | None = None, from_step: str | None = None) -> Job:
        """Makes a new job from one that failed, was skipped or was cancelled. It keeps the steps of its chain, unless
        `steps` is "fresh", or `from_step` names the one to begin again at."""

    @calls("POST", "/api/jobs/{job_id}/rerun")
    def rerun_job(self, job_id: str, *, from_step: str | None = None) -> Job:
        """Runs a chain that has ended once more, from its start or from a step: a new chain with copies of the steps
        kept before that one."""

    @calls("POST", "/api/jobs/{job_id}/move")
    def move_job(
        self, job_id: str, *, before: str | None = None, after: str | None = None, to: str | int | None = None
    ) -> Job:
        """Moves a QUEUED job within its priority; `to` is top, bottom or an index."""

    @calls("GET", "/api/jobs/{job_id}/explain")
    def explain_job(self, job_id: str) -> Explanation:
        """Says why a job waits or failed, and when it will probably start."""

    @calls("GET", "/api/jobs/{job_id}/events")
    def job_events(self, job_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Event]:
        """Lists what the scheduler decided about a job, in order."""

    # --- logs ---------------------------------------------------------------------------------------------

    @calls("GET", "/api/jobs/{job_id}/logs")
    def get_logs(
        self, job_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[LogLine]:
        """Reads the log of a job; `after` is the number of the last line that is known already."""

    @calls("GET", "/api/jobs/{job_id}/chunks")
    def get_chunks(
        self, job_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Chunk]:
        """Reads what the handler of a job emitted."""

    # --- the queue ----------------------------------------------------------------------------------------

    @calls("GET", "/api/queue")
    def get_queue(
        self, *, resource: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> QueuePage:
        """Lists the queue in the order in which it will be claimed."""

    @calls("POST", "/api/queue/reorder", is_repeatable=True)
    def reorder_queue(self, job_ids: Sequence[str]) -> Items[Job]:
        """Puts QUEUED jobs of one priority into this order, on the places that they have together."""

    @calls("POST", "/api/queue/pause", is_repeatable=True)
    def pause_queue(self, resource: str | None = None, *, reason: str | None = None) -> PauseList:
        """Starts no more jobs, of one resource or of all. Running jobs go on."""

    @calls("POST", "/api/queue/resume", is_repeatable=True)
    def resume_queue(self, resource: str | None = None) -> PauseList:
        """Ends the pause of one resource, or the pause of all."""

    # --- runs ---------------------------------------------------------------------------------------------

    @calls("GET", "/api/job-runs")
    def list_job_runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        job_id: str | None = None,
        type: str | None = None,
        error_kind: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobRun]:
        """Lists runs, the newest first."""

    @calls("GET", "/api/job-runs/{run_id}")
    def get_job_run(self, run_id: str) -> JobRun:
        """Reads one run: its times, its result or error, and the names of its artifacts."""

    @calls("POST", "/api/job-runs/{run_id}/retry")
    def retry_job_run(self, run_id: str) -> Job:
        """Makes a new job from the job of a run that failed or was skipped."""

    @calls("POST", "/api/job-runs/retry", is_repeatable="dry_run")
    def retry_job_runs(self, filter: Mapping[str, Any], *, dry_run: bool = False) -> BulkResult:
        """Retries every ended job that the filter finds."""

    @written_once
    def get_artifact(self: Any, run_id: str, name: str) -> bytes:
        """Reads an artifact of a run."""
        path = "/".join(segment(part) for part in name.split("/"))
        return self.fetch("GET", f"/api/job-runs/{segment(run_id)}/artifacts/{path}")

    # --- groups -------------------------------------------------------------------------------------------

    @calls("POST", "/api/job-groups", body="request")
    def create_group(self, request: Mapping[str, Any]) -> JobGroup:
        """Submits several jobs as a group: `{mode, jobs, name?, on_failure?}`."""

    @calls("GET", "/api/job-groups")
    def list_groups(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[GroupSummary]:
        """Lists groups, the newest first."""

    @calls("GET", "/api/job-groups/{group_id}")
    def get_group(self, group_id: str) -> JobGroup:
        """Reads a group and its jobs."""

    @calls("POST", "/api/job-groups/{group_id}/cancel")
    def cancel_group(self, group_id: str, reason: str | None = None) -> JobGroup:
        """Cancels every unfinished job of a group."""

    # --- templates ----------------------------------------------------------------------------------------

    @calls("POST", "/api/job-templates", body="request")
    def create_template(self, request: Mapping[str, Any]) -> JobTemplate:
        """Makes a template: `{name, type, default_params?, ...}`."""

    @calls("GET", "/api/job-templates")
    def list_templates(
        self,
        *,
        type: str | None = None,
        archived: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobTemplate]:
        """Lists templates, the newest first; `archived` is true, false or all."""

    @calls("GET", "/api/job-templates/{reference}")
    def get_template(self, reference: str) -> JobTemplate:
        """Reads a template by its id or its name."""

    @calls("PATCH", "/api/job-templates/{reference}", body="changes")
    def update_template(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> JobTemplate:
        """Changes a template. With `version` the change is refused if somebody else changed it since."""

    @calls("DELETE", "/api/job-templates/{reference}")
    def archive_template(self, reference: str, *, version: int | None = None) -> JobTemplate:
        """Archives a template: it makes no new jobs, and its schedules are disabled."""


def _key_of(request: Mapping[str, Any]) -> Any:
    key = request.get("idempotency_key")
    return str(uuid.uuid4()) if key is None else key
