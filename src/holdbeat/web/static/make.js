// Forms that make or change something. What the API refuses is said beside the field, in its words, and what was typed stays.
import { call, element, leave, toast } from "./actions.js";
import { span, updateTimes } from "./times.js";
import { instantOf } from "./zone.js";

const PREVIEW_MS = 350;

class NotJson extends Error {
  constructor(name, words) {
    super(words);
    this.answer = { field: name, detail: words };
  }
}

// Written as name=value, name=value.
function labelsOf(text) {
  const labels = {};
  for (const part of text.split(",").map((each) => each.trim()).filter(Boolean)) {
    const [name, ...value] = part.split("=");
    if (!value.length) throw new NotJson("labels", `Write ${part} as name=value.`);
    labels[name.trim()] = value.join("=").trim();
  }
  return labels;
}

function valueOf(field) {
  const text = field.value.trim();
  if (text === "") return undefined;
  switch (field.dataset.kind) {
    // What is no number goes as it is: the API knows best what to say about it.
    case "number": return Number.isNaN(Number(text)) ? text : Number(text);
    case "span": {
      const unit = Number(field.parentElement.querySelector("[data-unit]").value);
      return Number.isNaN(Number(text)) ? text : Number(text) * unit;
    }
    case "instant": return instantOf(text);
    case "labels": return labelsOf(text);
    case "json":
      try {
        return JSON.parse(text);
      } catch (error) {
        const name = field.name || `params.${field.dataset.param}`;
        throw new NotJson(name, `${name} is not JSON: ${error.message}`);
      }
    default: return text;
  }
}

// The params of the fields that a type's schema has made; a box that stands as it did is left to the default.
function paramsOf(place) {
  const params = {};
  for (const field of place.querySelectorAll("[data-param]")) {
    if (field.closest("[hidden]")) continue;
    if (field.dataset.kind === "flag") {
      if (String(field.checked) !== field.dataset.default) params[field.dataset.param] = field.checked;
      continue;
    }
    const value = valueOf(field);
    if (value !== undefined) params[field.dataset.param] = value;
  }
  return params;
}

// The jobs of a group: one for each row, with the fields of its type or one text of JSON.
function rowsOf(form) {
  return [...form.querySelectorAll("[data-job-row]")].map((row, index) => {
    const text = row.querySelector("[data-of-type]:not([hidden]) [data-row=params]")?.value.trim();
    try {
      return { type: row.querySelector("[data-row=type]").value, params: text ? JSON.parse(text) : paramsOf(row) };
    } catch (error) {
      throw new NotJson("jobs", `The params of job ${index + 1} are not JSON: ${error.message}`);
    }
  });
}

export function bodyOf(form) {
  const body = {};
  const hasRows = form.querySelector("[data-rows]") !== null;
  if (hasRows) body.jobs = rowsOf(form);
  const params = hasRows ? {} : paramsOf(form);
  if (Object.keys(params).length) body.params = params;
  for (const field of form.elements) {
    if (!field.name || field.closest("[hidden]") || field.dataset.chooses !== undefined) continue;
    if (field.dataset.kind === "flag") {
      if (field.checked) body[field.name] = true;
    } else if (field.dataset.kind === "list") {
      if (field.checked) (body[field.name] ??= []).push(field.value);
    } else if (field.dataset.kind === "one") {
      if (field.checked) body[field.name] = field.value;
    } else if (field.name === "what") {
      const [kind, ...name] = field.value.split(":");
      body[kind] = name.join(":");
    } else {
      const value = valueOf(field);
      if (value !== undefined) body[field.name] = value;
    }
  }
  return body;
}

function forget(place) {
  const said = place.querySelector(".field-error");
  if (!said || said.hidden) return;
  said.hidden = true;
  said.textContent = "";
  place.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
}

export function forgetAll(form) {
  form.querySelectorAll("[data-field]").forEach(forget);
  const refusal = form.querySelector("[data-refusal]");
  if (refusal) refusal.hidden = true;
}

