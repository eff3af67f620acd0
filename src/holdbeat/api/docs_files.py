"""The style and the script of the page at `/docs`."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  --ground: #f5f6f8; --card: #ffffff; --sunken: #f0f2f5; --line: #e3e6eb; --text: #1c2330; --muted: #566072;
  --accent: #4355d4; --on-accent: #ffffff; --accent-soft: #eceefc; --post: #146c35; --delete: #b23a09;
}
@media (prefers-color-scheme: dark) {
  :root:not([data-theme="light"]) {
    --ground: #10141c; --card: #181e29; --sunken: #121722; --line: #2a3241; --text: #e6e9f0; --muted: #9aa5b8;
    --accent: #8e9bff; --on-accent: #10141c; --accent-soft: #232a4a; --post: #4cc27a; --delete: #ff8a57;
  }
}
:root[data-theme="dark"] {
  color-scheme: dark;
  --ground: #10141c; --card: #181e29; --sunken: #121722; --line: #2a3241; --text: #e6e9f0; --muted: #9aa5b8;
  --accent: #8e9bff; --on-accent: #10141c; --accent-soft: #232a4a; --post: #4cc27a; --delete: #ff8a57;
}
:root[data-theme="light"] { color-scheme: light; }
*, *::before, *::after { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); display: grid; min-height: 100vh;
  grid-template-columns: 214px minmax(0, 1fr); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
.side { background: var(--card); border-right: 1px solid var(--line); padding: 1.1rem .8rem; position: sticky; top: 0;
  height: 100vh; overflow-y: auto; }
.brand { display: flex; align-items: center; gap: .6rem; font-size: 1.1rem; font-weight: 680; color: inherit;
  text-decoration: none; padding: 0 .5rem .8rem; }
.brand svg { width: 26px; height: 26px; } .brand rect { fill: var(--accent); }
.brand path { fill: none; stroke: var(--on-accent); stroke-width: 2.5; stroke-linecap: round; stroke-linejoin: round; }
.side nav a { display: block; padding: .3rem .6rem; border-radius: 8px; color: var(--muted); text-decoration: none; }
.side nav a:hover { background: var(--sunken); color: var(--text); }
.side hr { border: 0; border-top: 1px solid var(--line); margin: .6rem .5rem; }
main { max-width: 66rem; width: 100%; padding: 1.5rem 2rem 4rem; min-width: 0; }
h1 { font-size: 1.5rem; margin: 0 0 .4rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .5rem; } h3 { font-size: .95rem; }
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
code, pre, textarea { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .87em;
  overflow-wrap: anywhere; }
pre { background: var(--sunken); border-radius: 8px; padding: .6rem .8rem; white-space: pre-wrap; max-height: 26rem;
  overflow: auto; }
table { border-collapse: collapse; font-size: .92rem; width: calc(100% - 2rem); }
td { border-top: 1px solid var(--line); padding: .3rem .8rem .3rem 0; vertical-align: top; }
.folded { margin-top: 2rem; } .folded > summary { display: block; color: var(--muted); }
.folded > details { margin: .35rem 1rem; }
.old summary code { text-decoration: line-through; }
.try { display: flex; flex-direction: column; gap: .6rem; background: var(--sunken); border-radius: 10px;
  padding: .8rem; }
.try .fields { display: grid; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); gap: .6rem; }
.try label { display: flex; flex-direction: column; gap: .2rem; font-size: .85rem; color: var(--muted); }
.try input, .try textarea { font: inherit; color: var(--text); background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .35rem .6rem; width: 100%; }
.try textarea { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .87rem; }
.try pre { background: var(--card); margin: 0; }
.try .row { display: flex; gap: .8rem; align-items: center; flex-wrap: wrap; margin: 0; }
.try button { font: inherit; border: 0; border-radius: 8px; background: var(--accent); color: var(--on-accent);
  padding: .4rem 1rem; cursor: pointer; }
@media (max-width: 860px) {
  body { grid-template-columns: minmax(0, 1fr); grid-template-rows: auto 1fr; }
  .side { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line); padding: .8rem 1rem; }
  .side nav { display: flex; flex-wrap: wrap; gap: 0 .3rem; } .side hr { display: none; }
  .side nav a { padding: .15rem .4rem; }
  main { padding: 1rem; }
  summary { grid-template-columns: 4rem minmax(0, 1fr); } summary span { grid-column: 2; }
}
"""

SCRIPT = """// Sends a request from the page and shows what came back.
const LONGEST = 100000;
const STREAM_MS = 3000;

function requestOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value.trim();
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (value && field.dataset.in === "query") query.append(field.name, value);
    else if (value && field.dataset.in === "header") headers[field.name] = value;
  }
  const body = form.elements.body?.value.trim();
  if (body) headers["content-type"] = "application/json";
  const options = { method: form.dataset.method.toUpperCase(), headers, body: body || undefined };
  return [query.size ? `${path}?${query}` : path, options];
}

// A stream has no end: what comes within some seconds is shown.
async function textOf(response) {
  const reader = response.body?.getReader();
  if (!reader) return "";
  const decoder = new TextDecoder();
  const isStream = (response.headers.get("content-type") || "").startsWith("text/event-stream");
  const timer = isStream ? setTimeout(() => reader.cancel(), STREAM_MS) : 0;
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || text.length > LONGEST) break;
    text += decoder.decode(value, { stream: true });
  }
  clearTimeout(timer);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\\n…` : text;
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form.try");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("button");
  const state = form.querySelector("[data-state]");
  const place = form.querySelector("pre");
  button.disabled = true;
  state.textContent = "sending…";
  const began = performance.now();
  try {
    const response = await fetch(...requestOf(form));
    const text = await textOf(response);
    state.textContent = `${response.status} ${response.statusText} after ${Math.round(performance.now() - began)} ms`;
    place.textContent = pretty(text);
    place.hidden = text === "";
  } catch (error) {
    state.textContent = error.message;
  } finally {
    button.disabled = false;
  }
});
"""
