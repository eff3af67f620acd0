"""Verbs about Schedules and Endpoints: one set of verbs on two nouns, and what only Endpoints have."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import (
    DURATION,
    headers,
    json_object,
    json_text,
    labels,
    params_of,
    send_as_meant,
    without_none,
)
from holdbeat.cli.backend import Backend, ScheduleBackend
from holdbeat.cli.completion import job_types
from holdbeat.cli.options import (
    JSON,
    LABELS,
    PRIORITY,
    ListingGroup,
    example,
    printing,
    reaching,
    with_options,
    words_of,
)
from holdbeat.cli.output import instant, its_fields, show, span, table
from holdbeat.cli.schedule_verbs import NAME, add_common
from holdbeat.schemas.schedules import CatchUp, Dst, Overlap


@click.group(
    cls=ListingGroup,
    epilog=example("holdbeat schedules create nightly story --cron '0 3 * * *'", "holdbeat schedules explain nightly"),
)
def schedules() -> None:
    """Schedules: create jobs by cron or interval."""


@click.group(
    cls=ListingGroup,
    epilog=example(
        "holdbeat endpoints create shop https://example.org/health --interval 5m", "holdbeat endpoints health shop"
    ),
)
def endpoints() -> None:
    """Endpoints: call URLs on adaptive schedules."""


_timing = with_options(
    click.option("--cron", metavar="EXPRESSION", help="Run at these times, e.g. '0 3 * * *'."),
    click.option("--interval", "interval_s", type=DURATION, help="Run at this interval, e.g. 5m."),
    click.option("--timezone", metavar="ZONE", help="The zone of the cron expression, e.g. Europe/Vienna."),
    click.option("--dst", type=words_of(Dst), help="What to do when clocks change."),
    click.option("--jitter", "jitter_s", type=DURATION, help="Delay each run by up to this, to spread the load."),
    click.option(
        "--start-at", metavar="INSTANT", help="No run before this instant; in the schedule's zone without an offset."
    ),
    click.option(
        "--end-at", metavar="INSTANT", help="No run after this instant; in the schedule's zone without an offset."
    ),
    click.option("--min-interval", "min_interval_s", type=DURATION, help="Never run more often than this."),
    click.option("--max-interval", "max_interval_s", type=DURATION, help="Never run less often than this."),
    PRIORITY,
    click.option("--webhook-url", help="Send a webhook to this URL when a job of it ends."),
    LABELS,
    click.option("--fields", "more", metavar="JSON|@FILE|-", help="Any fields of the API; options override them."),
)
VERSION = click.option("--version", type=int, help="Refuse if it was changed since this version.")


def _request(more: str | None, label_words: tuple[str, ...], **options: Any) -> dict[str, Any]:
    request = json_object(more, what="--fields") if more else {}
    return {**request, **without_none({**options, "labels": labels(label_words) or None})}


_work_options = with_options(
    click.option("--params", "source", metavar="JSON|@FILE|-", help="Params of its jobs, as a JSON object."),
    click.option("--template", help="Create its jobs from this template instead of a TYPE."),
    click.option("--resource", help="The resource whose slot its jobs need."),
    click.option("--timeout", "timeout_s", type=DURATION, help="End a run after this long."),
    click.option("--cancel-grace", "cancel_grace_s", type=DURATION, help="Kill a cancelled handler after this long."),
    click.option("--overlap", type=words_of(Overlap), help="What to do while the previous job is unfinished."),
    click.option("--catch-up", type=words_of(CatchUp), help="What to do about missed times."),
    click.option("--misfire-grace", "misfire_grace_s", type=DURATION, help="A due time up to this late is not missed."),
    click.option("--adaptive/--fixed", default=None, help="Whether hints, clamps and backoff may move its runs."),
)
_call_options = with_options(
    click.option("--method", metavar="VERB", help="GET, POST, …"),
    click.option("--header", "header_words", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated."),
    click.option("--body", metavar="JSON|@FILE|-", help="The body of the call."),
    click.option("--timeout", "timeout_s", type=DURATION, help="Give up a call after this long (30s)."),
    click.option("--max-execution", "max_execution_s", type=DURATION, help="End its job after this long (60s)."),
)


def _work(words: tuple[str, ...], source: str | None, **options: Any) -> dict[str, Any]:
    """The fields of a schedule."""
    params = {"params": params_of(words, source)} if words or source is not None else {}
    return {**_request(**options), **params}


def _call(header_words: tuple[str, ...], body: str | None, **options: Any) -> dict[str, Any]:
    """The fields of an endpoint."""
    call = _request(**options)
    if header_words:
        call["headers"] = headers(header_words)
    if body is not None:
        call["body"] = json_text(body, what="--body")
    return call


def _added(schedule: Any) -> list[Any]:
    return [schedule["id"], f"Next run: {instant(schedule['fires_at']) or 'none planned'}"]


@schedules.command(
    "create",
    epilog=example(
        "holdbeat schedules create nightly story words=500 --cron '0 3 * * *' --timezone Europe/Vienna",
        "holdbeat schedules create crawl --template crawl --interval 10m --overlap skip",
    ),
)
@NAME
@click.argument("words", nargs=-1, metavar="[TYPE] [KEY=VALUE]...", shell_complete=job_types)
@_timing
@_work_options
@printing(_added)
def add_schedule(backend: Backend, words: tuple[str, ...], **options: Any) -> Any:
    """Create a schedule NAME for a job TYPE, or for a --template."""
    if words and "=" not in words[0]:
        options["type"], words = words[0], words[1:]
    return send_as_meant(backend, words, _work(words, **options), backend.schedules.create)


@endpoints.command(
    "create",
    epilog=example("holdbeat endpoints create shop https://example.org/health --interval 5m --min-interval 30s"),
)
@NAME
@click.argument("url")
@_timing
@_call_options
@printing(_added)
def add_endpoint(backend: Backend, **options: Any) -> Any:
    """Create an endpoint NAME that calls a URL."""
    return backend.endpoints.create(_call(**options))


@schedules.command("edit", epilog=example("holdbeat schedules edit nightly --cron '30 3 * * *'"))
@NAME
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@_timing
@_work_options
@VERSION
@printing(its_fields)
def edit_schedule(backend: Backend, name: str, version: int | None, **options: Any) -> Any:
    """Change the schedule NAME. KEY=VALUE and --params replace all its params."""
    return _edit(backend.schedules, name, _work(**options), version)


@endpoints.command("edit", epilog=example("holdbeat endpoints edit shop --interval 10m"))
@NAME
@click.option("--url", help="Another address.")
@_timing
@_call_options
@VERSION
@printing(its_fields)
def edit_endpoint(backend: Backend, name: str, version: int | None, **options: Any) -> Any:
    """Change the endpoint NAME. --header replaces all its headers."""
    return _edit(backend.endpoints, name, _call(**options), version)


def _edit(kind: ScheduleBackend, name: str, changes: dict[str, Any], version: int | None) -> Any:
    if not changes:
        raise click.UsageError("Say what to change, e.g. --interval 10m.")
    # Another timetable takes the place of the one that is there.
    for field, excluded in (("cron", "interval_s"), ("interval_s", "cron")):
        if field in changes:
            changes.setdefault(excluded, None)
    return kind.update(name, changes, version=version)


add_common(schedules, "schedule", lambda backend: backend.schedules)
add_common(endpoints, "endpoint", lambda backend: backend.endpoints)


@endpoints.command("test", epilog=example("holdbeat endpoints test shop"))
@NAME
@JSON
@reaching
def test(backend: Backend, name: str, as_json: bool) -> None:
    """Call the endpoint NAME at once, without an effect on its plan or health. Exit 1 if the call fails."""
    answer = backend.endpoints.test(name)
    show(answer, its_fields, as_json=as_json)
    if not answer["ok"]:
        raise click.exceptions.Exit(1)


def _health(health: dict[str, Any]) -> list[Any]:
    from holdbeat.observe.wording import counted

    windows = table(
        ("window", "succeeded", "failed", "mean duration"),
        [
            (name, window["successes"], window["failures"], span(window["mean_duration_s"]))
            for name, window in health["windows"].items()
        ],
        whole=("window",),
    )
    lines: list[Any] = [windows]
    if health["streak"]:
        lines.append(f"The last {counted(health['streak']['length'], 'run')}: {health['streak']['status']}.")
    if health["last_run"]:
        lines.append(f"Last run: {health['last_run']['status']} at {instant(health['last_run']['finished_at'])}.")
    return lines


@endpoints.command("health", epilog=example("holdbeat endpoints health shop"))
@NAME
@printing(_health, is_watched=True)
def health(backend: Backend, name: str) -> Any:
    """Show successes and failures of the endpoint NAME over 1, 4 and 24 hours."""
    return backend.endpoints.health(name)