export function refuse(form, error) {
  const named = (error.answer && error.answer.field) || "";
  const head = named.split(/[.[]/)[0];
  const places = [...form.querySelectorAll("[data-field]")].filter((each) => !each.closest("[hidden]"));
  const place = [named, head].map((name) => places.find((each) => name && each.dataset.field.split(" ").includes(name))).find(Boolean);
  if (!place) {
    const refusal = form.querySelector("[data-refusal]");
    refusal.textContent = error.message;
    refusal.hidden = false;
    return;
  }
  const details = place.closest("details");
  if (details) details.open = true;
  const said = place.querySelector(".field-error");
  said.textContent = error.message;
  said.hidden = false;
  const field = place.querySelector("input, textarea, select");
  field.setAttribute("aria-invalid", "true");
  field.focus();
}

function show(answer, section, form) {
  for (const place of section.querySelectorAll("[data-shown]")) place.textContent = answer[place.dataset.shown];
  for (const button of section.querySelectorAll("[data-copies]")) button.dataset.copy = answer[button.dataset.copies];
  form.closest("section").hidden = true;
  section.hidden = false;
  section.focus();
}

async function make(form) {
  const answer = await call("POST", form.dataset.make, bodyOf(form));
  // The first key of a server closes it: whoever made that key stays logged in with it.
  if (form.dataset.logsIn !== undefined) await call("POST", "/login", { key: answer.key });
  if (form.dataset.shows) {
    show(answer, document.getElementById(form.dataset.shows), form);
    toast(form.dataset.done);
  } else {
    leave(form.dataset.go + answer.id, form.dataset.done);
  }
}

// What differs from what was there; a field that was emptied, or that is hidden now, is taken back or goes to what it is
// otherwise.
function changesIn(form, before) {
  const after = bodyOf(form);
  const changes = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (JSON.stringify(before[name]) === JSON.stringify(after[name])) continue;
    // A type or a template is chosen in one field.
    const { otherwise: text, kind } = (form.elements[name] ?? form.elements.what).dataset;
    const otherwise = kind === "span" && text ? Number(text) : text;
    if (!(name in after) && otherwise === before[name]) continue;
    changes[name] = after[name] ?? otherwise ?? (before[name] === true ? false : null);
  }
  return changes;
}

async function change(form, before) {
  const changes = changesIn(form, before);
  if (Object.keys(changes).length === 0) { leave(form.dataset.go, "Nothing was changed"); return; }
  await call("PATCH", form.dataset.change, changes, { headers: { "if-match": `"${form.dataset.version}"` } });
  leave(form.dataset.go, form.dataset.done);
}

// Sends what a form says, while its buttons rest.
export async function send(form, sending) {
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => { each.disabled = true; });
  forgetAll(form);
  let refused = null;
  try {
    await sending();
  } catch (error) {
    refused = error;
  } finally {
    buttons.forEach((each) => { each.disabled = false; });
  }
  if (refused) refuse(form, refused);
}

function startChoices(form) {
  const choose = () => {
    const chosen = new Set([...form.querySelectorAll("[data-chooses]:checked")].map((radio) => radio.value));
    for (const place of form.querySelectorAll("[data-choice]")) place.hidden = !chosen.has(place.dataset.choice);
  };
  if (!form.querySelector("[data-chooses]")) return;
  form.addEventListener("change", choose);
  choose();
}

// Parts of a form that do not apply while a box is ticked.
function startExceptions(form) {
  const look = () => {
    for (const each of form.querySelectorAll("[data-unless]")) each.hidden = form.elements[each.dataset.unless].checked;
  };
  form.addEventListener("change", look);
  look();
}

function startTypes(form) {
  const what = form.elements.what;
  if (!what) return;
  const params = form.elements.params;
  let offered = what.selectedOptions[0].dataset.example;
  const describe = () => {
    for (const each of document.querySelectorAll("[data-about]")) each.hidden = each.dataset.about !== what.value;
    const { example } = what.selectedOptions[0].dataset;
    if (params.value.trim() === "" || params.value === offered) params.value = example;
    offered = example;
  };
  what.addEventListener("change", describe);
  describe();
}

