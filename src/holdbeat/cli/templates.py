"""Verbs about JobTemplates: create, list, show, edit, archive."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import DURATION, json_object, labels, params_of, send_as_meant, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.completion import job_types
from holdbeat.cli.options import LABELS, PRIORITY, ListingGroup, example, printing, with_options
from holdbeat.cli.output import Columns, at, items_table, its_fields, its_id

TEMPLATE = click.argument("template", metavar="TEMPLATE")


@click.group(
    cls=ListingGroup, epilog=example("holdbeat templates create nightly story words=500", "holdbeat templates list")
)
def templates() -> None:
    """Named defaults from which jobs are made."""


_fields = with_options(
    click.option("--params", "source", metavar="JSON|@FILE|-", help="Params as a JSON object."),
    PRIORITY,
    click.option("--resource", help="The resource whose slot its jobs need."),
    click.option("--cancel-grace", "cancel_grace_s", type=DURATION, help="Kill a cancelled handler after this long."),
    click.option("--timeout", "timeout_s", type=DURATION, help="End a run after this long."),
    click.option("--retry-policy", metavar="JSON", help='E.g. {"max_attempts": 5}.'),
    click.option("--webhook-url", help="Send a webhook to this URL when a job of it ends."),
    LABELS,
    click.option("--description", help="What it is for."),
)


def _request(
    words: tuple[str, ...], source: str | None, label_words: tuple[str, ...], retry_policy: str | None, **options: Any
) -> dict[str, Any]:
    request = without_none({**options, "labels": labels(label_words) or None})
    if retry_policy is not None:
        request["retry_policy"] = json_object(retry_policy, what="--retry-policy")
    if words or source is not None:
        request["default_params"] = params_of(words, source)
    return request


@templates.command("create", epilog=example("holdbeat templates create nightly story words=500 --priority 5"))
@click.argument("name")
@click.argument("type_", metavar="TYPE", shell_complete=job_types)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@_fields
@printing(its_id)
def add(backend: Backend, name: str, type_: str, words: tuple[str, ...], **options: Any) -> Any:
    """Create a template NAME for a job TYPE."""
    request = {"name": name, "type": type_, **_request(words, **options)}
    return send_as_meant(backend, words, request, backend.create_template, field="default_params")


_COLUMNS: Columns = (
    "id", "name", "type", "priority", "resource", "version", ("archived", at("archived_at")), "description",
)  # fmt: skip


@templates.command("list", epilog=example("holdbeat templates list --archived all"))
@click.option("--type", help="Only templates of this type.")
@click.option("--archived", type=click.Choice(["true", "false", "all"]), help="Archived ones, or all.")
@printing(items_table(_COLUMNS), is_paged=True)
def list_templates(backend: Backend, **filters: Any) -> Any:
    """List templates, the newest first."""
    return backend.list_templates(**filters)


@templates.command("show", epilog=example("holdbeat templates show nightly"))
@TEMPLATE
@printing(its_fields)
def show_template(backend: Backend, template: str) -> Any:
    """Show a TEMPLATE, by its name or id."""
    return backend.get_template(template)


@templates.command("edit", epilog=example("holdbeat templates edit nightly --priority 10"))
@TEMPLATE
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="Another name.")
@_fields
@click.option("--version", type=int, help="Refuse if it was changed since this version.")
@printing(its_fields)
def edit(backend: Backend, template: str, version: int | None, **options: Any) -> Any:
    """Change a TEMPLATE. KEY=VALUE and --params replace all its params; jobs made from it stay as they are."""
    changes = _request(**options)
    if not changes:
        raise click.UsageError("Say what to change, e.g. --priority 10.")
    return backend.update_template(template, changes, version=version)


@templates.command("archive", epilog=example("holdbeat templates archive nightly"))
@TEMPLATE
@printing(lambda template: [f"{template['id']} is archived."])
def archive(backend: Backend, template: str) -> Any:
    """Archive a TEMPLATE: no new jobs are made from it, and its schedules are disabled."""
    return backend.archive_template(template)
