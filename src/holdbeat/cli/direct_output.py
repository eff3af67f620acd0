"""How a direct request is printed: its result, or what it emits as it does so."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from typing import Any

import click

from holdbeat.cli.logs import chunk_text
from holdbeat.cli.output import instant, print_json, say, shown, without_controls


def print_direct(answer: Mapping[str, Any], *, as_json: bool) -> None:
    """The result, for people or for programs."""
    if as_json:
        print_json(answer)
    elif answer["outcome"] == "SKIPPED":
        say(f"SKIPPED: {shown(answer.get('reason'))}")
    elif isinstance(answer["result"], str):
        click.echo(without_controls(answer["result"]) if sys.stdout.isatty() else answer["result"])
    else:
        print_json(answer["result"])


def print_stream(messages: Generator[Any, None, None], *, as_json: bool) -> None:
    """Chunks to stdout as they come, news of the wait to stderr; the result only if nothing was emitted."""
    last = ""
    for message in messages:
        if as_json:
            click.echo(json.dumps({"event": message.event, "data": message.data}, ensure_ascii=False))
        elif message.event == "chunk":
            last = chunk_text(message.data["chunk"])
            click.echo(last, nl=False)
        elif message.event == "waiting" and sys.stderr.isatty():
            start = message.data["estimated_start"]
            when = f", starts about {instant(start)}" if start else ""
            click.echo(f"waits for a slot as number {message.data['place']}{when}", err=True)
        elif message.event == "result":
            if last:
                click.echo("" if last.endswith("\n") else "\n", nl=False)
            else:
                print_direct(message.data, as_json=False)
        sys.stdout.flush()
