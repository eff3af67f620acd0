// Sends a request from the page and shows what came back.
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
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}\n…` : text;
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// Shows the operations and schemas that contain every word; a heading without any goes away.
function find(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
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
