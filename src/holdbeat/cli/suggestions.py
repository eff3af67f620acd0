"""Suggestions for a mistyped verb or option."""

from __future__ import annotations

from collections.abc import Collection

import click

CREATE_WORDS = ("create", "add")
CREATE = ("create", "set")
"""The verbs that make a thing: each family has one of them, and understands both words for it."""
SYNONYMS = {
    **dict.fromkeys((*CREATE_WORDS, "new"), CREATE),
    "set": ("edit",),
    "remove": ("delete", "revoke", "archive", "reset"),
    "rm": ("delete", "revoke", "archive", "reset"),
    "delete": ("revoke", "archive", "reset"),
    "update": ("edit", "change"),
    "change": ("edit",),
    "get": ("show",),
    "describe": ("show",),
    "ls": ("list", "jobs"),
    "list": ("jobs",),
    "ps": ("top",),
    "status": ("stats",),
    "enqueue": ("submit",),
    "run": ("submit", "trigger"),
    "start": ("serve",),
    "stop": ("cancel",),
    "kill": ("cancel",),
    "--every": ("--interval",),
    "--zone": ("--timezone",),
    "--tz": ("--timezone",),
    "--delay": ("--not-before",),
    "--param": ("--params",),
    "--queue": ("--resource",),
    "--concurrency": ("--slots",),
}
"""What other programs call the same thing, with our names for it."""


def did_you_mean(word: str, names: Collection[str], command_path: str) -> str:
    """The sentence after one that says that `word` does not exist."""
    from difflib import get_close_matches

    meant = {name.lstrip("-"): name for name in names}
    for synonym, own_names in SYNONYMS.items():
        name = next((name for name in own_names if name in names), None)
        if name is not None:
            meant.setdefault(synonym.lstrip("-"), name)
    near = get_close_matches(word.lstrip("-"), meant, 1)
    return f"Did you mean {meant[near[0]]}?" if near else f"{command_path} --help lists all."


def unknown_option(error: click.NoSuchOption) -> click.UsageError:
    """The refusal of an option, with the one that was probably meant."""
    context = error.ctx
    assert context is not None
    usage = " ".join(context.command.collect_usage_pieces(context)).removeprefix("[OPTIONS]")
    if error.option_name.lstrip("-") in {word.strip("[].").lower() for word in usage.split()}:
        return click.UsageError(f"{error.option_name} is no option: give its value as in the usage above.", context)
    names = [name for option in context.command.params for name in (*option.opts, *option.secondary_opts)]
    names = [name for name in names if name.startswith("--")]
    hint = did_you_mean(error.option_name, names, context.command_path)
    return click.UsageError(f"There is no option {error.option_name}. {hint}", context)
