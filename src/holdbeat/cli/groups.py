"""Verbs about JobGroups: create, list, show, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.arguments import json_object, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.job_tables import jobs_table
from holdbeat.cli.options import ListingGroup, example, printing, words_of
from holdbeat.cli.output import Columns, at, fields, items_table, its_id
from holdbeat.schemas.jobs import GroupStatus

GROUP = click.argument("group_id", metavar="GROUP")


def _group(group: Mapping[str, Any]) -> list[Any]:
    about = {name: value for name, value in group.items() if name != "jobs"}
    return [fields(about), "", jobs_table(group["jobs"])]


@click.group(
    cls=ListingGroup, epilog=example("holdbeat groups create @group.json", "holdbeat groups list --status RUNNING")
)
def groups() -> None:
    """Groups of jobs, in sequence or in parallel."""


@groups.command(
    "create", epilog=example("""holdbeat groups create '{"mode": "sequential", "jobs": [{"type": "story"}]}'""")
)
@click.argument("source", metavar="JSON|@FILE|-")
@printing(its_id)
def create(backend: Backend, source: str) -> Any:
    """Submit a group: {mode, jobs: [as for submit], name?, on_failure?, then?: a job to run after it, then_when?}."""
    return backend.create_group(json_object(source, what="The group"))


_COLUMNS: Columns = (
    "id", "status", "name", "mode", "on_failure", ("created", at("created_at")), ("finished", at("finished_at")),
)  # fmt: skip


@groups.command("list", epilog=example("holdbeat groups list --status RUNNING --watch"))
@click.option("--status", multiple=True, type=words_of(GroupStatus), help="Only this status.")
@click.option("--name", help="Only groups of this name.")
@printing(items_table(_COLUMNS), is_paged=True)
def list_groups(backend: Backend, **filters: Any) -> Any:
    """List groups, the newest first."""
    return backend.list_groups(**without_none(filters))


@groups.command("show", epilog=example("holdbeat groups show GROUP"))
@GROUP
@printing(_group, is_watched=True)
def show_group(backend: Backend, group_id: str) -> Any:
    """Show a GROUP with all its jobs, including retries."""
    return backend.get_group(group_id)


@groups.command("cancel", epilog=example("holdbeat groups cancel GROUP --reason 'wrong input'"))
@GROUP
@click.option("--reason", help="The reason, stored with the jobs.")
@printing(_group)
def cancel(backend: Backend, group_id: str, reason: str | None) -> Any:
    """Cancel every unfinished job of a GROUP."""
    return backend.cancel_group(group_id, reason)
