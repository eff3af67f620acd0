// Actions on several rows of a list: rows are picked with their boxes, and each is asked for by itself, so that each is
// recorded with who did it.
import { call, toast } from "./actions.js";
import { refresh } from "./live.js";

const picked = new Set();

function boxes() { return [...document.querySelectorAll("[data-pick]")]; }

function show() {
  const known = new Set(boxes().map((box) => box.value));
  for (const id of picked) if (!known.has(id)) picked.delete(id);
  for (const box of boxes()) box.checked = picked.has(box.value);
  const all = document.querySelector("[data-pick-all]");
  if (all) {
    all.checked = picked.size > 0 && picked.size === known.size;
    all.indeterminate = picked.size > 0 && picked.size < known.size;
  }
  const bar = document.querySelector("[data-bulk-bar]");
  if (!bar) return;
  bar.hidden = picked.size === 0;
  bar.querySelector("[data-bulk-count]").textContent = `${picked.size} selected`;
}

async function forEach(ids, template) {
  const done = [];
  const refusals = [];
  for (const id of ids) {
    try {
      await call("POST", template.replace("{id}", encodeURIComponent(id)));
      done.push(id);
    } catch (error) {
      refusals.push(error.message);
    }
  }
  return { done, refusals };
}

async function act(button) {
  const { bulk, undo, done: word } = button.dataset;
  const ids = [...picked];
  button.disabled = true;
  const { done, refusals } = await forEach(ids, bulk);
  button.disabled = false;
  picked.clear();
  const back = undo ? async () => { await forEach(done, undo); await refresh(); } : null;
  if (done.length) toast(`${word} ${done.length}`, false, back);
  if (refusals.length) toast(`${refusals.length} of ${ids.length} refused: ${refusals[0]}`, true);
  await refresh();
  show();
}

// What cannot be undone is asked for first.
function ask(button) {
  const dialog = document.getElementById("bulk-dialog");
  const word = button.textContent.replace("…", "").trim();
  dialog.querySelector("[data-bulk-title]").textContent = `${word} ${picked.size} ${picked.size === 1 ? "job" : "jobs"}?`;
  dialog.querySelector("[data-bulk-asks]").textContent = button.dataset.asks;
  dialog.querySelector("[data-bulk-go]").textContent = word;
  dialog.querySelector("form").onsubmit = () => act(button);
  dialog.showModal();
}

export function startBulk() {
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.dataset.pickAll !== undefined) for (const each of boxes()) box.checked ? picked.add(each.value) : picked.delete(each.value);
    else if (box.dataset.pick !== undefined) box.checked ? picked.add(box.value) : picked.delete(box.value);
    else return;
    show();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-bulk]");
    if (button && button.dataset.asks) ask(button);
    else if (button) act(button);
    if (event.target.closest("[data-bulk-clear]")) { picked.clear(); show(); }
  });
  document.addEventListener("holdbeat:fresh", show);
}
