"""The verb `bench`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--store", help="PostgreSQL to measure on; a schema of its own is made and dropped. Default: SQLite.")
@click.option("--jobs", type=click.IntRange(100, 10_000_000), default=20_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option(
    "--workers", type=click.IntRange(1, 16), default=4, show_default=True, help="Processes that share a file."
)
@click.option("--folder", type=click.Path(file_okay=False, exists=True), help="Disk to measure on.")
def bench(as_json: bool, store: str | None, jobs: int, rounds: int, workers: int, folder: str | None) -> None:
    """Measure this machine: how fast jobs are stored, run and started.

    All figures are durable: SQLite with synchronous=FULL, PostgreSQL with synchronous_commit on. The ratios compare
    with the fastest SQL for the same work in the same run, since machines are noisy: drain_ratio with claim and
    settle, life_ratio with enqueue, claim and settle.

    Example: holdbeat bench --json --jobs 50000
    """
    from holdbeat.bench.engine import measure_postgres, measure_sqlite
    from holdbeat.interpreter import tune

    tune()

    def progress(text: str) -> None:
        click.echo(text, err=True)

    try:
        if store:
            figures = asyncio.run(measure_postgres(store, jobs, rounds, progress))
        else:
            with tempfile.TemporaryDirectory(dir=folder or ".", prefix=".holdbeat-bench-") as place:
                figures = asyncio.run(measure_sqlite(Path(place), jobs, rounds, workers, progress))
    except KeyboardInterrupt:
        click.echo("stopped; nothing was left behind", err=True)
        sys.exit(130)
    click.echo(json.dumps(figures) if as_json else table(figures))


def table(figures: dict[str, Any]) -> str:
    """Figures in two columns."""
    rows = []
    for name, value in figures.items():
        text = ", ".join(f"{key} {inner:g}" for key, inner in value.items()) if isinstance(value, dict) else str(value)
        rows.append(f"{name:<28}{text}")
    return "\n".join(rows)
