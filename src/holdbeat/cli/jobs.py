"""Verbs about jobs: jobs, show, cancel, retry, move, explain."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdbeat.cli.arguments import INSTANT, json_object, labels, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.completion import job_types
from holdbeat.cli.job_tables import explanation, job_fields, jobs_table
from holdbeat.cli.options import JSON, PRIORITY, WATCH, example, printing, reaching, with_options, words_of
from holdbeat.cli.output import bar, confirm, show, show_list, shown
from holdbeat.domain.errors import HoldbeatError, NotFound
from holdbeat.schemas.jobs import BulkResult, JobStatus

AT_ONCE = 500
"""How many jobs are cancelled in one step."""
CHILDREN_SHOWN = 50
filters = with_options(
    click.option("--status", multiple=True, type=words_of(JobStatus), help="Only this status; may be repeated."),
    click.option("--type", help="Only jobs of this type.", shell_complete=job_types),
    click.option("--resource", help="Only jobs on this resource."),
    click.option("--schedule-id", help="Only jobs of this schedule."),
    click.option("--group-id", help="Only members of this group."),
    click.option("--template-id", help="Only jobs created from this template."),
    click.option("--priority", metavar="N or N..M", help="Only jobs of this priority, or of this range."),
    click.option("--label", multiple=True, metavar="NAME=VALUE", help="Only with this label; may be repeated."),
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print the jobs; change nothing.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command(epilog=example("holdbeat jobs --status FAILED --limit 10", "holdbeat jobs --find fox --watch"))
@click.option("--find", "q", metavar="TEXT", help="Only jobs with this in title, id, type, label or params.")
@click.option("--since", "created_after", type=INSTANT, metavar="WHEN", help="Only jobs created after this time.")
@click.option("--until", "created_before", type=INSTANT, metavar="WHEN", help="Only jobs created before this time.")
@click.option("--order", type=click.Choice(["newest", "oldest"]), help="Which jobs come first (newest).")
@filters
@printing(lambda page: [jobs_table(page["items"])], is_paged=True)
def jobs(backend: Backend, **options: Any) -> Any:
    """List jobs, the newest first."""
    return backend.list_jobs(**without_none(options))


@click.command(epilog=example("holdbeat show 01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"))
@click.argument("job_id", metavar="JOB")
@click.option("--events", "with_events", is_flag=True, help="Print its events too.")
@click.option("--artifact", metavar="NAME", help="Print this artifact of its run, and nothing else.")
@WATCH
@JSON
@reaching
def show_job(
    backend: Backend, job_id: str, with_events: bool, artifact: str | None, watch: float | None, as_json: bool
) -> None:
    """Show a JOB with its run."""
    if artifact is not None:
        run = backend.get_job(job_id)["run"]
        if run is None:
            raise click.UsageError(f"Job {shown(job_id)} has not run, so it has no artifacts.")
        sys.stdout.buffer.write(backend.get_artifact(run["id"], artifact))
        return

    def fetch() -> dict[str, Any]:
        job: dict[str, Any] = dict(backend.get_job(job_id))
        if job["continued_by"] or job["retried_by"]:
            job["newest"] = _newest(backend, job)
        children = backend.list_jobs(parent_id=job["root_id"], limit=CHILDREN_SHOWN)["items"]
        # Of each child the newest job of its chain.
        tips = [child for child in children if child["continued_by"] is None and child["retried_by"] is None]
        if tips:
            job["children"] = [{name: child[name] for name in ("id", "type", "status")} for child in tips]
        steps = backend.list_steps(job_id)["items"]
        if steps:
            job["steps"] = [f"{step['name']} ({step['duration_s']:.3g} s)" for step in steps]
        if with_events:
            job["events"] = backend.job_events(job_id)["items"]
        return job

    def draw(job: dict[str, Any]) -> list[Any]:
        drawn = [job_fields({name: value for name, value in job.items() if name != "events"})]
        drawn += [f"{event['at']} {shown(event['name'])} {shown(event['data'])}" for event in job.get("events", [])]
        return drawn

    show_list(fetch, draw, as_json=as_json, watch=watch)


def _newest(backend: Backend, job: Mapping[str, Any]) -> dict[str, Any]:
    """How the chain of a job that others followed stands now."""
    reasons: Sequence[Any] = backend.explain_job(job["id"])["reasons"]
    following = job["continued_by"] or job["retried_by"]
    newest = backend.get_job(next((each["job_id"] for each in reasons if each["code"] == "newest"), following))
    return {name: newest[name] for name in ("id", "status", "waits")}


@click.command(
    epilog=example("holdbeat cancel JOB --reason 'wrong prompt'", "holdbeat cancel --filter --type story --yes")
)
@click.argument("job_ids", nargs=-1, metavar="[JOB]...")
@click.option("--filter", "by_filter", is_flag=True, help="Cancel all that match the options below.")
@filters
@click.option("--reason", help="The reason, stored with the job.")
@DRY_RUN
@YES
@JSON
@reaching
def cancel(
    backend: Backend,
    job_ids: tuple[str, ...],
    by_filter: bool,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Cancel JOBs, or all that match a filter. A running job is told to stop, and killed when its grace is over."""
    filter_ = _filter(job_ids, by_filter, options)
    if filter_ is None:
        for job_id in job_ids:
            if dry_run:
                show(backend.get_job(job_id), lambda job: [f"{job['id']} {job['status']}"], as_json=as_json)
            else:
                job = backend.cancel_job(job_id, reason)
                show(job, lambda job: [f"{job['id']} {_cancelled(job)}"], as_json=as_json)
        return
    result = backend.cancel_jobs(filter_, dry_run=True)
    if not dry_run:
        confirm(f"{_jobs(result['matched'])} will be cancelled.", yes=yes)
        result = _cancel_all(backend, filter_, result["ids"], reason)
    show(result, lambda outcome: _bulk(outcome, "cancelled", dry_run), as_json=as_json)


