"""Verbs that print as things happen: logs and watch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.arguments import INSTANT, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, LIMIT, example, reaching
from holdbeat.cli.output import shown, without_controls

_IDS = ("job", "run", "worker", "group", "schedule")


@click.command(epilog=example("holdbeat logs JOB -f"))
@click.argument("job_id", metavar="JOB")
@click.option("-f", "--follow", is_flag=True, help="Print lines as they are written, until the run has ended.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only lines after this sequence number.")
@click.option("--times", is_flag=True, help="Start each line with its time and stream.")
@JSON
@reaching
def logs(backend: Backend, job_id: str, follow: bool, after: int, times: bool, as_json: bool) -> None:
    """Print what the handler of a JOB logged; with --json one object to a line."""

    def write(line: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(line, ensure_ascii=False))
        else:
            before = f"{line['at']} {line['stream']} " if times else ""
            click.echo(before + without_controls(str(line["text"])))
        if follow:
            sys.stdout.flush()

    if follow:
        for line in backend.follow_logs(job_id, after=after):
            write(line)
        return
    while True:
        page = backend.get_logs(job_id, after=after)
        for line in page["items"]:
            write(line)
        if page["next_cursor"] is None:
            return
        after = int(page["next_cursor"])


@click.command(
    epilog=example("holdbeat events fox --since 2026-11-16", "holdbeat events --actor anna --name job.cancelled")
)
@click.argument("text", required=False)
@click.option("--name", multiple=True, help="Only events of this name, e.g. run.ended; may be repeated.")
@click.option("--actor", help="Only acts of this key, person or program; a part of the name is enough.")
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
