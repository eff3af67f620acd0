"""Verbs about JobGroups: create, list, show, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.arguments import json_object
from holdbeat.cli.backend import Backend
from holdbeat.cli.job_tables import jobs_table
from holdbeat.cli.options import CURSOR, JSON, LIMIT, WATCH, ListingGroup, example, reaching
from holdbeat.cli.output import fields, instant, items_table, show, show_list

STATUSES = ("QUEUED", "RUNNING", "COMPLETED", "PARTIAL", "CANCELLED")


@click.group(
    cls=ListingGroup, epilog=example("holdbeat groups create @group.json", "holdbeat groups list --status RUNNING")
)
def groups() -> None:
    """Groups of jobs, in sequence or in parallel."""


@groups.command(
    "create", epilog=example("""holdbeat groups create '{"mode": "sequential", "jobs": [{"type": "story"}]}'""")
)
@click.argument("source", metavar="JSON|@FILE|-")
@JSON
@reaching
def create(backend: Backend, source: str, as_json: bool) -> None:
    """Submit a group: {mode, jobs: [as for submit], name?, on_failure?, then?: a job to run after it, then_when?}."""
    show(backend.create_group(json_object(source, what="The group")), lambda group: [group["id"]], as_json=as_json)


@groups.command("list", epilog=example("holdbeat groups list --status RUNNING --watch"))
@click.option("--status", multiple=True, type=click.Choice(STATUSES, case_sensitive=False), help="Only this status.")
@click.option("--name", help="Only groups of this name.")
@LIMIT
@CURSOR
@WATCH
@JSON
@reaching
def list_groups(
    backend: Backend,
    status: tuple[str, ...],
    name: str | None,
    limit: int | None,
    cursor: str | None,
    watch: float | None,
    as_json: bool,
) -> None:
    """List groups, the newest first."""
    show_list(
        lambda: backend.list_groups(status=status or None, name=name, limit=limit, cursor=cursor),
        items_table(
            {
                "id": "id",
                "status": "status",
                "name": "name",
                "mode": "mode",
                "on_failure": "on_failure",
                "created": lambda group: instant(group["created_at"]),
                "finished": lambda group: instant(group["finished_at"]),
            }
        ),
        as_json=as_json,
        watch=watch,
    )


@groups.command("show", epilog=example("holdbeat groups show GROUP"))
@click.argument("group_id", metavar="GROUP")
@WATCH
@JSON
@reaching
def show_group(backend: Backend, group_id: str, watch: float | None, as_json: bool) -> None:
    """Show a GROUP with all its jobs, retries included."""
    show_list(lambda: dict(backend.get_group(group_id)), _group, as_json=as_json, watch=watch)


@groups.command("cancel", epilog=example("holdbeat groups cancel GROUP --reason 'wrong input'"))
@click.argument("group_id", metavar="GROUP")
@click.option("--reason", help="Why; it is kept with the jobs.")
@JSON
@reaching
def cancel(backend: Backend, group_id: str, reason: str | None, as_json: bool) -> None:
    """Cancel every unfinished job of a GROUP."""
    show(backend.cancel_group(group_id, reason), _group, as_json=as_json)


def _group(group: Mapping[str, Any]) -> list[Any]:
    own = {name: value for name, value in group.items() if name != "jobs"}
    return [fields(own), "", jobs_table(group["jobs"])]