function startRows(form) {
  const place = form.querySelector("[data-rows]");
  if (!place) return;
  form.addEventListener("click", (event) => {
    if (event.target.closest("[data-add-row]")) place.append(form.querySelector("template").content.cloneNode(true));
    const remove = event.target.closest("[data-remove-row]");
    if (remove && place.children.length > 1) remove.closest("[data-job-row]").remove();
  });
  form.addEventListener("change", (event) => {
    if (event.target.dataset.row !== "type") return;
    const places = event.target.closest("[data-job-row]").querySelectorAll("[data-of-type]");
    for (const place of places) place.hidden = place.dataset.ofType !== event.target.value;
  });
}

// Whoever goes from the form to JSON takes along what is typed.
function startWriting(form) {
  form.querySelector("[data-writes-json]")?.addEventListener("click", () => {
    const place = form.querySelector("[data-choice=form]");
    const wasHidden = place.hidden;
    place.hidden = false;
    try {
      const params = paramsOf(form);
      if (Object.keys(params).length) form.elements.params.value = JSON.stringify(params, null, 2);
    } catch {
      // What is no JSON yet stays where it was typed.
    } finally {
      place.hidden = wasHidden;
    }
  });
}

function startPreview(form) {
  const path = form.dataset.preview;
  if (!path) return;
  let timer = 0;
  let asked = "";
  const look = async () => {
    const query = new URLSearchParams();
    for (const name of ["cron", "interval_s", "timezone", "dst"]) {
      const field = form.elements[name];
      if (!field || field.closest("[hidden]")) continue;
      const value = valueOf(field);
      if (value !== undefined) query.set(name, value);
    }
    if (query.toString() === asked) return;
    asked = query.toString();
    const mine = asked;
    try {
      const response = await fetch(`${path}?${query}`, { headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.getElementById("preview");
      if (mine !== asked || !fresh) return;
      document.getElementById("preview").replaceChildren(...fresh.childNodes);
      updateTimes(page.body.dataset.now);
    } catch {
      asked = "";
    }
  };
  const soon = () => { clearTimeout(timer); timer = setTimeout(look, PREVIEW_MS); };
  form.addEventListener("input", soon);
  form.addEventListener("change", soon);
  soon();
}

async function tryCall(form, button) {
  const place = document.querySelector("[data-tried]");
  forgetAll(form);
  button.disabled = true;
  let refused = null;
  try {
    const given = bodyOf(form);
    const params = {};
    for (const name of ["url", "method", "headers", "body", "timeout_s"]) if (name in given) params[name] = given[name];
    place.replaceChildren(element("p", "calling…", "muted"));
    const answer = await call("POST", "/api/direct/http", { params, wait_s: 15 });
    const { status_code: code, duration_s: took, body } = answer.result;
    place.replaceChildren(
      element("p", `It answered ${code} after ${took < 1 ? `${Math.round(took * 1000)} ms` : span(took)}.`, "outcome"),
      element("pre", typeof body === "string" ? body : JSON.stringify(body, null, 2), "json"),
    );
  } catch (error) {
    refused = error;
    place.replaceChildren(element("p", error.message, "notice bad"));
    const field = error.answer && error.answer.field;
    if (field && field.startsWith("params.")) error.answer.field = field.slice("params.".length);
  } finally {
    button.disabled = false;
  }
  if (refused && refused.answer && refused.answer.field) refuse(form, refused);
}

export function startMake() {
  for (const form of document.querySelectorAll("[data-make], [data-change], [data-direct]")) {
    startChoices(form);
    startExceptions(form);
    startTypes(form);
    startWriting(form);
    if (form.dataset.direct !== undefined) continue;
    startPreview(form);
    startRows(form);
    const before = form.dataset.change ? bodyOf(form) : null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(form, () => (before ? change(form, before) : make(form)));
    });
    form.addEventListener("input", (event) => {
      const place = event.target.closest("[data-field]");
      if (place) forget(place);
    });
    const trier = form.querySelector("[data-try]");
    if (trier) trier.addEventListener("click", () => tryCall(form, trier));
  }
}
