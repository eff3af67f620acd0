"""Verbs that print as things happen: logs and watch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from holdbeat.cli.arguments import INSTANT, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, LIMIT, example, reaching
from holdbeat.cli.output import shown, without_controls
from holdbeat.domain.errors import HoldbeatError

_IDS = ("job", "run", "worker", "group", "schedule")


@click.command(epilog=example("holdbeat logs JOB -f", "holdbeat logs JOB --output -f"))
@click.argument("reference", metavar="JOB|RESERVATION")
@click.option("-f", "--follow", is_flag=True, help="Print lines as they are written, until the run has ended.")
@click.option("--output", "emitted", is_flag=True, help="Print what the handler emitted instead of its log.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only lines after this sequence number.")
@click.option("--times", is_flag=True, help="Start each line with its time and stream.")
@JSON
@reaching
def logs(backend: Backend, reference: str, follow: bool, emitted: bool, after: int, times: bool, as_json: bool) -> None:
    """Print what the handler of a job or a direct request logged; with --json one object to a line."""

    def write(line: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(line, ensure_ascii=False))
        elif emitted:
            click.echo(chunk_text(line["chunk"]), nl=False)
        else:
            before = f"{line['at']} {line['stream']} " if times else ""
            click.echo(before + without_controls(str(line["text"])))
        if follow:
            sys.stdout.flush()

    if follow:
        for entry in _followed(backend, reference, after=after, emitted=emitted):
            write(entry)
        _say_what_follows(backend, reference)
        return
    read: Callable[..., Any] = backend.get_chunks if emitted else backend.get_logs
    try:
        page: Mapping[str, Any] = read(reference, after=after)
    except HoldbeatError as no_job:
        if no_job.code != "not_found":
            raise
        read = backend.get_reservation_chunks if emitted else backend.get_reservation_logs
        page = read(reference, after=after)
    while True:
        for line in page["items"]:
            write(line)
        if page["next_cursor"] is None:
            return
        page = read(reference, after=int(page["next_cursor"]))


def _followed(backend: Backend, reference: str, *, after: int, emitted: bool) -> Iterator[Mapping[str, Any]]:
    """Lines of a job's log, or what its handler emits; the latter also of a direct request."""
    try:
        yield from (backend.follow_chunks if emitted else backend.follow_logs)(reference, after=after)
    except HoldbeatError as no_job:
        if no_job.code != "not_found" or not emitted:
            raise
        yield from backend.follow_reservation_chunks(reference, after=after)


def _say_what_follows(backend: Backend, reference: str) -> None:
    """The end of a run is not that of the work if its handler waits or is tried again: tells people, beside the log."""
    try:
        job = backend.get_job(reference)
    except HoldbeatError:  # a direct request, or a job that went meanwhile
        return
    if following := job["continued_by"] or job["retried_by"]:
        why = "Its handler waits" if job["continued_by"] else "It failed and is tried again"
        click.echo(f"{why}: the work goes on as job {following}. Follow it with holdbeat logs {following} -f", err=True)


def chunk_text(chunk: Any) -> str:
    """A piece of output for a terminal: text as it is, JSON on a line of its own."""
    if not isinstance(chunk, str):
        return json.dumps(chunk, ensure_ascii=False) + "\n"
    return without_controls(chunk) if sys.stdout.isatty() else chunk


@click.command(
    epilog=example("holdbeat events fox --since 2026-11-16", "holdbeat events --actor anna --name job.cancelled")
)
@click.argument("text", required=False)
@click.option("--name", multiple=True, help="Only events of this name, e.g. run.ended; may be repeated.")
@click.option("--actor", help="Only events caused by this key, person or program; a part of the name is enough.")
@click.option("--job", "job_id", metavar="JOB", help="Only events of this job.")
@click.option("--schedule", "schedule_id", metavar="ID", help="Only events of this schedule.")
@click.option("--worker", "worker_id", metavar="ID", help="Only events of this worker.")
@click.option("--since", type=INSTANT, metavar="WHEN", help="Only events from this time on.")
@click.option("--until", type=INSTANT, metavar="WHEN", help="Only events before this time.")
@LIMIT
@JSON
@reaching
def events(
    backend: Backend, text: str | None, name: tuple[str, ...], limit: int | None, as_json: bool, **options: Any
) -> None:
    """Find events by TEXT, name, actor, job, schedule, worker or time, the newest first."""
    left = limit or 50
    cursor = None
    while left:
        page = backend.search_events(
            q=text, name=name or None, limit=min(left, 500), cursor=cursor, **without_none(options)
        )
        for event in page["items"]:
            click.echo(json.dumps(event, ensure_ascii=False) if as_json else _line(event))
        left -= len(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            return


def _line(event: Mapping[str, Any]) -> str:
    ids = [f"{key}={event[f'{key}_id']}" for key in _IDS if event[f"{key}_id"]]
    return " ".join([event["at"], shown(event["name"]), *ids, *([shown(event["data"])] if event["data"] else [])])


@click.command(epilog=example("holdbeat watch", "holdbeat watch --job JOB --from-start --json"))
@click.option("--job", "job_id", metavar="JOB", help="Only events of this job.")
@click.option("--name", multiple=True, help="Only events of this name, e.g. run.ended; may be repeated.")
@click.option("--from-start", is_flag=True, help="Start with the oldest event that is kept.")
@JSON
@reaching
def watch_events(backend: Backend, job_id: str | None, name: tuple[str, ...], from_start: bool, as_json: bool) -> None:
    """Print events as they happen, until Ctrl-C."""
    for event in backend.events(after="0" if from_start else None, name=name or None, job_id=job_id):
        if as_json:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            click.echo(_line({**event}))
        sys.stdout.flush()
