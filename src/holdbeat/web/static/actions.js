// Buttons that change something: a form names the route, its fields are the body, the answer is told in a toast.
import { hold, refresh, release } from "./live.js";
import { instantOf } from "./zone.js";

export function element(name, words, kind = "") {
  const made = document.createElement(name);
  made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

// `undo` is a function: the toast offers it as a button and stays longer.
export function toast(words, isBad = false, undo = null) {
  const place = document.querySelector("[data-toasts]");
  const made = element("div", words, isBad ? "toast bad" : "toast");
  made.setAttribute("role", isBad ? "alert" : "status");
  if (undo) {
    const button = element("button", "Undo");
    button.type = "button";
    button.addEventListener("click", () => { made.remove(); undo(); });
    made.append(button);
  }
  place.append(made);
  setTimeout(() => made.remove(), isBad || undo ? 9000 : 4000);
}

const SAID = "holdbeat.said";

// Goes to another page, which says what was done.
export function leave(address, words) {
  sessionStorage.setItem(SAID, words);
  location.assign(address);
}

function sayWhatWasDone() {
  const said = sessionStorage.getItem(SAID);
  if (said) { sessionStorage.removeItem(SAID); toast(said); }
}

// Leads to the login, and from there back to this page.
function logIn() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

// A fetch that says in a sentence that the server is away, and leads to the login when the session is over.
export async function reach(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached. Check that it is running and try again.");
  }
  if (response.status === 401) logIn();
  return response;
}

export async function call(method, url, body, options = {}) {
  const { headers, ...others } = options;
  const response = await reach(url, {
    method,
    headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
    ...others,
  });
  const text = await response.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { value = text; }
  if (!response.ok) {
    const error = new Error((value && value.detail) || `The server answered ${response.status}.`);
    error.answer = value;
    throw error;
  }
  return value;
}

function jsonOrText(text) {
  try { return JSON.parse(text); } catch { return text; }
}

function bodyOf(form) {
  if (form.dataset.body) return JSON.parse(form.dataset.body);
  const numbers = new Set((form.dataset.numbers || "").split(" "));
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.name === form.dataset.names || field.value.trim() === "") continue;
    if (field.type === "checkbox") {
      if (field.checked) body[field.name] = true;
      continue;
    }
    let value = field.value;
    if (numbers.has(field.name)) value = Number(field.value);
    else if (form.dataset.json === field.name) value = jsonOrText(field.value);
    else if (field.dataset.instant !== undefined) value = instantOf(field.value);
    // A name with a dot is a field of an object, as rate.count.
    const [name, inner] = field.name.split(".");
    if (inner) body[name] = { ...body[name], [inner]: value };
    else body[name] = value;
  }
  return Object.keys(body).length ? body : undefined;
}

async function undo(url) {
  try {
    await call("POST", url);
    await refresh();
  } catch (error) {
    toast(error.message, true);
  }
}

async function act(form) {
  // The row of the form may be drawn anew before somebody clicks on Undo.
  const reverse = form.dataset.undo;
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => { each.disabled = true; });
  // Until another page is there, this one is not looked at again: what it shows may be deleted.
  const leaves = Boolean(form.dataset.then || form.dataset.go);
  if (leaves) hold();
  try {
    // The name of a thing that is created stands in its address.
    const name = form.dataset.names ? encodeURIComponent(form.elements[form.dataset.names].value.trim()) : "";
    const answer = await call(form.dataset.method, form.dataset.act + name, bodyOf(form));
    toast(form.dataset.done || "Done", false, reverse ? () => undo(reverse) : null);
    form.closest("dialog")?.close();
    if (form.dataset.then) { leave(form.dataset.then, form.dataset.done); return; }
    if (form.dataset.go && answer && answer.id) { location.assign(form.dataset.go + answer.id); return; }
    if (leaves) release();
    form.reset();
    await refresh();
  } catch (error) {
    if (leaves) release();
    toast(error.message, true);
  } finally {
    buttons.forEach((each) => { each.disabled = false; });
  }
}

// One dialog serves many rows: what it is about is kept from the moment of the click, wherever the row goes meanwhile.
function openDialog(opener) {
  const dialog = document.getElementById(opener.dataset.dialog);
  if (opener.dataset.acts) {
    const form = dialog.querySelector("form");
    form.reset();
    form.dataset.act = opener.dataset.acts;
    if (form.elements.resource) form.elements.resource.value = opener.dataset.resource;
    for (const [name, value] of Object.entries(JSON.parse(opener.dataset.values || "{}"))) form.elements[name].value = value ?? "";
    dialog.querySelector("[data-named]").textContent = opener.dataset.name;
  }
  dialog.showModal();
  if (opener.dataset.reads) showRead(opener, dialog.querySelector("[data-read]"));
}

// One field of a resource, read from the API when somebody wants to see it.
async function showRead(opener, place) {
  place.textContent = "…";
  try {
    const answer = await call("GET", opener.dataset.reads);
    place.textContent = JSON.stringify(answer[opener.dataset.field], null, 2);
  } catch (error) {
    place.textContent = error.message;
  }
}

// A menu of actions closes when one is chosen, by a click elsewhere, and with Esc.
function closeMenus(target, isKey = false) {
  for (const menu of document.querySelectorAll(".menu[open]")) {
    if (!isKey && menu.contains(target) && !target.closest("button, a")) continue;
    menu.open = false;
    if (isKey && menu.contains(target)) menu.querySelector("summary").focus();
  }
}

async function test(button) {
  const place = document.querySelector("[data-answer]");
  place.hidden = false;
  const said = element("pre", "calling…");
  place.replaceChildren(element("h2", "Test call"), said);
  place.scrollIntoView({ block: "nearest" });
  button.disabled = true;
  try {
    said.textContent = JSON.stringify(await call("POST", button.dataset.test), null, 2);
  } catch (error) {
    said.textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

export function startActions() {
  sayWhatWasDone();
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-act]");
    if (!form) return;
    event.preventDefault();
    act(form);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeMenus(event.target, true); });
  document.addEventListener("click", (event) => {
    closeMenus(event.target);
    const opener = event.target.closest("[data-dialog]");
    if (opener) openDialog(opener);
    const closer = event.target.closest("[data-close]");
    if (closer) closer.closest("dialog").close();
    const tester = event.target.closest("[data-test]");
    if (tester) test(tester);
    const copied = event.target.closest("[data-copy]");
    if (copied && navigator.clipboard) navigator.clipboard.writeText(copied.dataset.copy).then(() => toast("Copied"), () => {});
    const menu = event.target.closest("[data-menu]");
    if (menu) menu.setAttribute("aria-expanded", String(document.getElementById("menu").classList.toggle("open")));
  });
}
