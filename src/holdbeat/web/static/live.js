// Listens to the scheduler's events and brings the page up to date: many events, one look.
import { morph } from "./morph.js";
import { updateTimes } from "./times.js";

const SHORTEST_MS = 400;
const TICK_MS = 2000;
let source = null;
let timer = 0;
let isFetching = false;
let asked = null;
let isWanted = false;
let lastCost = 0;
let holds = 0;
let holdsBegun = 0;

export function hold() {
  holds += 1;
  holdsBegun += 1;
  if (asked) asked.abort();
}
export function release() { holds -= 1; if (isWanted) refreshSoon(); }

function show(state, words) {
  const pulse = document.querySelector("[data-pulse]");
  if (!pulse) return;
  pulse.classList.toggle("live", state === "live");
  pulse.classList.toggle("lost", state === "lost");
  // What is on the page may be old until the stream is back.
  document.body.classList.toggle("stale", state === "lost");
  const label = pulse.lastElementChild;
  if (label.textContent !== words) label.textContent = words;
}

function refreshSoon() {
  isWanted = true;
  if (timer || isFetching || document.hidden || holds > 0) return;
  // A page that is dear to make is asked for less often.
  timer = setTimeout(refresh, Math.max(SHORTEST_MS, 4 * lastCost));
}

export async function refresh() {
  clearTimeout(timer);
  timer = 0;
  if (isFetching || holds > 0) { isWanted = true; return; }
  isWanted = false;
  isFetching = true;
  const began = performance.now();
  const holdsBefore = holdsBegun;
  asked = new AbortController();
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, signal: asked.signal });
    if (response.redirected && new URL(response.url).pathname === "/login") { location.assign(response.url); return; }
    if (!response.ok && response.status >= 500) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (holds > 0 || holdsBegun !== holdsBefore) return;
    for (const region of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(region.id);
      if (fresh) morph(region, fresh);
    }
    const now = page.body.dataset.now;
    if (now) document.body.dataset.now = now;
    updateTimes(now);
    document.dispatchEvent(new CustomEvent("holdbeat:fresh"));
  } catch {
    // The server is away: the stream says so, and comes back by itself. Or the fetch was aborted.
  } finally {
    lastCost = performance.now() - began;
    isFetching = false;
    asked = null;
    // What was asked for before the reader moved something would undo it, also if that has ended meanwhile.
    if (holdsBegun !== holdsBefore) isWanted = true;
    if (isWanted) refreshSoon();
  }
}

function connect() {
  if (source) return;
  source = new EventSource("/api/events");
  source.onopen = () => { show("live", "Live"); refreshSoon(); };
  source.onerror = () => {
    show("lost", "Reconnecting");
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => { if (!document.hidden) { refreshSoon(); connect(); } }, 3000);
    }
  };
  for (const name of document.body.dataset.events.split(" ")) source.addEventListener(name, refreshSoon);
}

function disconnect() {
  // A browser opens few connections to one server: pages that nobody sees give theirs back.
  if (source) source.close();
  source = null;
}

export function startLive() {
  if (!document.querySelector("[data-live]")) { show("live", "Up to date"); return; }
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else { connect(); refreshSoon(); }
  });
  addEventListener("pagehide", disconnect);
  // Progress makes no events: while something runs, the page looks by itself.
  setInterval(() => { if (document.querySelector("[data-live][data-ticks=yes]")) refreshSoon(); }, TICK_MS);
}
