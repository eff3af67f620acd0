"""The style and the script of the page at `/docs`."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  --ground: light-dark(#f5f6f8, #10141c); --card: light-dark(#ffffff, #181e29);
  --sunken: light-dark(#f0f2f5, #121722); --line: light-dark(#e3e6eb, #2a3241); --text: light-dark(#1c2330, #e6e9f0);
  --muted: light-dark(#566072, #9aa5b8); --accent: light-dark(#4355d4, #8e9bff);
  --on-accent: light-dark(#ffffff, #10141c); --accent-soft: light-dark(#eceefc, #232a4a);
  --post: light-dark(#146c35, #4cc27a); --post-soft: light-dark(#e6f4ea, #16301f);
  --delete: light-dark(#b23a09, #ff8a57); --delete-soft: light-dark(#fdeee5, #3a2117);
}
:root[data-theme="light"] { color-scheme: light; }
:root[data-theme="dark"] { color-scheme: dark; }
*, *::before, *::after { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); display: grid; min-height: 100vh;
  grid-template-columns: 214px minmax(0, 1fr); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
h1, h2, h3, p { margin: 0; } b, h1, h2, h3 { font-weight: 620; }
.side { background: var(--card); border-right: 1px solid var(--line); padding: 1.1rem .8rem; position: sticky; top: 0;
  height: 100vh; overflow-y: auto; }
.brand { display: flex; align-items: center; gap: .6rem; font-size: 1.1rem; font-weight: 680; color: inherit;
  text-decoration: none; padding: 0 .5rem .8rem; }
.brand svg { width: 26px; height: 26px; } .brand rect { fill: var(--accent); }
.brand path { fill: none; stroke: var(--on-accent); stroke-width: 2.5; stroke-linecap: round; stroke-linejoin: round; }
.side nav a { display: flex; justify-content: space-between; padding: .3rem .6rem; border-radius: 8px;
  color: var(--muted); text-decoration: none; font-size: .95rem; }
.side nav a:hover { background: var(--sunken); color: var(--text); }
.side nav small { font-size: .78rem; background: var(--sunken); border-radius: 99px; padding: .05rem .45rem; }
.side hr { border: 0; border-top: 1px solid var(--line); margin: .6rem .5rem; }
.contents > summary { display: none; }
main { max-width: 1280px; width: 100%; padding: 1.5rem 2rem 4rem; min-width: 0; }
h1 { font-size: 1.5rem; letter-spacing: -.015em; line-height: 1.25; }
h1 small { font-size: .85rem; font-weight: 400; color: var(--muted); letter-spacing: 0; }
h2 { font-size: 1rem; margin: 1.6rem 0 .6rem; scroll-margin-top: 1rem; }
h3 { font-size: .8rem; color: var(--muted); font-weight: 560; margin: 1rem 0 .35rem; }
a { color: var(--accent); text-underline-offset: 3px; }
.intro { color: var(--muted); margin: .3rem 0 1.1rem; max-width: 90ch; }
.card, .start > div, .folded { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  box-shadow: 0 1px 2px rgb(20 28 45 / 5%), 0 1px 8px rgb(20 28 45 / 4%); }
.start { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem; margin-bottom: 1rem; }
.start > div { padding: .9rem 1.1rem; } .start pre { margin: .5rem 0 0; }
.start p { color: var(--muted); font-size: .9rem; margin-top: .5rem; }
.find span { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.find input { font: inherit; font-size: .93rem; color: var(--text); background: var(--card); height: 2.3rem;
  border: 1px solid var(--line); border-radius: 8px; padding: .34rem .8rem; width: 100%; max-width: 30rem; }
.none { color: var(--muted); margin-top: 1rem; } [hidden] { display: none !important; }
.card { overflow: hidden; } .card > details + details { border-top: 1px solid var(--line); }
.card details[open] > :not(summary), .folded details[open] > :not(summary) { margin-left: 1.2rem;
  margin-right: 1.2rem; }
.card > details[open] { padding-bottom: 1.1rem; background: var(--card); }
summary { cursor: pointer; list-style: none; }
summary::-webkit-details-marker { display: none; }
.card summary, .folded details summary { display: grid; grid-template-columns: 4.2rem minmax(0, 1fr) minmax(0, 1.15fr);
  gap: .9rem; align-items: baseline; padding: .5rem 1.2rem; }
.card summary:hover, .folded summary:hover { background: var(--sunken); }
.card details[open] > summary { background: var(--sunken); margin-bottom: .8rem; }
summary b { font: 600 .72rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; color: var(--accent); text-align: center;
  background: var(--accent-soft); border-radius: 6px; padding: .1rem .3rem; }
summary .post, summary .put, summary .patch { color: var(--post); background: var(--post-soft); }
summary .delete { color: var(--delete); background: var(--delete-soft); }
summary span { color: var(--muted); font-size: .9rem; }
code, pre, textarea { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .87em;
  overflow-wrap: anywhere; }
pre { background: var(--sunken); border-radius: 8px; padding: .6rem .8rem; white-space: pre-wrap; max-height: 26rem;
  overflow: auto; }
table { border-collapse: collapse; font-size: .92rem; width: calc(100% - 2.4rem); }
td { border-top: 1px solid var(--line); padding: .3rem .8rem .3rem 0; vertical-align: top; }
.folded { margin-top: 2rem; } .folded > summary { color: var(--muted); padding: .6rem 1.2rem; }
.folded > summary::before { content: "\\25b8\\00a0"; } .folded[open] > summary::before { content: "\\25be\\00a0"; }
.folded > details { margin: 0 !important; border-top: 1px solid var(--line); }
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
  .side { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line); padding: .55rem 1rem; }
  .brand { padding: 0; } .side hr { display: none; }
  .side nav { display: flex; flex-wrap: wrap; gap: 0 .4rem; align-items: center; padding-top: .3rem; }
  .side nav a { padding: .3rem .5rem; }
  .contents { width: 100%; } .contents > summary { display: block; padding: .3rem .5rem; color: var(--muted); }
  .contents > summary::before { content: "\\25b8\\00a0"; }
  .contents[open] > summary::before { content: "\\25be\\00a0"; }
  .contents[open] { columns: 2; } .contents[open] > summary { column-span: all; }
  main { padding: 1rem 1rem 3rem; }
  .start { grid-template-columns: minmax(0, 1fr); gap: .6rem; }
  .card summary, .folded details summary { grid-template-columns: 3.8rem minmax(0, 1fr); gap: .1rem .7rem;
    padding: .5rem .9rem; }
  summary span { grid-column: 2; }
  .card details[open] > :not(summary), .folded details[open] > :not(summary) { margin-left: .9rem;
    margin-right: .9rem; }
  table { width: calc(100% - 1.8rem); }
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

// Shows the operations and schemas that contain every word; a heading without any goes away.
function find(words) {
  const wanted = words.toLowerCase().split(/\\s+/).filter(Boolean);
  let isAny = false;
  for (const group of document.querySelectorAll("[data-group]")) {
    let isSome = false;
    for (const entry of group.querySelectorAll(".card > details")) {
      const text = entry.querySelector("summary").textContent.toLowerCase();
      entry.hidden = !wanted.every((word) => text.includes(word));
      isSome ||= !entry.hidden;
    }
    group.hidden = !isSome;
    isAny ||= isSome;
  }
  document.querySelector("[data-none]").hidden = isAny;
}
document.querySelector("[data-find]").addEventListener("input", (event) => find(event.target.value));

// A link to an operation or a schema opens it; on a phone the contents are closed at first.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.nodeName === "DETAILS") target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();
if (matchMedia("(max-width: 860px)").matches) document.querySelector(".contents").open = false;

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
  } catch {
    state.textContent = "The server cannot be reached. Check that it is running and try again.";
  } finally {
    button.disabled = false;
  }
});
"""
