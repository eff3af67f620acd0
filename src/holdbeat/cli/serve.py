"""Verbs that run until they are told to stop: serve and worker."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdbeat.cli.options import example, with_options
from holdbeat.cli.output import shown
from holdbeat.observe.logs import configure_process

_process_options = with_options(
    click.option("--store", help="Where jobs are kept: sqlite:///file.db or postgresql://…"),
    click.option("--slots", type=int, help="How many jobs this process runs at once."),
    click.option("--concurrency", help="Limits over all workers, e.g. resources:default=1,http=256."),
    click.option("--preset", help="Lease settings: development, production or high-reliability."),
    click.option("--log-level", help="debug, info, warning or error."),
    click.option("--log-format", help="text or json."),
)


@click.command(epilog=example("holdbeat serve example:app --slots 4", "holdbeat serve --store postgresql:///holdbeat"))
@click.argument("app", required=False)
@_process_options
@click.option("--host", help="Address to listen on; anything but loopback needs an API key.")
@click.option("--port", type=int, help="Port of the API and the dashboard.")
@click.option("--no-worker", is_flag=True, help="Serve the API and fire schedules, but run no jobs here.")
@click.option("--no-api", is_flag=True, help="Run jobs and fire schedules, but open no port.")
@click.pass_obj
def serve(obj: Any, /, app: str | None, no_worker: bool, no_api: bool, **flags: Any) -> None:
    """Run everything in one process: API, dashboard, trigger and worker.

    APP is module:name of your App, e.g. example:app.
    """
    loaded = _loaded(obj, app, flags)
    _greet(loaded.settings, app, has_worker=not no_worker, has_api=not no_api)
    sys.exit(obj.serve(loaded, has_worker=not no_worker, has_api=not no_api))


def _loaded(obj: Any, app: str | None, flags: dict[str, Any]) -> Any:
    """The App, with its log set up: as far as it is known before the module is loaded, which may print, and after."""
    early = obj.settings({name: value for name, value in flags.items() if value is not None})
    configure_process(early.log_level, early.log_format)
    loaded = obj.load_app(app, flags)
    configure_process(loaded.settings.log_level, loaded.settings.log_format)
    return loaded


def _greet(settings: Any, app: str | None, *, has_worker: bool, has_api: bool) -> None:
    """Says on a terminal where things are; what happens then is in the log."""
    if settings.log_format == "json" or not sys.stderr.isatty():
        return
    from holdbeat.domain.store_url import without_password

    if has_api:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        click.echo(f"Holdbeat on http://{host}:{settings.port}", err=True)
    click.echo(f"  store   {shown(without_password(settings.store))}", err=True)
    if has_worker:
        click.echo(f"  slots   {settings.slots} here, {shown(settings.concurrency)} over all", err=True)
    if app is None and has_worker:
        click.echo(
            "  No App was named, so only http jobs run here: holdbeat serve module:app brings your own.", err=True
        )


@click.command(
    epilog=example(
        "holdbeat worker example:app --slots 4 --resources gpu",
        "holdbeat worker example:app --metrics-port 9464",
        "holdbeat worker example:app --processes 4",
    )
)
@click.argument("app", required=False)
@_process_options
@click.option("--resources", help="Only jobs on these resources, separated by commas.")
@click.option(
    "--processes", type=click.IntRange(min=1), help="Run this many worker processes, each with --slots slots."
)
@click.option("--metrics-port", type=int, help="Serve /metrics on this port of loopback, for Prometheus.")
@click.option("--metrics-host", help="Serve /metrics on this address instead; it asks for no key.")
@click.pass_obj
def worker(obj: Any, /, app: str | None, resources: str | None, processes: int | None, **flags: Any) -> None:
    """Run a worker process. Start as many as you like; on PostgreSQL, on as many machines as you like.

    APP is module:name of your App, e.g. example:app.
    """
    only = None if resources is None else [name.strip() for name in resources.split(",") if name.strip()]
    if only == []:
        raise click.UsageError("--resources names none, so this worker would run nothing. Name some, e.g. --resources "
                               "gpu,mail, or leave it out to run jobs on all.")  # fmt: skip
    loaded = _loaded(obj, app, flags)
    if processes is not None:
        sys.exit(obj.supervise(_child_commands(processes, app, resources, flags, loaded.settings.metrics_port)))
    sys.exit(obj.serve(loaded, has_api=False, kind="worker", resources=only))


def _child_commands(
    processes: int, app: str | None, resources: str | None, flags: dict[str, Any], metrics_port: int | None
) -> list[list[str]]:
    """The command of each worker process: this one's options, and a metrics port of its own where there is one."""
    words = [] if app is None else [app]
    for name, value in {"resources": resources, **flags}.items():
        if value is not None and name != "metrics_port":
            words += [f"--{name.replace('_', '-')}", str(value)]
    ports = [[]] * processes if metrics_port is None else [
        ["--metrics-port", str(metrics_port and metrics_port + number)] for number in range(processes)
    ]  # fmt: skip
    return [[sys.executable, "-m", "holdbeat", "worker", *words, *port] for port in ports]
