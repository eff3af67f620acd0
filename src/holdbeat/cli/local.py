"""LocalBackend: the store of this machine through its own verbs, answering in the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdbeat.cli.lazy import Lazy
from holdbeat.cli.local_state import LocalState
from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid, NotFound
from holdbeat.domain.views import event_json, group_json, job_json, kept_params, run_json, template_json

if TYPE_CHECKING:
    from holdbeat.domain import group as domain_group
    from holdbeat.domain import submission
    from holdbeat.domain.job import Job
    from holdbeat.domain.submission import Submission
    from holdbeat.store import tracing
    from holdbeat.store.queue import bulk, cancel, groups, manual_retry, templates
    from holdbeat.store.queue import edit_job as change
    from holdbeat.store.queue import move as order
    from holdbeat.store.queue import submission as submitting
    from holdbeat.store.reads import event_log, jobs
    from holdbeat.store.reads import list_jobs as lists
    from holdbeat.store.running import run_output
    from holdbeat.store.transaction import Transaction
else:
    domain_group, submission = Lazy("holdbeat.domain.group"), Lazy("holdbeat.domain.submission")
    submitting = Lazy("holdbeat.store.queue.submission")
    tracing = Lazy("holdbeat.store.tracing")
    bulk = Lazy("holdbeat.store.queue.bulk")
    cancel = Lazy("holdbeat.store.queue.cancel")
    change = Lazy("holdbeat.store.queue.edit_job")
    event_log = Lazy("holdbeat.store.reads.event_log")
    groups = Lazy("holdbeat.store.queue.groups")
    jobs = Lazy("holdbeat.store.reads.jobs")
    lists = Lazy("holdbeat.store.reads.list_jobs")
    manual_retry = Lazy("holdbeat.store.queue.manual_retry")
    order = Lazy("holdbeat.store.queue.move")
    run_output = Lazy("holdbeat.store.running.run_output")
    templates = Lazy("holdbeat.store.queue.templates")


def _page(page: Any, shown: Any) -> Any:
    return {"items": [shown(each) for each in page.items], "next_cursor": page.next_cursor}


def _listed(value: str | Sequence[str] | None) -> list[str] | None:
    if value is None:
        return None
    return [value] if isinstance(value, str) else list(value) or None


def _bulk(result: bulk.BulkResult) -> Any:
    return {"matched": result.matched, "changed": result.changed, "ids": result.ids}


def _submission(given: Any, place: str = "") -> Submission:
    if not isinstance(given, dict):
        raise Invalid(f"{place.rstrip('.') or 'A job'} must be an object.", code="invalid_body", field=place[:-1])
    asked = submission.Submission.read(given, place=place)
    asked.trace = tracing.current_traceparent()
    return asked


class LocalBackend(LocalState):
    # --- jobs ---------------------------------------------------------------------------------------------

    def submit_job(self, request: Mapping[str, Any]) -> Any:
        job = self._write(submitting.submit, [_submission(dict(request))]).jobs[0]
        return job_json(self._read(jobs.load_job, job.id))

    def list_jobs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        type: str | None = None,
        resource: str | None = None,
        schedule_id: str | None = None,
        group_id: str | None = None,
        template_id: str | None = None,
        label: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        filters = {
            "status": _listed(status), "type": type, "resource": resource, "schedule_id": schedule_id,
            "group_id": group_id, "template_id": template_id, "label": _listed(label),
        }  # fmt: skip
        return _page(self._read(lists.list_jobs, filters, limit=limit, cursor=cursor), job_json)

    def get_job(self, job_id: str) -> Any:
        return job_json(self._read(jobs.load_job, job_id))

    def update_job(self, job_id: str, changes: Mapping[str, Any]) -> Any:
        return job_json(self._write(_change, job_id, dict(changes)))

    def cancel_job(self, job_id: str, reason: str | None = None) -> Any:
        return job_json(self._write(cancel.cancel_job, job_id, _reason(reason)))

    def cancel_jobs(self, filter: Mapping[str, Any], *, dry_run: bool = False, reason: str | None = None) -> Any:
        return _bulk(self._write(bulk.cancel_where, filter, _reason(reason), dry_run=dry_run))

    def retry_job(self, job_id: str) -> Any:
        return job_json(self._write(manual_retry.retry_job, job_id))

    def retry_job_runs(self, filter: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        return _bulk(self._write(bulk.retry_where, filter, dry_run=dry_run))

    def move_job(
        self, job_id: str, *, before: str | None = None, after: str | None = None, to: str | int | None = None
    ) -> Any:
        return job_json(self._write(order.move_job, job_id, before=before, after=after, to=to))

    def explain_job(self, job_id: str) -> Any:
        from holdbeat.observe.explain import explain_job

        return self._read(explain_job, job_id)

    def job_events(self, job_id: str, *, limit: int | None = None) -> Any:
        return {"items": self._read(_events_of, job_id, limit or 500), "next_cursor": None}

    def reorder_queue(self, job_ids: Sequence[str]) -> Any:
        return {"items": [job_json(job) for job in self._write(order.reorder, list(job_ids))]}

    # --- runs ---------------------------------------------------------------------------------------------

    def list_job_runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        job_id: str | None = None,
        type: str | None = None,
        error_kind: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        filters = {"status": _listed(status), "job_id": job_id, "type": type, "error_kind": _listed(error_kind)}
        page = self._read(lists.list_runs, filters, limit=limit, cursor=cursor)
        return _page(page, lambda listed: run_json(listed.run, listed.type))

    def get_artifact(self, run_id: str, name: str) -> bytes:
        import json
        from pathlib import Path

        result = self._read(jobs.load_run, run_id).result
        if name == "result" and result is not None:
            return json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
        found = self._read(run_output.read_artifact, run_id, name)
        if found.data is not None:
            return found.data
        try:
            return Path(str(found.path)).read_bytes()
        except OSError as error:
            raise NotFound(
                f"The artifact {name!r} of run {run_id} is recorded, but its file is not there any more."
            ) from error

    # --- groups -------------------------------------------------------------------------------------------

    def create_group(self, request: Mapping[str, Any]) -> Any:
        _check_group(request)
        mode = _choice(domain_group.GroupMode, request["mode"], "mode")
        on_failure = _choice(domain_group.OnFailure, request.get("on_failure", "stop"), "on_failure")
        given = request["jobs"]
        if not isinstance(given, list):
            raise Invalid("jobs must be a list of jobs.", code="invalid_body", field="jobs")
        name = request.get("name")
        members = [_submission(each, f"jobs[{index}].") for index, each in enumerate(given)]
        made = self._write(
            submitting.submit_group, None if name is None else check_line(name, "name", 200), mode, on_failure, members
        )
        return group_json(*made)

    def list_groups(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        def shown(group: Any) -> Any:
            return {key: value for key, value in group_json(group, []).items() if key != "jobs"}

        filters = {"status": _listed(status), "name": name}
        return _page(self._read(lists.list_groups, filters, limit=limit, cursor=cursor), shown)

    def get_group(self, group_id: str) -> Any:
        return group_json(*self._read(groups.load_group, group_id))

    def cancel_group(self, group_id: str, reason: str | None = None) -> Any:
        self._write(cancel.cancel_group, group_id, _reason(reason))
        return self.get_group(group_id)

    # --- templates ----------------------------------------------------------------------------------------

    def create_template(self, request: Mapping[str, Any]) -> Any:
        return template_json(self._write(templates.create_template, request))

    def list_templates(
        self,
        *,
        type: str | None = None,
        archived: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Any:
        wanted: Any = {"true": True, "false": False}.get(archived or "", archived)
        page = self._read(lists.list_templates, {"type": type, "archived": wanted}, limit=limit, cursor=cursor)
        return _page(page, template_json)

    def get_template(self, reference: str) -> Any:
        return template_json(self._read(templates.get_template, reference))

    def update_template(self, reference: str, changes: Mapping[str, Any], *, version: int | None = None) -> Any:
        return template_json(self._write(_change_template, reference, dict(changes), version))

    def archive_template(self, reference: str, *, version: int | None = None) -> Any:
        return template_json(self._write(templates.archive_template, reference, version=version))


_GROUP = ("name", "mode", "on_failure", "jobs")


def _check_group(request: Mapping[str, Any]) -> None:
    """Refuses a group as a server does, in the same words."""
    from holdbeat.domain.schema import near_matches

    for field in request:
        if field not in _GROUP:
            close = near_matches(field, _GROUP, limit=1)
            hint = f" Did you mean {close[0]}?" if close else f" Known are: {', '.join(sorted(_GROUP))}."
            raise Invalid(f"There is no field {field[:100]} here.{hint}", code="unknown_field", field=field)
    for field in ("mode", "jobs"):
        if field not in request:
            raise Invalid(f"The field {field} is missing.", code="missing_field", field=field)


def _choice(kind: Any, value: Any, field: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise Invalid(f"{field} must be one of {', '.join(kind)}.", code="unknown_choice", field=field) from None


def _reason(reason: str | None) -> str | None:
    return None if reason is None else check_line(reason, "reason", 500)


def _change(tx: Transaction, job_id: str, changes: dict[str, Any]) -> Job:
    if isinstance(changes.get("params"), dict):
        job = jobs.load_job(tx, job_id)
        changes = {**changes, "params": kept_params(changes["params"], job.params)}
    return change.change_job(tx, job_id, changes)


def _change_template(tx: Transaction, reference: str, changes: dict[str, Any], version: int | None) -> Any:
    if isinstance(changes.get("default_params"), dict):
        present = templates.get_template(tx, reference)
        kept = kept_params(changes["default_params"], present.default_params, "default_params")
        changes = {**changes, "default_params": kept}
    return templates.patch_template(tx, reference, changes, version=version)


def _events_of(tx: Transaction, job_id: str, limit: int) -> list[Any]:
    jobs.load_job(tx, job_id)
    return [event_json(logged.event) for logged in event_log.events_of_job(tx, job_id, limit)]
