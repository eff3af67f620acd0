"""The `holdbeat` command: verbs are loaded when they are called, so that each starts at once."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from holdbeat import __version__
from holdbeat.domain.errors import HoldbeatError, Invalid, NotFound, SettingsError, StoreRefused, Unavailable

VERBS: dict[str, tuple[str, str]] = {
    "serve": ("holdbeat.cli.serve:serve", "Run everything in one process: API, dashboard, trigger, worker."),
    "worker": ("holdbeat.cli.serve:worker", "Add a worker process."),
    "demo": ("holdbeat.demo:demo", "Serve an example with work to watch."),
    "submit": ("holdbeat.cli.submitting:submit", "Submit a job."),
    "direct": ("holdbeat.cli.submitting:direct", "Run a job type in the next free slot and print its result."),
    "jobs": ("holdbeat.cli.jobs:jobs", "List jobs."),
    "show": ("holdbeat.cli.jobs:show_job", "Show a job with its run."),
    "change": ("holdbeat.cli.jobs:change", "Change a job that is still QUEUED."),
    "cancel": ("holdbeat.cli.jobs:cancel", "Cancel jobs."),
    "retry": ("holdbeat.cli.jobs:retry", "Try jobs again."),
    "move": ("holdbeat.cli.jobs:move", "Move a QUEUED job within its priority."),
    "explain": ("holdbeat.cli.jobs:explain", "Say why a job or a direct request is where it is."),
    "logs": ("holdbeat.cli.logs:logs", "Print what a job's handler logged."),
    "watch": ("holdbeat.cli.logs:watch_events", "Print what the scheduler decides, as it happens."),
    "queue": ("holdbeat.cli.queue:queue", "Read the queue, reorder it, pause it."),
    "groups": ("holdbeat.cli.groups:groups", "Jobs with a common fate."),
    "templates": ("holdbeat.cli.templates:templates", "Named defaults for jobs."),
    "schedules": ("holdbeat.cli.schedules:schedules", "When jobs are made: cron or interval."),
    "endpoints": ("holdbeat.cli.schedules:endpoints", "HTTP calls on schedules that adapt."),
    "webhooks": ("holdbeat.cli.webhooks:webhooks", "Who is told how jobs end."),
    "deliveries": ("holdbeat.cli.webhooks:deliveries", "Webhook messages."),
    "reservations": ("holdbeat.cli.reservations:reservations", "Direct requests: list, show, cancel."),
    "stats": ("holdbeat.cli.system:stats", "The state of the whole in numbers."),
    "workers": ("holdbeat.cli.system:workers", "List the workers that are alive."),
    "types": ("holdbeat.cli.system:types", "List the job types that are known."),
    "top": ("holdbeat.cli.top:top", "Slots, queue, workers and schedules, live."),
    "doctor": ("holdbeat.cli.doctor:doctor", "Settings and their origin, versions, and what is wrong."),
    "recover": ("holdbeat.cli.maintenance:recover", "Repair what a dead worker left behind."),
    "prune": ("holdbeat.cli.maintenance:prune", "Take away what ended long ago."),
    "backup": ("holdbeat.cli.maintenance:backup", "Copy a SQLite store while it is in use."),
    "restore": ("holdbeat.cli.maintenance:restore", "Make a backup the store."),
    "migrate": ("holdbeat.cli.maintenance:migrate", "Bring a store's schema up to date."),
    "move-store": ("holdbeat.cli.maintenance:move_store", "Move a store from SQLite to PostgreSQL."),
    "keys": ("holdbeat.cli.keys:keys", "API keys."),
    "bench": ("holdbeat.bench.command:bench", "Measure this machine."),
    "torture": ("holdbeat.torture.command:torture", "Try to break Holdbeat on this machine, and judge it."),
    "version": ("holdbeat.cli.main:version", "Print the version."),
}
"""Each verb: where it lives, and its one line of help, so that `--help` loads none of them."""

EXIT_CODES = ((Invalid, 2), (SettingsError, 2), (NotFound, 4), (StoreRefused, 3), (Unavailable, 5))
"""What scripts can tell apart; any other refusal is 1."""
EXIT_BY_STATUS = {400: 2, 413: 2, 422: 2, 404: 4, 503: 5}
"""The same for refusals of a server."""
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that knows its verbs by name and loads each when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, 1)
            hint = f"Did you mean {near[0]}?" if near else "holdbeat --help lists all."
            ctx.fail(f"There is no verb {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Errors of ours become a sentence and an exit code, not a traceback; so does Ctrl-C."""
        try:
            return super().invoke(ctx)
        except HoldbeatError as error:
            click.echo(f"holdbeat: {error.detail}{_with_a_key(error)}", err=True)
            sys.exit(exit_code(error))
        except KeyboardInterrupt:
            click.echo(err=True)
            sys.exit(INTERRUPTED)


def _with_a_key(error: HoldbeatError) -> str:
    """How one hands a key to this command, after a server asked for one or did not know it."""
    return " Name yours with --key, or in HOLDBEAT_KEY." if getattr(error, "status", None) == 401 else ""


def exit_code(error: HoldbeatError) -> int:
    """What a script learns from an error."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return EXIT_BY_STATUS.get(status, 1)
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Shell completion: eval "$(_HOLDBEAT_COMPLETE=bash_source holdbeat)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="holdbeat")
def cli() -> None:
    """Holdbeat: a job scheduler that never lets go of a job.

    \b
    Exit codes: 0 done, 1 refused, 2 not understood, 3 the store must not be used, 4 not found,
    5 not available just now, 130 interrupted.
    """


@click.command(epilog="\b\nExample:\n  holdbeat version")
def version() -> None:
    """Print the version."""
    click.echo(__version__)
