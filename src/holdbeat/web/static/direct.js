// The form of direct requests: runs one, counts while it waits, shows what came of it.
import { call, toast } from "./actions.js";
import { span } from "./times.js";

function element(name, words, kind = "") {
  const made = document.createElement(name);
  made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

function paramsOf(form) {
  const text = form.elements.params.value.trim();
  try {
    return text ? JSON.parse(text) : {};
  } catch (error) {
    throw new Error(`Params are not JSON: ${error.message}`);
  }
}

export function startDirect() {
  const form = document.querySelector("[data-direct]");
  if (!form) return;
  const place = document.querySelector("[data-answer]");
  const stop = form.querySelector("[data-stop]");
  const run = form.querySelector("[data-run]");
  let abort = null;

  form.elements.type.addEventListener("change", () => {
    form.elements.params.value = form.elements.type.selectedOptions[0].dataset.example;
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (abort) return;
    abort = new AbortController();
    run.disabled = true;
    stop.hidden = false;
    const began = performance.now();
    const waiting = element("p", "waiting for a slot", "muted");
    place.replaceChildren(waiting);
    const counting = setInterval(() => { waiting.textContent = `asked ${span((performance.now() - began) / 1000)} ago`; }, 250);
    try {
      const body = { params: paramsOf(form) };
      if (form.elements.wait_s.value) body.wait_s = Number(form.elements.wait_s.value);
      const type = encodeURIComponent(form.elements.type.value);
      const answer = await call("POST", `/api/direct/${type}`, body, { signal: abort.signal });
      const figures = `waited ${answer.waited_s.toFixed(2)} s, ran ${answer.ran_s.toFixed(2)} s`;
      place.replaceChildren(
        element("p", `${answer.outcome}: ${figures}`, "outcome"),
        element("pre", JSON.stringify(answer.result ?? answer.reason ?? null, null, 2), "json"),
      );
    } catch (error) {
      const words = error.name === "AbortError" ? "You gave up; the request was cancelled." : error.message;
      place.replaceChildren(element("p", words, "notice bad"));
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
      const job = await call("POST", "/api/jobs", { type: form.elements.type.value, params: paramsOf(form) });
      location.assign(`/ui/jobs/${job.id}`);
    } catch (error) {
      toast(error.message, true);
    }
  });
}
