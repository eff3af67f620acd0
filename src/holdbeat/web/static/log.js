// Follows the log and the output of a job or a direct request as they are written; what was written before comes first.
import { element } from "./actions.js";
import { zone } from "./zone.js";

const MOST_LINES = 5000;

export function startLog() {
  const place = document.querySelector("[data-log]");
  if (!place) return;
  const state = document.querySelector("[data-log-state]");
  let count = 0;
  const nothing = element("div", "No log lines yet.", "nothing");
  place.append(nothing);
  const source = new EventSource(`${place.dataset.log}/logs?follow=true`);
  source.onopen = () => { state.textContent = "following"; };
  source.onerror = () => { if (source.readyState !== EventSource.CLOSED) state.textContent = "reconnecting"; };
  source.addEventListener("log", (event) => {
    const line = JSON.parse(event.data);
    const isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 30;
    nothing.remove();
    place.closest(".card").hidden = false;
    const row = element("div", "", `stream-${line.stream}`);
    const time = element("time", new Date(line.at).toLocaleTimeString("sv", { timeZone: zone(), hourCycle: "h23" }));
    time.dateTime = line.at;
    time.title = line.at;
    row.append(time, line.text);
    place.append(row);
    count += 1;
    if (count > MOST_LINES) { place.firstElementChild.remove(); count -= 1; }
    if (isAtEnd) place.scrollTop = place.scrollHeight;
  });
  source.addEventListener("end", () => {
    source.close();
    state.textContent = "complete";
    if (!count) nothing.textContent = "No log lines.";
  });
  addEventListener("pagehide", () => source.close());
}

export function startOutput() {
  const place = document.querySelector("[data-chunks]");
  if (!place) return;
  const card = place.closest(".card");
  const state = card.querySelector("[data-chunks-state]");
  const source = new EventSource(`${place.dataset.chunks}/chunks?follow=true`);
  source.addEventListener("chunk", (event) => {
    const { chunk } = JSON.parse(event.data);
    card.hidden = false;
    state.textContent = "following";
    place.append(typeof chunk === "string" ? chunk : `${JSON.stringify(chunk)}\n`);
  });
  source.addEventListener("end", () => {
    source.close();
    state.textContent = "";
  });
  addEventListener("pagehide", () => source.close());
}
