"""The page at `/docs`: the OpenAPI document as plain HTML, without a script and without a stranger's server."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid #8884; border-radius: .4rem; margin: .4rem 0; padding: .3rem .8rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.5rem; font-family: monospace; }
code, pre { font-family: ui-monospace, monospace; }
pre { overflow-x: auto; background: #8881; padding: .6rem; border-radius: .3rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
.old { opacity: .6; }
"""


def docs_html(document: dict[str, Any]) -> str:
    """The whole page."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_operation(path, method, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(entries)}" for tag, entries in by_tag.items())
    schemas = "".join(
        f'<details id="schema-{escape(name)}"><summary>{escape(name)}</summary><pre>{_json(schema)}</pre></details>'
        for name, schema in sorted(document.get("components", {}).get("schemas", {}).items())
    )
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}</title>"
        '<link rel="stylesheet" href="/docs/style.css"></head><body>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>'
        f"{sections}<h2>Shapes</h2>{schemas}</body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}</td>"
        f"<td>{escape(parameter.get('description', ''))}</td></tr>"
        for parameter in operation.get("parameters", ())
    )
    answers = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td><td>{_content(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    body = operation.get("requestBody")
    return (
        f"<details{' class=old' if operation.get('deprecated') else ''}><summary><b>{escape(method.upper())}</b> "
        f"<code>{escape(path)}</code> {escape(operation.get('summary', ''))}</summary>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        + (f"<h4>Parameters</h4><table>{parameters}</table>" if parameters else "")
        + (f"<h4>Body</h4><p>{_content(body)}</p>" if body else "")
        + f"<h4>Answers</h4><table>{answers}</table></details>"
    )


def _content(documented: dict[str, Any]) -> str:
    parts = []
    for media_type, content in documented.get("content", {}).items():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        link = f'<a href="#schema-{escape(name)}">{escape(name)}</a>' if name else ""
        parts.append(f"{link} <code>{escape(media_type)}</code>")
    return ", ".join(parts)


def _json(value: Any) -> str:
    return escape(json.dumps(value, indent=2, ensure_ascii=False))
