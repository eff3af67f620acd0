"""The page at `/docs`: the OpenAPI document as plain HTML, without a script and without another server."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

STYLE = """
:root {
  color-scheme: light dark; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  --ground: #f5f6f8; --card: #ffffff; --sunken: #f0f2f5; --line: #e3e6eb; --text: #1c2330; --muted: #566072;
  --accent: #4355d4; --accent-soft: #eceefc; --post: #146c35; --delete: #b23a09;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #10141c; --card: #181e29; --sunken: #121722; --line: #2a3241; --text: #e6e9f0; --muted: #9aa5b8;
    --accent: #8e9bff; --accent-soft: #232a4a; --post: #4cc27a; --delete: #ff8a57;
  }
}
body { margin: 0; background: var(--ground); color: var(--text); }
header { background: var(--card); border-bottom: 1px solid var(--line); padding: .8rem 1.5rem; display: flex;
  gap: 1rem; align-items: center; flex-wrap: wrap; }
header b { font-size: 1.1rem; }
header a, nav a { color: var(--muted); }
main { max-width: 62rem; margin: 0 auto; padding: 1.2rem 1.5rem 4rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem .9rem; margin: .8rem 0 1rem; }
h1 { font-size: 1.5rem; margin: .4rem 0; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; } h3 { font-size: .9rem; }
a { color: var(--accent); text-underline-offset: 3px; }
details { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: .35rem 0; }
details[open] { padding-bottom: .6rem; }
details > :not(summary) { margin-left: 1rem; margin-right: 1rem; }
summary { cursor: pointer; display: grid; grid-template-columns: 4.5rem minmax(0, 1fr) minmax(0, 1.2fr); gap: .8rem;
  align-items: baseline; padding: .5rem 1rem; }
summary:hover { background: var(--sunken); border-radius: 10px; }
summary b { font: 600 .8rem ui-monospace, monospace; color: var(--accent); }
summary .post, summary .put, summary .patch { color: var(--post); } summary .delete { color: var(--delete); }
summary span { color: var(--muted); font-size: .92rem; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .87em; overflow-wrap: anywhere; }
pre { background: var(--sunken); border-radius: 8px; padding: .6rem .8rem; white-space: pre-wrap; max-height: 26rem;
  overflow: auto; }
table { border-collapse: collapse; font-size: .92rem; width: calc(100% - 2rem); }
td { border-top: 1px solid var(--line); padding: .3rem .8rem .3rem 0; vertical-align: top; }
.old summary code { text-decoration: line-through; }
@media (max-width: 700px) { summary { grid-template-columns: 4rem minmax(0, 1fr); } summary span { grid-column: 2; } }
"""


def docs_html(document: dict[str, Any]) -> str:
    """The whole page."""
    by_tag: dict[str, list[str]] = {}
    shapes = document.get("components", {}).get("schemas", {})
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_operation(path, method, operation, shapes))
    sections = "".join(
        f'<h2 id="{_anchor(tag)}">{escape(tag.capitalize())}</h2>{"".join(entries)}' for tag, entries in by_tag.items()
    )
    contents = " ".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in [*by_tag, "shapes"])
    schemas = "".join(
        f'<details id="schema-{escape(name)}"><summary><b>shape</b><code>{escape(name)}</code></summary>'
        f"<pre>{_json(schema)}</pre></details>"
        for name, schema in sorted(shapes.items())
    )
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}</title>"
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/docs/style.css"></head><body>'
        '<header><b>Holdbeat</b><a href="/">← Dashboard</a><a href="/openapi.json">openapi.json</a></header><main>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_text(info.get('description', ''))}</p>"
        f'<nav aria-label="Contents">{contents}</nav>'
        f'{sections}<h2 id="shapes">Shapes</h2>{schemas}</main></body></html>'
    )


def _anchor(tag: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", tag.lower()).strip("-")


def _text(text: str) -> str:
    """Plain text with `code` in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _operation(path: str, method: str, operation: dict[str, Any], shapes: dict[str, Any]) -> str:
    parameters = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}</td>"
        f"<td>{_text(parameter.get('description', ''))}</td></tr>"
        for parameter in operation.get("parameters", ())
    )
    answers = "".join(
        f"<tr><td>{escape(status)}</td><td>{_text(response['description'])}</td><td>{_content(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    body = operation.get("requestBody")
    return (
        f"<details{' class=old' if operation.get('deprecated') else ''}><summary>"
        f'<b class="{escape(method)}">{escape(method.upper())}</b>'
        f"<code>{escape(path)}</code><span>{_text(operation.get('summary', ''))}</span></summary>"
        f"<p>{_text(operation.get('description', ''))}</p>"
        + (f"<h3>Parameters</h3><table>{parameters}</table>" if parameters else "")
        + (f"<h3>Body</h3><p>{_content(body)}</p>" if body else "")
        + f"<h3>Responses</h3><table>{answers}</table>{_try(path, method, body, shapes)}</details>"
    )


def _try(path: str, method: str, body: dict[str, Any] | None, shapes: dict[str, Any]) -> str:
    """How to call it: a link where a browser can, and a command."""
    link = f'<p><a href="{escape(path)}">Open it in the browser</a></p>' if method == "get" and "{" not in path else ""
    command = "curl" if method == "get" else f"curl -X {method.upper()}"
    data = ""
    if body is not None:
        example = _example(body, shapes)
        data = f" -H 'content-type: application/json' -d '{json.dumps(example, ensure_ascii=False)}'"
    return f"<h3>Try it</h3>{link}<pre>{escape(f'{command} http://127.0.0.1:7450{path}{data}')}</pre>"


def _example(body: dict[str, Any], shapes: dict[str, Any]) -> Any:
    schema: dict[str, Any] = next((content.get("schema", {}) for content in body.get("content", {}).values()), {})
    examples = shapes.get(schema.get("$ref", "").rpartition("/")[2], schema).get("examples") or [{}]
    return examples[0]


def _content(documented: dict[str, Any]) -> str:
    parts = []
    for media_type, content in documented.get("content", {}).items():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        link = f'<a href="#schema-{escape(name)}">{escape(name)}</a>' if name else ""
        parts.append(f"{link} <code>{escape(media_type)}</code>")
    return ", ".join(parts)


def _json(value: Any) -> str:
    return escape(json.dumps(value, indent=2, ensure_ascii=False))
