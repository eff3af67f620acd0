"""The page at `/docs`: the OpenAPI document as HTML in the dashboard's style, with a form to try each operation."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

BRAND = (
    '<a class="brand" href="/"><svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8"/>'
    '<path d="M5 17h6l3-8 5 14 3-6h5"/></svg><span>Holdbeat</span></a>'
)


COMPATIBILITY = "compatibility"
"""The tag of routes that only programs written for older servers call: folded at the end, away from newcomers."""


def docs_html(document: dict[str, Any], theme: str | None = None) -> str:
    """The whole page, in the reader's theme."""
    by_tag: dict[str, list[str]] = {}
    shapes = document.get("components", {}).get("schemas", {})
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append(_operation(path, method, operation, shapes))
    old = by_tag.pop(COMPATIBILITY, [])
    sections = "".join(
        f'<section data-group><h2 id="{_anchor(tag)}">{escape(tag.capitalize())}</h2>'
        f'<div class="card">{"".join(entries)}</div></section>'
        for tag, entries in by_tag.items()
    )
    schemas = "".join(
        f'<details id="schema-{escape(name)}"><summary><b>schema</b><code>{escape(name)}</code></summary>'
        f"<pre>{_json(schema)}</pre></details>"
        for name, schema in sorted(shapes.items())
    )
    folded = f'<details class="folded"><summary>Compatibility routes</summary>{"".join(old)}</details>' if old else ""
    info = document["info"]
    return (
        f"{_head(info, theme)}<body>{_side({tag: len(entries) for tag, entries in by_tag.items()}, len(shapes))}<main>"
        f"<h1>API <small>{escape(info['title'])} {escape(info['version'])}</small></h1>"
        f'<p class="intro">{_text(info.get("description", ""))}</p>{START}'
        '<label class="find"><span>Find an operation</span>'
        '<input type="search" placeholder="path, method or words, such as retry" data-find autocomplete="off"></label>'
        '<p class="none" data-none hidden>No operation matches.</p>'
        f'{sections}<section data-group><h2 id="schemas">Schemas</h2><div class="card">{schemas}</div></section>'
        f"{folded}</main></body></html>"
    )


START = (
    '<div class="start"><div><b>First request</b><pre>curl http://127.0.0.1:7450/api/jobs \\\n'
    "  -H 'content-type: application/json' \\\n"
    '  -d \'{"type": "http", "params": {"url": "https://example.com"}}\'</pre></div>'
    "<div><b>With API keys</b><pre>-H 'authorization: Bearer hb_…'</pre>"
    '<p>Without any key the server answers this machine only. <a href="/ui/keys">Create a key</a>; '
    "this page sends requests with your login.</p></div></div>"
)


def _head(info: dict[str, Any], theme: str | None) -> str:
    chosen = f' data-theme="{theme}"' if theme else ""
    return (
        f'<!doctype html><html lang="en"{chosen}><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>API · {escape(info['title'])}</title>"
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/docs/style.css">'
        '<script type="module" src="/docs/try.js"></script></head>'
    )


def _side(counts: dict[str, int], schemas: int) -> str:
    """The contents beside the page; on a phone they are folded, and a script leaves them closed."""
    contents = "".join(
        f'<a href="#{_anchor(tag)}">{escape(tag.capitalize())} <small>{count}</small></a>'
        for tag, count in [*counts.items(), ("schemas", schemas)]
    )
    return (
        f'<header class="side">{BRAND}<nav aria-label="Contents"><a href="/">← Dashboard</a>'
        f'<a href="/openapi.json">openapi.json</a><hr><details class="contents" open><summary>Contents</summary>'
        f"{contents}</details></nav></header>"
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
        + f"{_try(path, method, operation, shapes)}<h3>Responses</h3><table>{answers}</table></details>"
    )


def _try(path: str, method: str, operation: dict[str, Any], shapes: dict[str, Any]) -> str:
    """A form that sends the request from the page, and the command that does the same."""
    fields = "".join(
        f"<label>{escape(parameter['name'])}{'' if parameter.get('required') else ' (optional)'}"
        f'<input name="{escape(parameter["name"])}" data-in="{escape(parameter["in"])}" autocomplete="off"'
        f"{' required' if parameter.get('required') else ''}></label>"
        for parameter in operation.get("parameters", ())
    )
    body = operation.get("requestBody")
    example = None if body is None else _example(body, shapes)
    area = ""
    if body is not None:
        text = escape(json.dumps(example, indent=2, ensure_ascii=False))
        area = f'<label>Body<textarea name="body" rows="{min(12, text.count(chr(10)) + 2)}">{text}</textarea></label>'
    data = (
        "" if body is None else f" -H 'content-type: application/json' -d '{json.dumps(example, ensure_ascii=False)}'"
    )
    command = ("curl" if method == "get" else f"curl -X {method.upper()}") + f" http://127.0.0.1:7450{path}{data}"
    return (
        f'<h3>Try it</h3><form class="try" data-method="{escape(method)}" data-path="{escape(path)}">'
        + (f'<div class="fields">{fields}</div>' if fields else "")
        + f'{area}<p class="row"><button>Send {escape(method.upper())}</button>'
        '<span data-state role="status"></span></p>'
        f"<pre hidden tabindex='0'></pre></form><pre>{escape(command)}</pre>"
    )


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
