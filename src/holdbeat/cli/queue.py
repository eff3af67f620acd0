"""Verbs about the queue: list, pause, resume, reorder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.job_tables import jobs_table, pause_lines, queue_table
from holdbeat.cli.options import JSON, ListingGroup, example, printing, reaching
from holdbeat.cli.output import show, shown


@click.group(
    cls=ListingGroup, epilog=example("holdbeat queue list --resource ollama", "holdbeat queue pause --reason 'upgrade'")
)
def queue() -> None:
    """List, reorder, pause and resume the queue."""


@queue.command("list", epilog=example("holdbeat queue list --watch"))
@click.option("--resource", help="Only jobs on this resource.")
@printing(queue_table, is_paged=True)
def list_queue(backend: Backend, **filters: Any) -> Any:
    """List the queue in the order in which it will be claimed, with what each job waits for."""
    return backend.get_queue(**filters)


def _pauses(answer: Mapping[str, Any]) -> list[Any]:
    return pause_lines(answer["paused"]) or ["Nothing is paused."]


@queue.command("pause", epilog=example("holdbeat queue pause --resource ollama --reason 'model upgrade'"))
@click.option("--resource", help="Only this resource (everything).")
@click.option("--reason", help="The reason, shown with the pause.")
@JSON
@reaching
def pause(backend: Backend, resource: str | None, reason: str | None, as_json: bool) -> None:
    """Start no more jobs. Running jobs and direct requests continue."""
    show(backend.pause_queue(resource, reason=reason), _pauses, as_json=as_json)
    if resource is not None:
        _warn_of_unused(backend, resource)


def _warn_of_unused(backend: Backend, resource: str) -> None:
    """A resource may be paused before anything uses it; but if nothing does, it is more likely misspelt."""
    resources = {job_type["defaults"]["resource"] for job_type in backend.job_types()["items"]}
    resources |= set(backend.stats()["resources"])
    resources |= {name for worker in backend.workers()["items"] for name in worker["resources"] or ()}
    if resource in resources or backend.list_jobs(resource=resource, limit=1)["items"]:
        return
    from holdbeat.domain.schema import near_matches

    near = near_matches(resource, sorted(resources))
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known are: {', '.join(sorted(resources))}."
    click.echo(
        f"No job, job type, worker or limit uses the resource {shown(resource)}. {hint} To take the pause back: "
        f"holdbeat queue resume --resource {shlex.quote(resource)}",
        err=True,
    )


@queue.command("resume", epilog=example("holdbeat queue resume --resource ollama"))
@click.option("--resource", help="Only this resource (the pause of everything).")
@printing(_pauses)
def resume(backend: Backend, resource: str | None) -> Any:
    """End a pause."""
    return backend.resume_queue(resource)


@queue.command("reorder", epilog=example("holdbeat queue reorder SECOND_JOB FIRST_JOB"))
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
@printing(lambda answer: [jobs_table(answer["items"])])
def reorder(backend: Backend, job_ids: tuple[str, ...]) -> Any:
    """Put QUEUED JOBs of one priority into this order, on the places that they hold together."""
    return backend.reorder_queue(job_ids)
