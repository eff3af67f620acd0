// The form of direct requests: runs one, counts while it waits, shows what came of it.
import { call, element, reach } from "./actions.js";
import { bodyOf, forgetAll, refuse } from "./make.js";
import { span } from "./times.js";

function cutOff() {
  return new Error("The connection to the server was lost before the response came. The list below shows what became of the request.");
}

async function* events(url, body, signal) {
  const headers = { "content-type": "application/json", accept: "text/event-stream" };
  const response = await reach(url, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!response.ok) {
    const problem = await response.json().catch(() => null);
    throw Object.assign(new Error((problem && problem.detail) || `The server answered ${response.status}.`), { answer: problem });
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => { throw error.name === "AbortError" ? error : cutOff(); });
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const name = /^event: (.*)$/m.exec(message);
      const data = /^data: (.*)$/m.exec(message);
      if (name && data) yield [name[1], JSON.parse(data[1])];
    }
  }
}

function show(place, answer, output) {
  const figures = `waited ${answer.waited_s.toFixed(2)} s, ran ${answer.ran_s.toFixed(2)} s`;
  const link = element("a", "Details");
  link.href = `/ui/reservations/${answer.reservation_id}`;
  const outcome = element("p", `${answer.outcome}: ${figures} `, "outcome");
  outcome.append(link);
  const result = element("pre", JSON.stringify(answer.result ?? answer.reason ?? null, null, 2), "json");
  place.replaceChildren(outcome, ...(output.textContent ? [output] : []), result);
}

export function startDirect() {
  const form = document.querySelector("[data-direct]");
  if (!form) return;
  const place = document.querySelector("[data-answer]");
  const stop = form.querySelector("[data-stop]");
  const run = form.querySelector("[data-run]");
  let abort = null;

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (abort) return;
    forgetAll(form);
    abort = new AbortController();
    run.disabled = true;
    stop.hidden = false;
    const began = performance.now();
    const state = element("p", "waiting for a slot", "muted");
    const output = element("pre", "", "text-result");
    place.replaceChildren(state, output);
    let doing = "asked";
    let isAnswered = false;
    const counting = setInterval(() => { state.textContent = `${doing}, ${span((performance.now() - began) / 1000)}`; }, 250);
    try {
      const { type, ...body } = bodyOf(form);
      for await (const [name, data] of events(`/api/direct/${encodeURIComponent(type)}`, body, abort.signal)) {
        if (name === "waiting") doing = data.place > 1 ? `waiting for a slot, number ${data.place} in line` : "waiting for the next slot";
        if (name === "granted") doing = "running";
        if (name === "progress") doing = `running${data.fraction === null ? "" : ` ${Math.round(data.fraction * 100)} %`}${data.message ? `, ${data.message}` : ""}`;
        if (name === "chunk") output.append(typeof data.chunk === "string" ? data.chunk : `${JSON.stringify(data.chunk)}\n`);
        if (name === "problem") throw new Error(data.detail);
        if (name === "result") { isAnswered = true; show(place, data, output); }
      }
      if (!isAnswered) throw cutOff();
    } catch (error) {
      const words = error.name === "AbortError" ? "You cancelled the request." : error.message;
      place.replaceChildren(element("p", words, "notice bad"));
      if (error.answer?.field) refuse(form, error);
    } finally {
      clearInterval(counting);
      abort = null;
      run.disabled = false;
      stop.hidden = true;
    }
  });
  stop?.addEventListener("click", () => abort?.abort());
  form.querySelector("[data-enqueue]")?.addEventListener("click", async () => {
    try {
      forgetAll(form);
      const { wait_s: ignored, ...body } = bodyOf(form);
      const job = await call("POST", "/api/jobs", body);
      location.assign(`/ui/jobs/${job.id}`);
    } catch (error) {
      refuse(form, error);
    }
  });
}
