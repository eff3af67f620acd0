"""Options of all verbs: an example in their help, where to find the jobs, and how to answer."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, get_args

import click

from holdbeat.cli.output import Drawn, show, show_list
from holdbeat.schemas.field_bounds import PRIORITY_MAX

Function = Callable[..., Any]

STORE = click.option("--store", metavar="URL", help="The store: sqlite:///file.db or postgresql://… (HOLDBEAT_STORE).")
SERVER = click.option(
    "--server", metavar="URL", envvar="HOLDBEAT_SERVER", help="Ask a server instead of a store (HOLDBEAT_SERVER)."
)
KEY = click.option("--key", metavar="KEY", envvar="HOLDBEAT_KEY", help="The API key for the server (HOLDBEAT_KEY).")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, as the API does.")
WATCH = click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0.1, max=3600),
    metavar="[SECONDS]",
    help="Repeat until Ctrl-C (every 2 s).",
)
LIMIT = click.option("--limit", type=click.IntRange(1, 500), help="How many at most (50).")
PRIORITY = click.option("--priority", type=click.IntRange(0, PRIORITY_MAX), help="0 to 100, higher first.")
LABELS = click.option("--label", "label_words", multiple=True, metavar="NAME=VALUE", help="A label; may be repeated.")
CURSOR = click.option("--cursor", help="Continue a list from the cursor of the previous page.")


def words_of(schema: Any) -> click.Choice[str]:
    """A choice among the words that a field of the API takes, in upper or lower case."""
    return click.Choice(get_args(schema), case_sensitive=False)


class ListingGroup(click.Group):
    """A family of verbs that lists when none of them is named: `queue --json` is `queue list --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # A shell that completes the name of a verb has not named one yet: then it must see all of them.
        names_none = not args and not ctx.resilient_parsing
        if names_none or (args and args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            from holdbeat.cli.suggestions import CREATE, CREATE_WORDS, did_you_mean

            word, *rest = args
            same = [name for name in CREATE if word in CREATE_WORDS and name in self.commands]
            if not same and not word.startswith("-") and not ctx.resilient_parsing:
                ctx.fail(f"There is no verb {word!r}. {did_you_mean(word, self.commands, ctx.command_path)}")
            args = [*same[:1], *rest] if same else args
        return super().resolve_command(ctx, args)


def example(*lines: str) -> str:
    """Examples at the end of a verb's help, exactly as they are typed."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *[f"  {line}" for line in lines]])


def with_options(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several options, in the order in which help lists them."""

    def decorated(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def reaching(function: Function) -> Function:
    """Gives the function a Backend: the store or the server that the options name."""
    return _reaching(function, create=False)


def reaching_or_creating(function: Function) -> Function:
    """`reaching`, for a verb that may be the first one on a new store."""
    return _reaching(function, create=True)


def _reaching(function: Function, *, create: bool) -> Function:
    def reached(obj: Any, /, store: str | None, server: str | None, key: str | None, **options: Any) -> Any:
        from holdbeat.cli import backend

        with backend.reached(obj, store, server, key, create=create) as connected:
            return function(connected, **options)

    return STORE(SERVER(KEY(_in_the_place_of(function, click.pass_obj(reached)))))


def printing(
    draw: Callable[[Any], Sequence[Drawn]], *, is_watched: bool = False, is_paged: bool = False
) -> Callable[[Function], Function]:
    """Gives the function a Backend, and prints what it returns: drawn for a person, with `--json` as the API says it.

    A page is a list with `--limit` and `--cursor`. What is watched, pages among it, is fetched again with `--watch`.
    """
    options = [*([LIMIT, CURSOR] if is_paged else []), *([WATCH] if is_watched or is_paged else []), JSON]

    def decorated(function: Function) -> Function:
        def printed(backend: Any, as_json: bool, watch: float | None = None, **arguments: Any) -> None:
            if WATCH in options:
                show_list(lambda: function(backend, **arguments), draw, as_json=as_json, watch=watch)
            else:
                show(function(backend, **arguments), draw, as_json=as_json)

        return with_options(*options)(reaching(_in_the_place_of(function, printed)))

    return decorated


def _in_the_place_of(function: Function, wrapper: Function) -> Function:
    """The wrapper with the name, the help and the options that the function has been given so far."""
    return functools.update_wrapper(wrapper, function)


def say_which_store(settings: Any, store: str | None) -> None:
    """For verbs that only work on a store: says which store, if a server is set for the other verbs."""
    if store is None and os.environ.get("HOLDBEAT_SERVER"):
        from holdbeat.domain.store_url import without_password

        click.echo(
            f"HOLDBEAT_SERVER is set, but this verb works on a store itself: {without_password(settings.store)}",
            err=True,
        )


def on_store(function: Function) -> Function:
    """Gives the function the settings and the opened store: for verbs that no server offers."""

    def opened(obj: Any, /, store: str | None, **options: Any) -> Any:
        settings = obj.settings({"store": store})
        say_which_store(settings, store)
        connected = obj.open_store(settings)
        try:
            return function(settings, connected, **options)
        finally:
            connected.close()

    return STORE(_in_the_place_of(function, click.pass_obj(opened)))
