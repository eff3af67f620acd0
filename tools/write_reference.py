"""Writes the pages of reference from the program itself: docs/reference/cli.md, docs/reference/api.md, and the table of
settings in docs/operations.md.

    python -m tools.write_reference            # writes
    python -m tools.write_reference --check    # exit 1 if a page is out of step
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from holdbeat.settings import _BOUNDS, Settings
from holdbeat.web.setting_words import MEANINGS

ROOT = Path(__file__).parents[1]
CLI = ROOT / "docs/reference/cli.md"
API = ROOT / "docs/reference/api.md"
OPERATIONS = ROOT / "docs/operations.md"
SETTINGS_BEGIN, SETTINGS_END = "<!-- settings: begin -->", "<!-- settings: end -->"
MADE = "<!-- Made by `python -m tools.write_reference`: change the program, then run it. -->"
EVERYWHERE = ("400", "401", "403", "404", "405", "413", "421", "422", "500", "503")
"""Refusals that the head of the page speaks of."""


def settings_table() -> str:
    """Every setting with its default and what it means."""
    rows = ["| setting | default | range | meaning |", "| --- | --- | --- | --- |"]
    for field in dataclasses.fields(Settings):
        if field.name == "origins":
            continue
        bounds = _BOUNDS.get(field.name)
        between = f"{bounds[0]:g} – {bounds[1]:,.0f}" if bounds else ""
        rows.append(f"| `{field.name}` | {_default(field.name)} | {between} | {MEANINGS[field.name]} |")
    return "\n".join(rows)


def _default(name: str) -> str:
    value = getattr(Settings(), name)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{value:g}`"
    return f"`{value}`" if value else ""


def operations_page(before: str) -> str:
    """The page with its table of settings made anew."""
    head, _, rest = before.partition(SETTINGS_BEGIN)
    _, _, tail = rest.partition(SETTINGS_END)
    return f"{head}{SETTINGS_BEGIN}\n{settings_table()}\n{SETTINGS_END}{tail}"


def cli_page() -> str:
    """Every verb with its arguments and options."""
    from holdbeat.cli.main import EXIT_CODES_TEXT, cli

    context = click.Context(cli, info_name="holdbeat", color=False)
    parts = [
        "# Command line",
        "",
        MADE,
        "",
        "Commands print tables; with `--json` they print JSON. They work on the store directly, or on a server with",
        f"`--server`. {EXIT_CODES_TEXT}",
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
    from holdbeat.api.app import Api

    # Routes are described before any request comes: all that is asked of the service by then are its settings.
    described: dict[str, Any] = Api(SimpleNamespace(settings=Settings())).openapi  # type: ignore[arg-type]
    return described


def api_page(described: dict[str, Any]) -> str:
    """Every route with its parameters, body and answers."""
    parts = [
        "# HTTP API",
        "",
        MADE,
        "",
        "JSON under `/api`. Lists are `{items, next_cursor}` with `limit` (50, at most 500) and `cursor`. Errors are",
        "`application/problem+json`: `{type, title, status, detail, code, field?}`; the code is stable, the detail",
        "says what to do. A running server has the same at `/openapi.json`, and readable at `/docs`.",
        "",
        "Any route may answer 400 (malformed JSON), 401 and 403 (the key), 404, 405, 413 (more than 1 MB), 421",
        "(unknown Host), 422 (a field is wrong, and `field` names it) and 503 (not available just now, with",
        "`Retry-After`). Routes that refuse for reasons of their own list those.",
        "",
    ]
    by_tag: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).extend(_operation(path, method, operation))
    # Routes for programs that were written for older servers come last.
    for tag, lines in sorted(by_tag.items(), key=lambda item: item[0] == "compatibility"):
        parts += [f"## {tag}", "", *lines]
    parts += ["## Schemas", ""]
    for name, schema in described["components"]["schemas"].items():
        parts += _schema(name, schema)
    return "\n".join(parts).rstrip() + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield ""
    text = operation.get("description") or operation.get("summary") or ""
    yield ("Deprecated. " if operation.get("deprecated") else "") + " ".join(text.split())
    yield ""
    query = [item for item in operation.get("parameters", []) if item.get("in") in ("query", "header")]
    if query:
        yield "| parameter | meaning |"
        yield "| --- | --- |"
        for item in query:
            where = "" if item["in"] == "query" else " (header)"
            yield f"| `{item['name']}`{where} | {_cell(item.get('description') or '')} |"
        yield ""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        yield f"Body: {_schema_name(body)}."
        yield ""
    answers = [
        f"{code} {_answer(item)}".strip()
        for code, item in operation.get("responses", {}).items()
        if code not in EVERYWHERE
    ]
    yield f"Answers: {'; '.join(answers)}."
    yield ""


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    fields = schema.get("properties", {})
    yield f"### {name}"
    yield ""
    if not fields:
        yield schema.get("description") or f"{_type(schema).capitalize()}."
        yield ""
        return
    yield "| field | type | |"
    yield "| --- | --- | --- |"
    required = schema.get("required", [])
    for field, of in fields.items():
        default = f"default `{json.dumps(of['default'])}`" if of.get("default") is not None else ""
        note = ". ".join(filter(None, ["required" if field in required else default, of.get("description")]))
        yield f"| `{field}` | {_cell(_type(of))} | {_cell(note)} |"
    yield ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(item) for item in schema[several]))
    if "enum" in schema:
        return ", ".join(f"`{item}`" for item in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")


def _answer(answer: dict[str, Any]) -> str:
    forms = answer.get("content", {})
    if "application/problem+json" in forms:
        return ""
    output = " or ".join(_schema_name(content.get("schema", {})) or media for media, content in forms.items())
    headers = [f"`{name}`" for name in ("ETag", "Location") if name in answer.get("headers", {})]
    return " with ".join(filter(None, [output, " and ".join(headers)]))


def _schema_name(schema: dict[str, Any]) -> str:
    reference = schema.get("$ref", "").rpartition("/")[2]
    return f"[{reference}](#{reference.lower()})" if reference else ""


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
