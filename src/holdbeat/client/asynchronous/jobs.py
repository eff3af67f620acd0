"""Jobs, runs, the queue, groups and templates, as methods of the client."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from holdbeat.client.asynchronous.transport import AsyncTransport, if_match, segment, sent
from holdbeat.schemas.base import Items, Page
from holdbeat.schemas.durable import JobGraph, Question, Signal, Step
from holdbeat.schemas.jobs import (
    TERMINAL,
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


def _key_of(request: Mapping[str, Any]) -> Any:
    key = request.get("idempotency_key")
    return str(uuid.uuid4()) if key is None else key


class AsyncJobs(AsyncTransport):
    # --- jobs ---------------------------------------------------------------------------------------------

    async def submit(self, type: str | None = None, params: Mapping[str, Any] | None = None, **fields: Any) -> Job:
        """Submits a job: `submit("story", {"prompt": "a fox"}, priority=5)` or `submit(template="nightly")`."""
        return await self.submit_job({**sent(type=type, params=params), **fields})

    async def submit_job(self, request: Mapping[str, Any]) -> Job:
        """Submits a job. Without an idempotency key it gets one, so that a lost answer cannot make a second job."""
        body = dict(request)
        key = _key_of(request)
        body.pop("idempotency_key", None)
        headers = {}
        if isinstance(key, str) and key and key.isascii() and key.isprintable() and " " not in key:
            headers["Idempotency-Key"] = key
        else:
            body["idempotency_key"] = key
        return await self.call("POST", "/api/jobs", body=body, headers=headers, is_repeatable=True)

    async def submit_jobs(self, requests: Sequence[Mapping[str, Any]]) -> Items[Job]:
        """Submits several jobs in one transaction: all or none."""
        keyed = [{**request, "idempotency_key": _key_of(request)} for request in requests]
        return await self.call("POST", "/api/jobs/batch", body={"jobs": keyed}, is_repeatable=True)

    async def list_jobs(
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
        query = {
            "status": status, "type": type, "resource": resource, "schedule_id": schedule_id, "group_id": group_id,
            "template_id": template_id, "parent_id": parent_id, "label": label, "priority": priority,
            "created_after": created_after,
            "created_before": created_before, "q": q, "order": order, "limit": limit, "cursor": cursor,
        }  # fmt: skip
        return await self.call("GET", "/api/jobs", query=query)

    async def get_job(self, job_id: str) -> Job:
        """Reads one job."""
        return await self.call("GET", f"/api/jobs/{segment(job_id)}")

    async def update_job(self, job_id: str, changes: Mapping[str, Any]) -> Job:
        """Changes priority, params, not_before or labels of a job that is still QUEUED."""
        return await self.call("PATCH", f"/api/jobs/{segment(job_id)}", body=changes, is_repeatable=True)

    async def cancel_job(self, job_id: str, reason: str | None = None) -> Job:
        """Cancels a job: one that waits never runs, the handler of one that runs is told to stop."""
        return await self.call("POST", f"/api/jobs/{segment(job_id)}/cancel", body=sent(reason=reason))

    async def cancel_jobs(
        self, filter: Mapping[str, Any], *, dry_run: bool = False, reason: str | None = None
    ) -> BulkResult:
        """Cancels every unfinished job that the filter finds."""
        body = {"filter": filter, "dry_run": dry_run, **sent(reason=reason)}
        return await self.call("POST", "/api/jobs/cancel", body=body, is_repeatable=dry_run)

    async def list_steps(self, job_id: str) -> Items[Step]:
        """Lists the steps that a job's chain has kept, in order; long values are cut."""
        return await self.call("GET", f"/api/jobs/{segment(job_id)}/steps")

    async def list_questions(self) -> Items[Question]:
        """Lists the questions that handlers ask and nobody has answered, the oldest first; at most 500."""
        return await self.call("GET", "/api/questions")

    async def answer_question(self, question_id: str, answer: Any) -> Question:
        """Answers a question; the handler that asked it goes on."""
        path = f"/api/questions/{segment(question_id)}/answer"
        return await self.call("POST", path, body={"answer": answer})

    async def get_graph(self, job_id: str) -> JobGraph:
        """Reads the graph around a job: what it depends on, what depends on it, and so on in both directions."""
        return await self.call("GET", f"/api/jobs/{segment(job_id)}/graph")

    async def send_signal(self, job_id: str, name: str, payload: Any = None) -> Signal:
        """Sends a signal to a job's chain; it stays there until a handler waits for it."""
        path = f"/api/jobs/{segment(job_id)}/signals/{segment(name)}"
        return await self.call("POST", path, body={"payload": payload})

    async def retry_job(self, job_id: str, *, steps: str | None = None, from_step: str | None = None) -> Job:
        """Makes a new job from one that failed, was skipped or was cancelled. It keeps the steps of its chain, unless
        `steps` is "fresh", or `from_step` names the one to begin again at."""
        body = sent(steps=steps, from_step=from_step)
        return await self.call("POST", f"/api/jobs/{segment(job_id)}/retry", body=body or None)

    async def rerun_job(self, job_id: str, *, from_step: str | None = None) -> Job:
        """Runs a chain that has ended once more, from its start or from a step: a new chain with copies of the steps
        kept before that one."""
        return await self.call("POST", f"/api/jobs/{segment(job_id)}/rerun", body=sent(from_step=from_step))

    async def move_job(
        self, job_id: str, *, before: str | None = None, after: str | None = None, to: str | int | None = None
    ) -> Job:
        """Moves a QUEUED job within its priority; `to` is top, bottom or an index."""
        body = sent(before=before, after=after, to=to)
        return await self.call("POST", f"/api/jobs/{segment(job_id)}/move", body=body)

    async def explain_job(self, job_id: str) -> Explanation:
        """Says why a job waits or failed, and when it will probably start."""
        return await self.call("GET", f"/api/jobs/{segment(job_id)}/explain")

    async def job_events(self, job_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Event]:
        """Lists what the scheduler decided about a job, in order."""
        query = {"limit": limit, "cursor": cursor}
        return await self.call("GET", f"/api/jobs/{segment(job_id)}/events", query=query)

    async def wait_job(self, job_id: str, *, timeout_s: float | None = None, with_retries: bool = True) -> Job:
        """Waits until the job has ended, and with it every automatic retry; returns the last of them.

        Raises TimeoutError when `timeout_s` is over; the job goes on.
        """
        until = self.deadline(timeout_s)
        while True:
            # Whatever the stream says, comments included, is a reason to look: none is needed to come.
            async with aclosing(self.messages("/api/events", query={"job_id": job_id}, until=until)) as messages:
                try:
                    async for _ in messages:
                        job = await self.get_job(job_id)
                        if job["status"] in TERMINAL:
                            break
                except TimeoutError:
                    raise TimeoutError(f"job {job_id} has not ended within {timeout_s:g} s; it goes on") from None
            following = job["continued_by"] or (job["retried_by"] if with_retries else None)
            if following is None:
                return job
            job_id = following

    # --- logs ---------------------------------------------------------------------------------------------

    async def get_logs(
        self, job_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[LogLine]:
        """Reads the log of a job; `after` is the number of the last line that is known already."""
        query = {"after": after, "limit": limit, "cursor": cursor}
        return await self.call("GET", f"/api/jobs/{segment(job_id)}/logs", query=query)

    def follow_logs(self, job_id: str, *, after: int = 0) -> AsyncGenerator[LogLine, None]:
        """Yields lines of the log as they are written, each once, until the run has ended."""
        return self._follow(f"/api/jobs/{segment(job_id)}/logs", "log", after)

    async def get_chunks(
        self, job_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Chunk]:
        """Reads what the handler of a job emitted."""
        query = {"after": after, "limit": limit, "cursor": cursor}
        return await self.call("GET", f"/api/jobs/{segment(job_id)}/chunks", query=query)

    def follow_chunks(self, job_id: str, *, after: int = 0) -> AsyncGenerator[Chunk, None]:
        """Yields what the handler of a job emits, as it does so, until the run has ended."""
        return self._follow(f"/api/jobs/{segment(job_id)}/chunks", "chunk", after)

    # --- the queue ----------------------------------------------------------------------------------------

    async def get_queue(
        self, *, resource: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> QueuePage:
        """Lists the queue in the order in which it will be claimed."""
        query = {"resource": resource, "limit": limit, "cursor": cursor}
        return await self.call("GET", "/api/queue", query=query)

    async def reorder_queue(self, job_ids: Sequence[str]) -> Items[Job]:
        """Puts QUEUED jobs of one priority into this order, on the places that they have together."""
        return await self.call("POST", "/api/queue/reorder", body={"job_ids": list(job_ids)}, is_repeatable=True)

    async def pause_queue(self, resource: str | None = None, *, reason: str | None = None) -> PauseList:
        """Starts no more jobs, of one resource or of all. Running jobs go on."""
        body = sent(resource=resource, reason=reason)
        return await self.call("POST", "/api/queue/pause", body=body, is_repeatable=True)

    async def resume_queue(self, resource: str | None = None) -> PauseList:
        """Ends the pause of one resource, or the pause of all."""
        return await self.call("POST", "/api/queue/resume", body=sent(resource=resource), is_repeatable=True)

    # --- runs ---------------------------------------------------------------------------------------------

    async def list_job_runs(
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
        query = {
            "status": status, "job_id": job_id, "type": type, "error_kind": error_kind, "limit": limit,
            "cursor": cursor,
        }  # fmt: skip
        return await self.call("GET", "/api/job-runs", query=query)

    async def get_job_run(self, run_id: str) -> JobRun:
        """Reads one run: its times, its result or error, and the names of its artifacts."""
        return await self.call("GET", f"/api/job-runs/{segment(run_id)}")

    async def retry_job_run(self, run_id: str) -> Job:
        """Makes a new job from the job of a run that failed or was skipped."""
        return await self.call("POST", f"/api/job-runs/{segment(run_id)}/retry")

    async def retry_job_runs(self, filter: Mapping[str, Any], *, dry_run: bool = False) -> BulkResult:
        """Retries every ended job that the filter finds."""
        body = {"filter": filter, "dry_run": dry_run}
        return await self.call("POST", "/api/job-runs/retry", body=body, is_repeatable=dry_run)

    async def get_artifact(self, run_id: str, name: str) -> bytes:
        """Reads an artifact of a run."""
        path = "/".join(segment(part) for part in name.split("/"))
        return await self.fetch("GET", f"/api/job-runs/{segment(run_id)}/artifacts/{path}")

    # --- groups -------------------------------------------------------------------------------------------

    async def create_group(self, request: Mapping[str, Any]) -> JobGroup:
        """Submits several jobs as a group: `{mode, jobs, name?, on_failure?}`."""
        return await self.call("POST", "/api/job-groups", body=request)

    async def list_groups(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[GroupSummary]:
        """Lists groups, the newest first."""
        query = {"status": status, "name": name, "limit": limit, "cursor": cursor}
        return await self.call("GET", "/api/job-groups", query=query)

    async def get_group(self, group_id: str) -> JobGroup:
        """Reads a group and its jobs."""
        return await self.call("GET", f"/api/job-groups/{segment(group_id)}")

    async def cancel_group(self, group_id: str, reason: str | None = None) -> JobGroup:
        """Cancels every unfinished job of a group."""
        body = sent(reason=reason)
        return await self.call("POST", f"/api/job-groups/{segment(group_id)}/cancel", body=body)

    # --- templates ----------------------------------------------------------------------------------------

    async def create_template(self, request: Mapping[str, Any]) -> JobTemplate:
        """Makes a template: `{name, type, default_params?, ...}`."""
        return await self.call("POST", "/api/job-templates", body=request)

    async def list_templates(
        self,
        *,
        type: str | None = None,
        archived: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobTemplate]:
        """Lists templates, the newest first; `archived` is true, false or all."""
        query = {"type": type, "archived": archived, "limit": limit, "cursor": cursor}
        return await self.call("GET", "/api/job-templates", query=query)

    async def get_template(self, reference: str) -> JobTemplate:
        """Reads a template by its id or its name."""
        return await self.call("GET", f"/api/job-templates/{segment(reference)}")

    async def update_template(
        self, reference: str, changes: Mapping[str, Any], *, version: int | None = None
    ) -> JobTemplate:
        """Changes a template. With `version` the change is refused if somebody else changed it since."""
        path = f"/api/job-templates/{segment(reference)}"
        return await self.call("PATCH", path, body=changes, headers=if_match(version))

    async def archive_template(self, reference: str, *, version: int | None = None) -> JobTemplate:
        """Archives a template: it makes no new jobs, and its schedules are disabled."""
        path = f"/api/job-templates/{segment(reference)}"
        return await self.call("DELETE", path, headers=if_match(version))
