"""The verbs that schedules and endpoints share: list, show, enable, pause, trigger, explain, preview."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdbeat.cli.arguments import DURATION, INSTANT, without_none
from holdbeat.cli.backend import Backend, ScheduleBackend
from holdbeat.cli.completion import schedule_names
from holdbeat.cli.job_tables import explanation
from holdbeat.cli.options import JSON, example, printing, reaching, words_of
from holdbeat.cli.output import (
    Columns,
    at,
    confirm,
    instant,
    items_table,
    its_fields,
    its_id,
    rows_of,
    show,
    span,
    table,
)
from holdbeat.schemas.field_bounds import MOST_PREVIEWED
from holdbeat.schemas.schedules import Dst, OccurrenceStatus

NAME = click.argument("name", metavar="NAME", shell_complete=schedule_names)
OPTIONAL_NAME = click.argument("name", metavar="[NAME]", required=False, shell_complete=schedule_names)
Kind = Callable[[Backend], ScheduleBackend]


def add_common(group: click.Group, noun: str, kind: Kind) -> None:
    """The verbs that both nouns have."""
    for add in (
        _add_lists,
        _add_steps,
        _add_pause,
        _add_hint,
        _add_trigger_and_explain,
        _add_occurrences,
        _add_preview,
    ):
        add(group, noun, kind)


def _add_lists(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"

    @group.command("list", epilog=example(f"holdbeat {plural} list --paused"), help=f"List {plural}, newest first.")
    @click.option("--enabled/--disabled", default=None, help="Only enabled, or only disabled ones.")
    @click.option("--paused/--not-paused", default=None, help="Only paused ones, or only the others.")
    @click.option(
        "--failing/--not-failing", default=None, help="Only those whose last runs failed, or only the others."
    )
    @click.option("--label", metavar="NAME=VALUE", help="Only those with this label.")
    @click.option("--find", "q", metavar="TEXT", help="Only those with this in name, type, label, id or URL.")
    @printing(_many, is_paged=True)
    def list_(backend: Backend, **filters: Any) -> Any:
        return kind(backend).list(**without_none(filters))

    @group.command("show", epilog=example(f"holdbeat {plural} show NAME"), help=f"Show the {noun} NAME.")
    @NAME
    @printing(its_fields, is_watched=True)
    def show_one(backend: Backend, name: str) -> Any:
        return kind(backend).get(name)

    @group.command("delete", epilog=example(f"holdbeat {plural} delete NAME --yes"), help=f"Delete the {noun} NAME.")
    @NAME
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @reaching
    def delete(backend: Backend, name: str, yes: bool) -> None:
        methods = kind(backend)
        schedule = methods.get(name)
        confirm(f"The {noun} {schedule['name']!r} will be deleted; its jobs stay.", yes=yes)
        methods.delete(schedule["id"])


def _add_steps(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"

    def add_step(verb: str, sentence: str, step: Callable[[ScheduleBackend, str], Any]) -> None:
        @group.command(verb, epilog=example(f"holdbeat {plural} {verb} NAME"), help=sentence)
        @NAME
        @printing(_one)
        def take(backend: Backend, name: str) -> Any:
            return step(kind(backend), name)

    add_step("enable", f"Enable the {noun} NAME.", lambda methods, name: methods.enable(name))
    add_step("disable", f"Disable the {noun} NAME.", lambda methods, name: methods.disable(name))
    add_step(
        "reset-failures",
        f"Reset the failure count of the {noun} NAME, which ends its backoff.",
        lambda methods, name: methods.reset_failures(name),
    )


def _add_pause(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"
    label_option = click.option("--label", metavar="NAME=VALUE", help=f"All {plural} with this label instead of one.")

    @group.command(
        "pause",
        epilog=example(
            f"holdbeat {plural} pause NAME --reason 'upgrade'",
            f"holdbeat {plural} pause --label team=shop --reason 'code freeze'",
        ),
        help=f"Pause the {noun} NAME, or all with a label, until an instant or until they are resumed.",
    )
    @OPTIONAL_NAME
    @label_option
    @click.option("--until", type=INSTANT, help="Resume at this instant.")
    @click.option("--reason", help="The reason.")
    @JSON
    @reaching
    def pause(backend: Backend, name: str | None, label: str | None, as_json: bool, **options: Any) -> None:
        _check_chosen(name, label, noun)
        methods = kind(backend)
        if name is not None:
            show(methods.pause(name, **options), _one, as_json=as_json)
        else:
            show(methods.pause_many(label=label, **options), _many, as_json=as_json)

    @group.command(
        "resume",
        epilog=example(f"holdbeat {plural} resume NAME", f"holdbeat {plural} resume --label team=shop"),
        help=f"Resume the {noun} NAME, or all with a label, after a pause.",
    )
    @OPTIONAL_NAME
    @label_option
    @JSON
    @reaching
    def resume(backend: Backend, name: str | None, label: str | None, as_json: bool) -> None:
        _check_chosen(name, label, noun)
        methods = kind(backend)
        if name is not None:
            show(methods.resume(name), _one, as_json=as_json)
        else:
            show(methods.resume_many(label=label), _many, as_json=as_json)


def _check_chosen(name: str | None, label: str | None, noun: str) -> None:
    if (name is None) == (label is None):
        raise click.UsageError(f"Give the NAME of the {noun}, or --label.")


def _one(schedule: Any) -> list[Any]:
    return [schedules_table([schedule])]


def _many(page: Any) -> list[Any]:
    return [schedules_table(page["items"])]


def _add_hint(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"

    @group.command(
        "hint",
        epilog=example(f"holdbeat {plural} hint NAME --interval 30s --ttl 10m --reason 'error rate'"),
        help=f"Ask the adaptive {noun} NAME for another interval, for a run at a time, or both.",
    )
    @NAME
    @click.option("--interval", "interval_s", type=DURATION, help="Run at this interval until the hint expires.")
    @click.option("--next-run-at", type=INSTANT, help="Run at this instant, once.")
    @click.option("--ttl", "ttl_s", type=DURATION, help="How long the hint is valid.")
    @click.option("--reason", help="The reason.")
    @click.option("--clear", is_flag=True, help="Remove its hints instead.")
    @printing(_one)
    def hint(backend: Backend, name: str, clear: bool, **options: Any) -> Any:
        methods = kind(backend)
        if clear == bool(without_none(options)):
            raise click.UsageError("Say --interval, --next-run-at or both; or --clear alone.")
        changed = methods.clear_hints(name) if clear else methods.hint(name, **options)
        for warning in changed["warnings"]:
            click.echo(warning, err=True)
        return changed


def _add_trigger_and_explain(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"

    @group.command("trigger", epilog=example(f"holdbeat {plural} trigger NAME"), help=f"Fire the {noun} NAME now.")
    @NAME
    @printing(its_id)
    def trigger(backend: Backend, name: str) -> Any:
        return kind(backend).trigger(name)

    @group.command(
        "explain",
        epilog=example(f"holdbeat {plural} explain NAME"),
        help=f"Explain why the {noun} NAME runs when it runs.",
    )
    @NAME
    @printing(explanation, is_watched=True)
    def explain(backend: Backend, name: str) -> Any:
        return kind(backend).explain(name)


_OCCURRENCE_COLUMNS: Columns = (
    ("due", at("due_at")), "status", "job_id", ("late", lambda occurrence: span(occurrence["late_s"])), "count",
    "reason",
)  # fmt: skip


def _add_occurrences(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"

    @group.command(
        "occurrences",
        epilog=example(f"holdbeat {plural} occurrences NAME --status missed"),
        help=f"List the due times of the {noun} NAME and their outcomes, the latest first.",
    )
    @NAME
    @click.option("--status", type=words_of(OccurrenceStatus))
    @printing(items_table(_OCCURRENCE_COLUMNS, whole=("job_id",)), is_paged=True)
    def occurrences(backend: Backend, name: str, **filters: Any) -> Any:
        return kind(backend).occurrences(name, **filters)


def _add_preview(group: click.Group, noun: str, kind: Kind) -> None:
    plural = f"{noun}s"
    article = "an" if noun[0] in "aeiou" else "a"

    @group.command(
        "preview",
        epilog=example(
            f"holdbeat {plural} preview NAME -n 5",
            f"holdbeat {plural} preview --cron '30 2 * * *' --timezone Europe/Vienna",
        ),
        help=f"Print the next due times of the {noun} NAME, or of a timetable that is not saved.",
    )
    @click.argument("name", required=False, shell_complete=schedule_names)
    @click.option("-n", type=click.IntRange(1, MOST_PREVIEWED), help="How many (10).")
    @click.option("--cron", metavar="EXPRESSION")
    @click.option("--interval", "interval_s", type=DURATION)
    @click.option("--timezone", metavar="ZONE")
    @click.option("--dst", type=words_of(Dst))
    @click.option("--after", metavar="INSTANT", help="Due times after this instant; in the zone without an offset.")
    @printing(_preview)
    def preview(backend: Backend, name: str | None, n: int | None, **timetable: Any) -> Any:
        options = without_none(timetable)
        if (name is None) == (not options):
            raise click.UsageError(f"Give the NAME of {article} {noun}, or a timetable: --cron or --interval.")
        if name is not None:
            return kind(backend).preview(name, n=n)
        return backend.schedules.preview_timetable(without_none({**options, "n": n}))


def _preview(due_times: Any) -> list[Any]:
    drawn: list[Any] = [
        table(("at", "local", "note"), [(instant(t["at"]), t["local"], t["note"]) for t in due_times["items"]])
    ]
    change = due_times.get("clock_change")
    if change:
        drawn.append(f"The clocks change next at {instant(change['at'])}: {change['before']}, then {change['after']}.")
    return drawn


def schedules_table(items: list[Any]) -> Any:
    return rows_of(
        items,
        (
            "id",
            "name",
            ("on", "enabled"),
            ("when", lambda schedule: schedule["cron"] or f"every {span(schedule['interval_s'])}"),
            ("does", _work),
            ("last run", at("last_run_at")),
            ("next run", at("fires_at")),
            ("failures", lambda schedule: schedule["failure_count"] or ""),
            ("note", _note),
        ),
        whole=("name",),
        # Every verb takes the name, so the id is what a reader misses least.
        leaves=("failures", "id", "last run", "does", "when"),
    )


def _work(schedule: Any) -> str:
    return schedule.get("url") or schedule.get("type") or f"template {schedule.get('template_id')}"


def _note(schedule: Any) -> str:
    if schedule.get("trouble"):
        return f"cannot be planned: {schedule['trouble']}"
    if not schedule["paused_until"]:
        return ""
    return "paused" if schedule["paused_indefinitely"] else f"paused until {instant(schedule['paused_until'])}"
