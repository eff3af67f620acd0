"""Verbs about JobTemplates: add, list, show, edit, archive."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import DURATION, json_object, labels, params_of, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.completion import job_types
from holdbeat.cli.options import CURSOR, JSON, LIMIT, WATCH, Function, ListingGroup, example, reaching
from holdbeat.cli.output import fields, instant, items_table, show, show_list
from holdbeat.cli.string_params import send_as_meant


@click.group(
    cls=ListingGroup, epilog=example("holdbeat templates create nightly story words=500", "holdbeat templates list")
)
def templates() -> None:
    """Named defaults from which jobs are made."""


def _fields(function: Function) -> Function:
    for option in (
        click.option("--description", help="What it is for."),
        click.option("--label", "label_words", multiple=True, metavar="NAME=VALUE", help="A label; may be repeated."),
        click.option("--webhook-url", help="Tell this address how its jobs end."),
        click.option("--retry-policy", metavar="JSON", help='E.g. {"max_attempts": 5}.'),
        click.option("--timeout", "timeout_s", type=DURATION, help="End a run after this long."),
        click.option(
            "--cancel-grace", "cancel_grace_s", type=DURATION, help="Kill a cancelled handler after this long."
        ),
        click.option("--resource", help="The resource whose slot its jobs need."),
        click.option("--priority", type=click.IntRange(0, 100), help="0 to 100, higher first."),
        click.option("--params", "source", metavar="JSON|@FILE|-", help="Params as a JSON object."),
    ):
        function = option(function)
    return function


def _request(
    words: tuple[str, ...], source: str | None, label_words: tuple[str, ...], policy: str | None, options: Any
) -> dict[str, Any]:
    request = without_none({**options, "labels": labels(label_words) or None})
    if policy is not None:
        request["retry_policy"] = json_object(policy, what="--retry-policy")
    if words or source is not None:
        request["default_params"] = params_of(words, source)
    return request


@templates.command("create", epilog=example("holdbeat templates create nightly story words=500 --priority 5"))
@click.argument("name")
@click.argument("type_", metavar="TYPE", shell_complete=job_types)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@_fields
@JSON
@reaching
def add(
    backend: Backend,
    name: str,
    type_: str,
    words: tuple[str, ...],
    source: str | None,
    label_words: tuple[str, ...],
    retry_policy: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a template NAME for a job TYPE."""
    request = {"name": name, "type": type_, **_request(words, source, label_words, retry_policy, options)}
    made = send_as_meant(backend, words, request, backend.create_template, field="default_params")
    show(made, lambda answer: [answer["id"]], as_json=as_json)


@templates.command("list", epilog=example("holdbeat templates list --archived all"))
@click.option("--type", "type_", help="Only templates of this type.")
@click.option("--archived", type=click.Choice(["true", "false", "all"]), help="Archived ones, or all.")
@LIMIT
@CURSOR
@WATCH
@JSON
@reaching
def list_templates(
    backend: Backend,
    type_: str | None,
    archived: str | None,
    limit: int | None,
    cursor: str | None,
    watch: float | None,
    as_json: bool,
) -> None:
    """List templates, the newest first."""
    show_list(
        lambda: backend.list_templates(type=type_, archived=archived, limit=limit, cursor=cursor),
        items_table(
            {
                "id": "id",
                "name": "name",
                "type": "type",
                "priority": "priority",
                "resource": "resource",
                "version": "version",
                "archived": lambda template: instant(template["archived_at"]),
                "description": "description",
            }
        ),
        as_json=as_json,
        watch=watch,
    )


@templates.command("show", epilog=example("holdbeat templates show nightly"))
@click.argument("template", metavar="TEMPLATE")
@JSON
@reaching
def show_template(backend: Backend, template: str, as_json: bool) -> None:
    """Show a TEMPLATE, by its name or id."""
    show(backend.get_template(template), lambda answer: [fields(answer)], as_json=as_json)


@templates.command("edit", epilog=example("holdbeat templates edit nightly --priority 10"))
@click.argument("template", metavar="TEMPLATE")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="Another name.")
@_fields
@click.option("--version", type=int, help="Refuse if it was changed since this version.")
@JSON
@reaching
def edit(
    backend: Backend,
    template: str,
    words: tuple[str, ...],
    source: str | None,
    label_words: tuple[str, ...],
    retry_policy: str | None,
    version: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Change a TEMPLATE. KEY=VALUE and --params replace all its params; jobs made from it stay as they are."""
    changes = _request(words, source, label_words, retry_policy, options)
    if not changes:
        raise click.UsageError("Say what to change, e.g. --priority 10.")
    show(backend.update_template(template, changes, version=version), lambda answer: [fields(answer)], as_json=as_json)


@templates.command("archive", epilog=example("holdbeat templates archive nightly"))
@click.argument("template", metavar="TEMPLATE")
@JSON
@reaching
def archive(backend: Backend, template: str, as_json: bool) -> None:
    """Archive a TEMPLATE: no new jobs are made from it, and its schedules are disabled."""
    show(backend.archive_template(template), lambda answer: [f"{answer['id']} is archived."], as_json=as_json)
