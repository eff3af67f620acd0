"""The `holdbeat` command: verbs are loaded when they are called, so that each starts at once."""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Any

import click

from holdbeat import __version__
from holdbeat.domain.errors import HoldbeatError, Invalid, NotFound, SettingsError, StoreRefused, Unavailable

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "serve": ("holdbeat.cli.serve:serve", "Run everything in one process: API, dashboard, worker."),
        "worker": ("holdbeat.cli.serve:worker", "Add a worker process."),
        "demo": ("holdbeat.demo:demo", "Serve an example with work to watch."),
    },
    "Now": {
        "top": ("holdbeat.cli.top:top", "Watch slots, queue, direct requests and workers live."),
        "queue": ("holdbeat.cli.queue:queue", "List, reorder, pause and resume the queue."),
        "attention": ("holdbeat.cli.system:attention", "List what needs a person, since when, and what to do."),
        "questions": ("holdbeat.cli.durable:questions", "List the questions that handlers ask."),
        "answer": ("holdbeat.cli.durable:answer", "Answer a question."),
        "stats": ("holdbeat.cli.system:stats", "Print counts of jobs, slots, runs and incidents."),
    },
    "Work": {
        "submit": ("holdbeat.cli.submitting:submit", "Submit a job."),
        "jobs": ("holdbeat.cli.jobs:jobs", "List jobs."),
        "show": ("holdbeat.cli.jobs:show_job", "Show a job with its run."),
        "logs": ("holdbeat.cli.logs:logs", "Print the log of a job."),
        "explain": ("holdbeat.cli.jobs:explain", "Explain why a job or a direct request waits, runs or ended."),
        "cancel": ("holdbeat.cli.jobs:cancel", "Cancel jobs."),
        "retry": ("holdbeat.cli.jobs:retry", "Retry jobs."),
        "rerun": ("holdbeat.cli.durable:rerun", "Run a chain that has ended once more, from a step."),
        "change": ("holdbeat.cli.jobs:change", "Change a job that is still QUEUED."),
        "move": ("holdbeat.cli.jobs:move", "Move a QUEUED job within its priority."),
        "signal": ("holdbeat.cli.durable:signal", "Send a signal to a job's chain."),
        "steps": ("holdbeat.cli.durable:steps", "List the steps that a job's chain has kept."),
        "graph": ("holdbeat.cli.durable:graph", "Print what a job depends on and what depends on it."),
        "groups": ("holdbeat.cli.groups:groups", "Groups of jobs, in sequence or in parallel."),
        "templates": ("holdbeat.cli.templates:templates", "Named defaults for jobs."),
        "direct": ("holdbeat.cli.submitting:direct", "Run a job type in the next free slot and print its result."),
        "reservations": (
            "holdbeat.cli.reservations:reservations",
            "List, show, cancel, take and release reservations.",
        ),
        "slot": ("holdbeat.cli.reservations:slot", "Run a command while holding a slot of a resource."),
    },
    "Time": {
        "schedules": ("holdbeat.cli.schedules:schedules", "Create jobs by cron or interval."),
        "endpoints": ("holdbeat.cli.schedules:endpoints", "Call URLs on adaptive schedules."),
    },
    "System": {
        "workers": ("holdbeat.cli.system:workers", "List the workers that are alive."),
        "limits": ("holdbeat.cli.limits:limits", "List, set and reset limits on work."),
        "types": ("holdbeat.cli.system:types", "List the job types that are known."),
        "webhooks": ("holdbeat.cli.webhooks:webhooks", "URLs that are told how jobs end."),
        "deliveries": ("holdbeat.cli.webhooks:deliveries", "Webhook messages."),
        "events": ("holdbeat.cli.logs:events", "Find events by text, name, actor or time."),
        "watch": ("holdbeat.cli.logs:watch_events", "Print events as they happen."),
        "keys": ("holdbeat.cli.keys:keys", "API keys."),
        "doctor": ("holdbeat.cli.doctor:doctor", "Print settings with their origin, versions, and what is wrong."),
    },
    "Store": {
        "backup": ("holdbeat.cli.maintenance:backup", "Copy a SQLite store while it is in use."),
        "restore": ("holdbeat.cli.maintenance:restore", "Replace the store with a backup."),
        "prune": ("holdbeat.cli.maintenance:prune", "Delete old records."),
        "recover": ("holdbeat.cli.maintenance:recover", "Repair what a dead worker left behind."),
        "migrate": ("holdbeat.cli.maintenance:migrate", "Bring a store's schema up to date."),
        "move-store": ("holdbeat.cli.maintenance:move_store", "Move a store from SQLite to PostgreSQL."),
    },
    "Other": {
        "bench": ("holdbeat.bench.command:bench", "Measure this machine."),
        "torture": ("holdbeat.torture.command:torture", "Try to break Holdbeat on this machine, and judge it."),
        "version": ("holdbeat.cli.main:version", "Print the version."),
    },
}
"""The verbs in the sections of `--help`, which are those of the dashboard's menu, each with its place and its one line
of help: `--help` loads none of them."""
VERBS = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}

EXIT_CODES_TEXT = (
    "Exit codes: 0 done, 1 refused or failed, 2 wrong input or settings, 3 the store cannot be used, 4 not found, "
    "5 not available just now, 130 interrupted."
)
EXIT_CODES = ((Invalid, 2), (SettingsError, 2), (NotFound, 4), (StoreRefused, 3), (Unavailable, 5))
"""What scripts can tell apart; any other refusal is 1."""
EXIT_BY_STATUS = {400: 2, 413: 2, 422: 2, 404: 4, 503: 5}
"""The same for refusals of a server."""
INTERRUPTED = 130


_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self._unknown_option(error) from None

    @staticmethod
    def _unknown_option(error: click.NoSuchOption) -> click.UsageError:
        from holdbeat.cli.suggestions import unknown_option

        return unknown_option(error)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from holdbeat.cli.suggestions import did_you_mean

            ctx.fail(f"There is no verb {args[0]!r}. {did_you_mean(args[0], VERBS, ctx.command_path)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # One width for all sections, so that their columns are aligned.
        width = max(len(name) for name in VERBS) + 2
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width - 2), line) for name, (_, line) in verbs.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Output that cannot be written, such as `--help` on a full disk, becomes a sentence and an exit code."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
                raise
            click.echo(f"holdbeat: The output could not be written: {error.strerror}.", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Errors of ours become a sentence and an exit code, not a traceback; so does Ctrl-C."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise self._unknown_option(error) from None
        except HoldbeatError as error:
            with_a_key = " Name yours with --key, or in HOLDBEAT_KEY." if getattr(error, "status", None) == 401 else ""
            click.echo(f"holdbeat: {error.detail}{with_a_key}", err=True)
            sys.exit(exit_code(error))
        except KeyboardInterrupt:
            click.echo(err=True)
            sys.exit(INTERRUPTED)


def exit_code(error: HoldbeatError) -> int:
    """The exit code for an error."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return EXIT_BY_STATUS.get(status, 1)
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


@click.group(
    cls=LazyGroup,
    help=f"Holdbeat: a job scheduler that never lets go of a job.\n\n{EXIT_CODES_TEXT}",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Shell completion: eval "$(_HOLDBEAT_COMPLETE=bash_source holdbeat)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="holdbeat")
def cli() -> None:
    """The command `holdbeat`."""


@click.command(epilog="\b\nExample:\n  holdbeat version")
def version() -> None:
    """Print the version."""
    click.echo(__version__)
