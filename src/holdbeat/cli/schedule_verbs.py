"""The verbs that Schedules and Endpoints have in common: listed, steered, explained, previewed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdbeat.cli.arguments import DURATION, INSTANT, without_none
from holdbeat.cli.backend import Backend, ScheduleBackend
from holdbeat.cli.completion import schedule_names
from holdbeat.cli.job_tables import explanation
from holdbeat.cli.options import CURSOR, JSON, LIMIT, WATCH, example, reaching
from holdbeat.cli.output import confirm, fields, instant, show, show_list, span, table

NAME = click.argument("name", metavar="NAME", shell_complete=schedule_names)
Kind = Callable[[Backend], ScheduleBackend]


def add_common(group: click.Group, noun: str, kind: Kind) -> None:
    """The verbs that both nouns have."""
    plural = f"{noun}s"

    @group.command("list", epilog=example(f"holdbeat {plural} list --paused"), help=f"List {plural}, newest first.")
    @click.option("--enabled/--disabled", default=None, help="Only those that are.")
    @click.option("--paused/--not-paused", default=None, help="Only those that are.")
    @LIMIT
    @CURSOR
    @WATCH
    @JSON
    @reaching
    def list_(backend: Backend, watch: float | None, as_json: bool, **given: Any) -> None:
        show_list(
            lambda: kind(backend).list(**without_none(given)),
            lambda page: [schedules_table(page["items"])],
            as_json=as_json,
            watch=watch,
        )

    @group.command("show", epilog=example(f"holdbeat {plural} show NAME"), help=f"Show the {noun} NAME.")
    @NAME
    @WATCH
    @JSON
    @reaching
    def show_one(backend: Backend, name: str, watch: float | None, as_json: bool) -> None:
        show_list(lambda: dict(kind(backend).get(name)), lambda each: [fields(each)], as_json=as_json, watch=watch)

    def add_step(verb: str, sentence: str, step: Callable[[ScheduleBackend, str], Any]) -> None:
        @group.command(verb, epilog=example(f"holdbeat {plural} {verb} NAME"), help=sentence)
        @NAME
        @JSON
        @reaching
        def take(backend: Backend, name: str, as_json: bool) -> None:
            show(step(kind(backend), name), lambda each: [schedules_table([each])], as_json=as_json)

    add_step("enable", f"Let the {noun} NAME fire again.", lambda each, name: each.enable(name))
    add_step("disable", f"Let the {noun} NAME fire no more.", lambda each, name: each.disable(name))
    add_step("resume", f"End the pause of the {noun} NAME.", lambda each, name: each.resume(name))
    add_step("reset-failures", f"End the backoff of the {noun} NAME.", lambda each, name: each.reset_failures(name))

    @group.command(
        "pause",
        epilog=example(f"holdbeat {plural} pause NAME --reason 'upgrade'"),
        help=f"Hold the {noun} NAME until an instant, or until somebody resumes it.",
    )
    @NAME
    @click.option("--until", type=INSTANT, help="Resume by itself at this instant.")
    @click.option("--reason", help="Why.")
    @JSON
    @reaching
    def pause(backend: Backend, name: str, until: str | None, reason: str | None, as_json: bool) -> None:
        paused = kind(backend).pause(name, until=until, reason=reason)
        show(paused, lambda each: [schedules_table([each])], as_json=as_json)

    @group.command(
        "hint",
        epilog=example(f"holdbeat {plural} hint NAME --interval 30s --ttl 10m --reason 'error rate'"),
        help=f"Ask the adaptive {noun} NAME for another pace, for a run at a time, or both.",
    )
    @NAME
    @click.option("--interval", "interval_s", type=DURATION, help="Run this often for a while.")
    @click.option("--next-run-at", type=INSTANT, help="Run at this instant, once.")
    @click.option("--ttl", "ttl_s", type=DURATION, help="How long the hint lives.")
    @click.option("--reason", help="Why.")
    @click.option("--clear", is_flag=True, help="Drop its hints instead.")
    @JSON
    @reaching
    def hint(backend: Backend, name: str, clear: bool, as_json: bool, **given: Any) -> None:
        each = kind(backend)
        if clear == bool(without_none(given)):
            raise click.UsageError("Say --interval, --next-run-at or both; or --clear alone.")
        changed = each.clear_hints(name) if clear else each.hint(name, **given)
        for warning in changed["warnings"]:
            click.echo(warning, err=True)
        show(changed, lambda each: [schedules_table([each])], as_json=as_json)

    @group.command("trigger", epilog=example(f"holdbeat {plural} trigger NAME"), help=f"Fire the {noun} NAME now.")
    @NAME
    @JSON
    @reaching
    def trigger(backend: Backend, name: str, as_json: bool) -> None:
        show(kind(backend).trigger(name), lambda job: [job["id"]], as_json=as_json)

    @group.command(
        "explain", epilog=example(f"holdbeat {plural} explain NAME"), help=f"Say why the {noun} NAME runs when it runs."
    )
    @NAME
    @WATCH
    @JSON
    @reaching
    def explain(backend: Backend, name: str, watch: float | None, as_json: bool) -> None:
        show_list(lambda: dict(kind(backend).explain(name)), explanation, as_json=as_json, watch=watch)

    @group.command(
        "occurrences",
        epilog=example(f"holdbeat {plural} occurrences NAME --status missed"),
        help=f"List the due times of the {noun} NAME and what became of them, the latest first.",
    )
    @NAME
    @click.option("--status", type=click.Choice(["fired", "skipped", "missed", "coalesced", "manual"]))
    @LIMIT
    @CURSOR
    @WATCH
    @JSON
    @reaching
    def occurrences(backend: Backend, name: str, watch: float | None, as_json: bool, **given: Any) -> None:
        show_list(
            lambda: kind(backend).occurrences(name, **given),
            lambda page: [
                table(
                    ("due", "status", "job_id", "late", "count", "reason"),
                    [
                        (
                            instant(each["due_at"]),
                            each["status"],
                            each["job_id"],
                            span(each["late_s"]),
                            each["count"],
                            each["reason"],
                        )
                        for each in page["items"]
                    ],
                    whole=("job_id",),
                )
            ],
            as_json=as_json,
            watch=watch,
        )

    @group.command(
        "preview",
        epilog=example(
            f"holdbeat {plural} preview NAME -n 5",
            f"holdbeat {plural} preview --cron '30 2 * * *' --timezone Europe/Vienna",
        ),
        help=f"Print the next due times of the {noun} NAME, or of a timetable that nobody saved.",
    )
    @click.argument("name", required=False, shell_complete=schedule_names)
    @click.option("-n", type=click.IntRange(1, 1000), help="How many (10).")
    @click.option("--cron", metavar="EXPRESSION")
    @click.option("--interval", "interval_s", type=DURATION)
    @click.option("--timezone", metavar="ZONE")
    @click.option("--dst", type=click.Choice(["vixie", "skip", "shift"]))
    @click.option("--after", metavar="INSTANT", help="Those after this instant; without an offset in the zone.")
    @JSON
    @reaching
    def preview(backend: Backend, name: str | None, n: int | None, as_json: bool, **timetable: Any) -> None:
        given = without_none(timetable)
        if (name is None) == (not given):
            raise click.UsageError(f"Give the NAME of a {noun}, or a timetable: --cron or --interval.")
        if name is not None:
            found = kind(backend).preview(name, n=n)
        else:
            found = backend.schedules.preview_timetable(without_none({**given, "n": n}))
        show(found, _preview, as_json=as_json)

    @group.command("delete", epilog=example(f"holdbeat {plural} delete NAME --yes"), help=f"Delete the {noun} NAME.")
    @NAME
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @reaching
    def delete(backend: Backend, name: str, yes: bool) -> None:
        each = kind(backend)
        found = each.get(name)
        confirm(f"The {noun} {found['name']!r} will be deleted; its jobs stay.", yes=yes)
        each.delete(found["id"])


def _preview(found: Any) -> list[Any]:
    shown: list[Any] = [
        table(("at", "local", "note"), [(instant(t["at"]), t["local"], t["note"]) for t in found["items"]])
    ]
    change = found.get("clock_change")
    if change:
        shown.append(f"The clocks change next at {instant(change['at'])}: {change['before']}, then {change['after']}.")
    return shown


def schedules_table(items: list[Any]) -> Any:
    return table(
        ("id", "name", "on", "when", "does", "last run", "next run", "failures", "note"),
        [
            (
                each["id"],
                each["name"],
                each["enabled"],
                each["cron"] or f"every {span(each['interval_s'])}",
                each.get("url") or each.get("type") or f"template {each.get('template_id')}",
                instant(each["last_run_at"]),
                instant(each["next_run_at"]),
                each["failure_count"] or "",
                _note(each),
            )
            for each in items
        ],
        whole=("name",),
        # Every verb takes the name, so the id is what a reader misses least.
        leaves=("failures", "id", "last run", "does", "when"),
    )


def _note(each: Any) -> str:
    if each.get("trouble"):
        return f"cannot be planned: {each['trouble']}"
    if not each["paused_until"]:
        return ""
    return "paused" if each["paused_indefinitely"] else f"paused until {instant(each['paused_until'])}"
