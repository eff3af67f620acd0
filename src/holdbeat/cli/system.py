"""Verbs about the whole: stats, workers, types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, WATCH, example, printing, reaching
from holdbeat.cli.output import Columns, at, instant, items_table, show_list, shown, span, table
from holdbeat.domain.waits import counted_waits


def _stats(figures: Mapping[str, Any]) -> list[Any]:
    runs = figures["runs"]["last_hour"]
    return [
        table(list(figures["jobs"]), [list(figures["jobs"].values())]),
        "",
        resources_table(figures["resources"]),
        "",
        f"Waiting, without a slot: {', '.join(counted_waits(figures['waits'])) or 'none'}",
        "Runs of the last hour: " + ", ".join(f"{amount} {status}" for status, amount in runs.items()),
        f"Workers: {figures['workers']}   schedules: {figures['schedules']}   zombies recovered: "
        f"{figures['zombies_recovered']}   stale results: {figures['stale_results']}",
    ]


@click.command(epilog=example("holdbeat stats --watch"))
@printing(_stats, is_watched=True)
def stats(backend: Backend) -> Any:
    """Print counts of jobs, slots, runs of the last hour and incidents."""
    return backend.stats()


def resources_table(resources: Mapping[str, Any]) -> Any:
    return table(
        ("resource", "slots", "used", "waiting", "oldest wait"),
        [
            (
                name,
                "no limit" if figures["slots"] is None else figures["slots"],
                figures["used"],
                figures["waiting"],
                span(figures["oldest_wait_s"]),
            )
            for name, figures in resources.items()
        ],
        whole=("resource",),
        leaves=("oldest wait",),
    )


def _attention(page: Mapping[str, Any]) -> list[Any]:
    lines: list[Any] = []
    for item in page["items"]:
        since = f" since {instant(item['since'])}" if item["since"] else ""
        lines += [f"{shown(item['kind'])}{since}: {shown(item['text'])}"]
        lines += [f"    {shown(item['detail'])}"] if item["detail"] else []
        lines += [f"    {shown(item['advice'])}"]
    return lines


@click.command(epilog=example("holdbeat attention", "holdbeat attention --seen zombie.found"))
@click.option("--seen", metavar="EVENT", help="Mark the events of this name as seen.")
@click.option("--all-seen", is_flag=True, help="Mark all events as seen.")
@WATCH
@JSON
@reaching
def attention(backend: Backend, seen: str | None, all_seen: bool, watch: float | None, as_json: bool) -> None:
    """List what needs attention, since when, and what to do about it."""
    if seen is not None or all_seen:
        backend.mark_attention_seen(None if all_seen else seen)
    show_list(backend.list_attention, _attention, as_json=as_json, watch=watch)


_WORKER_COLUMNS: Columns = (
    "id", "kind", "host", "pid", "slots",
    ("resources", lambda worker: "all" if worker["resources"] is None else ", ".join(worker["resources"])),
    ("heartbeat", at("heartbeat_at")),
    ("note", lambda worker: "ended" if worker["stopped_at"] else "stopping" if worker["stopping_at"] else ""),
)  # fmt: skip


@click.command(epilog=example("holdbeat workers --all"))
@click.option("--all", "every", is_flag=True, help="Include workers that have ended or stopped sending heartbeats.")
@printing(items_table(_WORKER_COLUMNS, leaves=("heartbeat", "pid", "host", "resources", "kind")), is_watched=True)
def workers(backend: Backend, every: bool) -> Any:
    """List the workers that are alive."""
    return backend.workers(all=every or None)


_TYPE_COLUMNS: Columns = (
    "name", ("aliases", lambda job_type: ", ".join(job_type["aliases"])),
    ("params", lambda job_type: ", ".join(job_type["schema"].get("properties", {}))), "description",
)  # fmt: skip


@click.command(epilog=example("holdbeat types"))
@JSON
@reaching
def types(backend: Backend, as_json: bool) -> None:
    """List the job types that Apps have announced, with their params."""
    show_list(backend.job_types, items_table(_TYPE_COLUMNS, whole=("name",)), as_json=as_json)
