"""Commands about chains of jobs: their steps, and signals to them."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import json_text
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, example, reaching
from holdbeat.cli.output import show, table
from holdbeat.domain.params import dumps


@click.command(epilog=example("holdbeat signal JOB approved", 'holdbeat signal JOB approved \'{"by": "ann"}\''))
@click.argument("job_id", metavar="JOB")
@click.argument("name")
@click.argument("payload", required=False, metavar="[JSON|@FILE|-]")
@JSON
@reaching
def signal(backend: Backend, job_id: str, name: str, payload: str | None, as_json: bool) -> None:
    """Send a signal to a JOB's chain, for a handler that waits for it now or later."""
    value = None if payload is None else json_text(payload, what="the payload")
    sent = backend.send_signal(job_id, name, value)
    show(sent, lambda signal: [f"Signal {signal['name']} number {signal['number']} is sent."], as_json=as_json)


@click.command(epilog=example("holdbeat steps JOB"))
@click.argument("job_id", metavar="JOB")
@JSON
@reaching
def steps(backend: Backend, job_id: str, as_json: bool) -> None:
    """List the steps that a JOB's chain has kept, in order."""
    show(backend.list_steps(job_id), lambda page: [_steps_table(page["items"])], as_json=as_json)


def _steps_table(items: list[Any]) -> Any:
    if not items:
        return "The chain has kept no steps."
    rows = [
        (
            step["name"], step["started_at"], f"{step['duration_s']:.3g} s", str(step["size"]),
            (step["value"] if step["is_cut"] else dumps(step["value"]))[:60],
        )
        for step in items
    ]  # fmt: skip
    return table(("step", "started", "took", "bytes", "value"), rows)
