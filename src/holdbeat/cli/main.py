"""The `holdbeat` command: verbs are loaded when they are called, so that each starts at once."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from holdbeat import __version__
from holdbeat.domain.errors import HoldbeatError, Invalid, NotFound, SettingsError, StoreRefused, Unavailable

VERBS: dict[str, tuple[str, str]] = {
    "serve": ("holdbeat.cli.running:serve", "Run everything in one process: API, dashboard, trigger, worker."),
    "worker": ("holdbeat.cli.running:worker", "Add a worker process."),
}
"""Each verb: where it lives, and its one line of help, so that `--help` loads none of them."""

EXIT_CODES = ((Invalid, 2), (SettingsError, 2), (NotFound, 4), (StoreRefused, 3), (Unavailable, 5))
"""What scripts can tell apart; any other refusal is 1."""


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Errors of ours become a sentence and an exit code, not a traceback."""
        try:
            return super().invoke(ctx)
        except HoldbeatError as error:
            click.echo(f"holdbeat: {error.detail}", err=True)
            sys.exit(next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdbeat")
def cli() -> None:
    """Holdbeat: a job scheduler that never lets go of a job."""
