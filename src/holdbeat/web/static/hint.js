// The form of hints: asks for another pace or for one run, and says what came of it.
import { call } from "./actions.js";
import { refresh } from "./live.js";
import { bodyOf, send } from "./make.js";
import { span } from "./times.js";
import { zone } from "./zone.js";

function clock(text) {
  const at = new Date(text);
  const options = { timeZone: zone(), hourCycle: "h23" };
  const isToday = at.toLocaleDateString("sv", options) === new Date().toLocaleDateString("sv", options);
  return isToday ? at.toLocaleTimeString("sv", options) : at.toLocaleString("sv", options);
}

// What the answered schedule says about the hint that was sent.
export function told(sent, schedule) {
  const parts = [];
  if (sent.interval_s !== undefined) parts.push(`every ${span(schedule.hint_interval_s)} until ${clock(schedule.hint_interval_expires_at)}`);
  if (sent.next_run_at !== undefined) parts.push(`one run at ${clock(schedule.hint_next_run_at ?? sent.next_run_at)}`);
  const next = schedule.next_run_at;
  const winner = schedule.last_decision?.winner?.replaceAll("_", " ");
  const then = next
    ? `The next run is at ${clock(next)}${winner ? `, decided by: ${winner}` : ""}.`
    : "It is planned when the run that is in flight has ended.";
  return `Hint set: ${parts.join(", and ")}. ${then}`;
}

async function hint(form) {
  const said = form.querySelector("[data-said]");
  said.hidden = true;
  const body = bodyOf(form);
  const answer = await call("POST", form.dataset.hint, body);
  form.reset();
  said.textContent = told(body, answer);
  said.hidden = false;
  await refresh();
}

export function startHint() {
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-hint]");
    if (!form) return;
    event.preventDefault();
    send(form, () => hint(form));
  });
}