def _cancel_all(backend: Backend, filter_: Mapping[str, Any], ids: Sequence[str], reason: str | None) -> BulkResult:
    """Few are cancelled in one step; many in parts, so that others can write meanwhile and a bar can move."""
    if len(ids) <= AT_ONCE:
        return backend.cancel_jobs(filter_, reason=reason)
    cancelled: list[str] = []
    matched = 0
    with bar("Cancel") as report:
        for start in range(0, len(ids), AT_ONCE):
            part = backend.cancel_jobs({**filter_, "ids": ids[start : start + AT_ONCE]}, reason=reason)
            matched += part["matched"]
            cancelled += part["ids"]
            report(start + AT_ONCE, len(ids))
    return {"matched": matched, "changed": len(cancelled), "ids": cancelled}


def _jobs(amount: int) -> str:
    return "1 job" if amount == 1 else f"{amount} jobs"


def _cancelled(job: Mapping[str, Any]) -> str:
    return "CANCELLED" if job["status"] == "CANCELLED" else f"is told to stop (it is {job['status']})"


def _filter(job_ids: tuple[str, ...], by_filter: bool, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The filter, or None if jobs are named."""
    conditions = without_none(options)
    if by_filter:
        if job_ids:
            raise click.UsageError("Name jobs, or use --filter; not both.")
        if not conditions:
            raise click.UsageError("--filter alone would mean all jobs. Say which, e.g. --filter --type story.")
        return {name: list(value) if isinstance(value, tuple) else value for name, value in conditions.items()}
    if conditions:
        raise click.UsageError(f"--{min(conditions).replace('_', '-')} is a filter: say --filter to use it.")
    if not job_ids:
        raise click.UsageError("Say which: a JOB, or --filter with options such as --type story.")
    return None


def _bulk(result: Mapping[str, Any], done: str, dry_run: bool) -> list[Any]:
    if dry_run:
        return [*result["ids"], f"{result['matched']} would be {done}."]
    return [*result["ids"], f"{result['changed']} of {result['matched']} {done}."]


@click.command(epilog=example("holdbeat retry JOB", "holdbeat retry --filter --status FAILED --type embed --yes"))
@click.argument("job_ids", nargs=-1, metavar="[JOB]...")
@click.option("--fresh", is_flag=True, help="Drop all stored steps of its chain.")
@click.option("--from-step", metavar="STEP", help="Drop this step and those stored after it.")
@click.option("--filter", "by_filter", is_flag=True, help="Retry all that match the options below.")
@filters
@click.option("--error-kind", multiple=True, help="Only runs that failed like this, e.g. timeout; may be repeated.")
@DRY_RUN
@YES
@JSON
@reaching
def retry(
    backend: Backend,
    job_ids: tuple[str, ...],
    by_filter: bool,
    fresh: bool,
    from_step: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Retry JOBs that failed, were skipped or cancelled: each as a new job at the end of its priority."""
    filter_ = _filter(job_ids, by_filter, options)
    if filter_ is None and dry_run:
        filter_ = {"ids": list(job_ids)}
    if filter_ is None:
        for job_id in job_ids:
            job = backend.retry_job(job_id, steps="fresh" if fresh else None, from_step=from_step)
            show(job, lambda job: [job["id"]], as_json=as_json)
        return
    if fresh or from_step is not None:
        raise click.UsageError("--fresh and --from-step are about named jobs: leave out --filter.")
    result = backend.retry_job_runs(filter_, dry_run=True)
    if not dry_run:
        confirm(f"{_jobs(result['matched'])} will be retried.", yes=yes)
        # One transaction, however many: a job that somebody else retries meanwhile must not be retried twice.
        with bar("Retry") as report:
            report(0, 1)
            result = backend.retry_job_runs(filter_)
            report(1, 1)
    show(result, lambda outcome: _bulk(outcome, "retried", dry_run), as_json=as_json)


@click.command(epilog=example("holdbeat move JOB --to top", "holdbeat move JOB --before OTHER_JOB"))
@click.argument("job_id", metavar="JOB")
@click.option("--before", metavar="JOB", help="Move it before this job.")
@click.option("--after", metavar="JOB", help="Move it after this job.")
@click.option("--to", metavar="top|bottom|INDEX", help="Move it to the top, the bottom, or an index from 0.")
@printing(lambda job: [f"{job['id']} is at position {job['position']} of priority {job['priority']}."])
def move(backend: Backend, job_id: str, before: str | None, after: str | None, to: str | None) -> Any:
    """Move a QUEUED JOB within its priority."""
    if sum(place is not None for place in (before, after, to)) != 1:
        raise click.UsageError("Say where to: one of --before, --after and --to.")
    place: str | int | None = int(to) if to is not None and to.isascii() and to.isdigit() else to
    return backend.move_job(job_id, before=before, after=after, to=place)


@click.command(epilog=example("holdbeat explain JOB", "holdbeat explain RESERVATION --watch"))
@click.argument("reference", metavar="JOB|RESERVATION")
@printing(explanation, is_watched=True)
def explain(backend: Backend, reference: str) -> Any:
    """Explain why a job or a direct request waits, runs or ended as it did, and when it will probably start."""
    for read in (backend.explain_job, backend.explain_reservation):
        try:
            return read(reference)
        except HoldbeatError as error:
            if error.code != "not_found":
                raise
    raise NotFound(f"There is no job and no direct request {shown(reference)}.")


@click.command(epilog=example("holdbeat change JOB --priority 20", "holdbeat change JOB --params @params.json"))
@click.argument("job_id", metavar="JOB")
@PRIORITY
@click.option("--params", "source", metavar="JSON|@FILE|-", help="Replace all params, as a JSON object.")
@click.option(
    "--not-before",
    type=INSTANT,
    metavar="INSTANT|none",
    help="Not before this instant; none: as soon as possible. Moves or ends a sleep.",
)
@click.option("--label", "label_words", multiple=True, metavar="NAME=VALUE", help="Replace all labels.")
@printing(lambda job: [job_fields(job)])
def change(
    backend: Backend,
    job_id: str,
    priority: int | None,
    source: str | None,
    not_before: str | None,
    label_words: tuple[str, ...],
) -> Any:
    """Change a JOB that is still QUEUED."""
    changes: dict[str, Any] = without_none({"priority": priority, "labels": labels(label_words) or None})
    if source is not None:
        changes["params"] = json_object(source, what="--params")
    if not_before is not None:
        changes["not_before"] = None if not_before == "none" else not_before
    if not changes:
        raise click.UsageError("Say what to change: --priority, --params, --not-before or --label.")
    return backend.update_job(job_id, changes)
