"""Writes the pages of reference from the program itself: docs/reference/cli.md, docs/reference/api.md, and the table of
settings in docs/operations.md.

    python -m tools.write_reference            # writes
    python -m tools.write_reference --check    # exit 1 if a page is out of step
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdbeat.settings import _BOUNDS, Settings

ROOT = Path(__file__).parents[1]
CLI = ROOT / "docs/reference/cli.md"
API = ROOT / "docs/reference/api.md"
OPERATIONS = ROOT / "docs/operations.md"
SETTINGS_BEGIN, SETTINGS_END = "<!-- settings: begin -->", "<!-- settings: end -->"
MADE = "<!-- Made by `python -m tools.write_reference`: change the program, then run it. -->"

MEANINGS = {
    "store": "where everything is kept: `sqlite:///file.db` or `postgresql://…`",
    "host": "address to listen on; anything but loopback needs an API key",
    "port": "port of the API and the dashboard; 0 takes a free one",
    "slots": "how many jobs one worker process runs at once",
    "http_slots": "how many calls on the resource `http` one worker process makes at once",
    "concurrency": "limits over all workers: `resources:…`, `per_type:…`, `global:N`, `unlimited`",
    "lease_s": "how long a claim is good without a heartbeat",
    "heartbeat_s": "how often leases are renewed; must be shorter than the lease",
    "grace_s": "how long recovery waits beyond the end of a lease",
    "recover_s": "how often each process looks for work whose worker is gone",
    "shutdown_grace_s": "how long a shutdown lets jobs finish before it asks them to end",
    "direct_wait_s": "how long a direct request waits for a slot",
    "reservation_s": "how long a reservation is good without its owner's sign of life",
    "horizon_s": "how far ahead the trigger reads due times",
    "trigger_batch": "how many due times are fired in one transaction",
    "aging_s": "a waiting job gains one priority for each such period; 0 is off",
    "retention_days": "how long ended work is kept; 0 keeps everything",
    "allow_shell": "whether `shell` jobs may run",
    "legacy_api": "whether the old `/jobs` routes answer",
    "direct_routes": "extra paths for direct requests, `{path: type}`",
    "outbound_allow": "private or loopback hosts and networks that HTTP jobs and webhooks may call",
    "allowed_hosts": "names by which the server may be called besides its address",
    "artifact_dir": "folder for artifacts that all workers share",
    "log_level": "`debug`, `info`, `warning` or `error`",
    "log_format": "`text`, or `json` with one object to a line",
}


def settings_table() -> str:
    """Every setting with its default and what it means."""
    rows = ["| setting | default | range | meaning |", "| --- | --- | --- | --- |"]
    for field in dataclasses.fields(Settings):
        if field.name == "origins":
            continue
        default = getattr(Settings(), field.name)
        low_high = _BOUNDS.get(field.name)
        bounds = f"{low_high[0]:g} – {low_high[1]:,.0f}" if low_high else ""
        shown = "" if default in (None, (), {}) else f"`{str(default).lower() if default in (True, False) else default}`"
        if isinstance(default, int | float) and not isinstance(default, bool):
            shown = f"`{default:g}`"
        rows.append(f"| `{field.name}` | {shown} | {bounds} | {MEANINGS[field.name]} |")
    return "\n".join(rows)


def operations_page(before: str) -> str:
    """The page with its table of settings made anew."""
    head, _, rest = before.partition(SETTINGS_BEGIN)
    _, _, tail = rest.partition(SETTINGS_END)
    return f"{head}{SETTINGS_BEGIN}\n{settings_table()}\n{SETTINGS_END}{tail}"


def cli_page() -> str:
    """Every verb with its arguments and options."""
    from holdbeat.cli.main import cli

    context = click.Context(cli, info_name="holdbeat", color=False)
    parts = [
        "# Command line",
        "",
        MADE,
        "",
        "Tables for people, `--json` for programs. Verbs that read and steer work on the store itself, or on a server with",
        "`--server`. Exit codes: 0 done, 1 refused or failed, 2 wrong input or settings, 3 the store refuses, 4 not found,",
        "5 not available just now, 130 interrupted.",
        "",
    ]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None and not command.hidden:
            parts += _command(command, [name], context)
    return "\n".join(parts).rstrip() + "\n"


def _command(command: click.Command, words: list[str], parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=words[-1], parent=parent)
    yield f"{'#' * (len(words) + 1)} {' '.join(words)}"
    yield ""
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"`holdbeat {' '.join(words)} {pieces}`"
    yield ""
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        yield " ".join(paragraph.split())
        yield ""
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        yield "| option | meaning |"
        yield "| --- | --- |"
        for option in options:
            record = option.get_help_record(context)
            if record is not None:
                yield f"| `{_cell(record[0])}` | {_cell(record[1])} |"
        yield ""
    example = (command.epilog or "").replace("\b", "").strip()
    if example:
        lines = [line.strip() for line in example.splitlines() if line.strip().startswith("holdbeat ")]
        yield from ("```sh", *lines, "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _command(child, [*words, name], context)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def openapi() -> dict[str, Any]:
    """The API as a server with nothing but defaults describes it."""
    from holdbeat.api.openapi import describe  # type: ignore[import-not-found,unused-ignore]

    described: dict[str, Any] = describe()
    return described


def api_page(described: dict[str, Any]) -> str:
    """Every route with its parameters, body and answers."""
    parts = [
        "# HTTP API",
        "",
        MADE,
        "",
        "JSON under `/api`. Lists are `{items, next_cursor}` with `limit` (50, at most 500) and `cursor`. Errors are",
        "`application/problem+json`: `{type, title, status, detail, code, field?}`; the code is stable, the detail says what",
        "to do. A running server has the same at `/openapi.json`, and readable at `/docs`.",
        "",
    ]
    by_tag: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).extend(_operation(path, method, operation))
    for tag, lines in by_tag.items():
        parts += [f"## {tag}", "", *lines]
    return "\n".join(parts).rstrip() + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield ""
    text = operation.get("description") or operation.get("summary") or ""
    yield ("Deprecated. " if operation.get("deprecated") else "") + " ".join(text.split())
    yield ""
    query = [each for each in operation.get("parameters", []) if each.get("in") in ("query", "header")]
    if query:
        yield "| parameter | meaning |"
        yield "| --- | --- |"
        for each in query:
            where = "" if each["in"] == "query" else " (header)"
            yield f"| `{each['name']}`{where} | {_cell(each.get('description') or '')} |"
        yield ""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        yield f"Body: {_schema_name(body)}."
        yield ""
    answers = [f"{code} {_answer(each)}".strip() for code, each in operation.get("responses", {}).items()]
    yield f"Answers: {'; '.join(answers)}."
    yield ""


def _answer(answer: dict[str, Any]) -> str:
    for media, content in answer.get("content", {}).items():
        if media == "application/problem+json":
            return ""
        return _schema_name(content.get("schema", {})) or media
    return ""


def _schema_name(schema: dict[str, Any]) -> str:
    reference = schema.get("$ref", "").rpartition("/")[2]
    return f"`{reference}`" if reference else ""


def pages() -> dict[Path, str]:
    """What each page should say."""
    return {CLI: cli_page(), API: api_page(openapi()), OPERATIONS: operations_page(OPERATIONS.read_text("utf-8"))}


def main() -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of step: run python -m tools.write_reference")
        return 1 if stale else 0
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"{len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
