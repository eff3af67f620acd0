// Reordering the queue, by dragging, by keys and by the buttons of its rows. The server decides; the page shows what it decided.
import { call, toast } from "./actions.js";
import { hold, refresh, release } from "./live.js";

function rows() { return [...document.querySelectorAll("[data-queue] tr[data-job]")]; }

function choose(row) {
  if (!row) return;
  for (const each of rows()) each.tabIndex = each === row ? 0 : -1;
  row.focus();
}

function adjacentRow(row, step) {
  const all = rows();
  return all[all.indexOf(row) + step];
}

let moves = Promise.resolve();

// Where a row stands now, as the server would be told to put it back there.
function standing(row) {
  const mates = rows().filter((each) => each.dataset.priority === row.dataset.priority);
  const index = mates.indexOf(row);
  if (mates[index + 1]) return { before: mates[index + 1].dataset.job };
  return mates[index - 1] ? { after: mates[index - 1].dataset.job } : null;
}

async function putBack(id, body) {
  try {
    await call("POST", `/api/jobs/${id}/move`, body);
  } catch (error) {
    toast(error.message, true);
  }
  refresh();
}

// The row goes to its new place at once, so that the next key means what the reader sees; the server is told in order.
function move(row, body, place) {
  const id = row.dataset.job;
  const before = standing(row);
  const title = row.querySelector(".name b")?.textContent ?? "the job";
  const focused = row.contains(document.activeElement) ? document.activeElement : null;
  place(row);
  if (focused && focused.matches("[data-move]")) focused.focus();
  else if (focused) choose(row);
  hold();
  moves = moves.then(async () => {
    try {
      await call("POST", `/api/jobs/${id}/move`, body);
      toast(`Moved ${title}`, false, before ? () => putBack(id, before) : null);
    } catch (error) {
      toast(error.message, true);
    } finally {
      release();
      refresh();
    }
  });
}

function step(row, direction) {
  const other = adjacentRow(row, direction);
  if (!other) return;
  if (other.dataset.priority !== row.dataset.priority) {
    toast("A job moves only within its priority.", true);
    return;
  }
  if (direction < 0) move(row, { before: other.dataset.job }, () => other.before(row));
  else move(row, { after: other.dataset.job }, () => other.after(row));
}

function toEnd(row, to) {
  const all = rows().filter((each) => each.dataset.priority === row.dataset.priority);
  move(row, { to }, () => (to === "top" ? all[0].before(row) : all[all.length - 1].after(row)));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, dialog")) return;
  const row = event.target.closest("tr[data-job]");
  const key = event.key;
  const canMove = row && row.draggable;
  if (event.altKey) {
    if (canMove && (key === "ArrowUp" || key === "ArrowDown")) { event.preventDefault(); step(row, key === "ArrowUp" ? -1 : 1); }
    return;
  }
  if (key === "j" || (row && key === "ArrowDown")) { event.preventDefault(); choose(row ? adjacentRow(row, 1) : rows()[0]); }
  else if (key === "k" || (row && key === "ArrowUp")) { event.preventDefault(); choose(row ? adjacentRow(row, -1) : rows()[0]); }
  else if (row && key === "Enter" && event.target === row) location.assign(`/ui/jobs/${row.dataset.job}`);
  else if (canMove && key === "J") { event.preventDefault(); step(row, 1); }
  else if (canMove && key === "K") { event.preventDefault(); step(row, -1); }
  else if (canMove && key === "t") toEnd(row, "top");
  else if (canMove && key === "b") toEnd(row, "bottom");
}

function onClick(event) {
  const button = event.target.closest("[data-move]");
  if (!button) return;
  const row = button.closest("tr[data-job]");
  if (button.dataset.move === "top") toEnd(row, "top");
  else step(row, button.dataset.move === "up" ? -1 : 1);
}

function unmark() {
  for (const each of document.querySelectorAll(".drop-before, .drop-after")) each.classList.remove("drop-before", "drop-after");
}

function startDragging() {
  let dragged = null;
  document.addEventListener("dragstart", (event) => {
    dragged = event.target.closest ? event.target.closest("tr[data-job]") : null;
    if (!dragged) return;
    hold();
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", dragged.dataset.job);
    dragged.classList.add("dragged");
  });
  document.addEventListener("dragover", (event) => {
    const row = dragged && event.target.closest("tr[data-job]");
    unmark();
    if (!row || row === dragged || row.dataset.priority !== dragged.dataset.priority) return;
    event.preventDefault();
    const box = row.getBoundingClientRect();
    row.classList.add(event.clientY < box.top + box.height / 2 ? "drop-before" : "drop-after");
  });
  document.addEventListener("drop", (event) => {
    const row = dragged && event.target.closest("tr[data-job]");
    if (!row || row === dragged) return;
    event.preventDefault();
    const isBefore = row.classList.contains("drop-before");
    const moved = dragged;
    if (isBefore) move(moved, { before: row.dataset.job }, () => row.before(moved));
    else move(moved, { after: row.dataset.job }, () => row.after(moved));
  });
  document.addEventListener("dragend", () => {
    if (!dragged) return;
    dragged.classList.remove("dragged");
    dragged = null;
    unmark();
    release();
  });
}

export function startQueue() {
  if (document.body.dataset.page !== "queue") return;
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onClick);
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr[data-job]");
    if (row) for (const each of rows()) each.tabIndex = each === row ? 0 : -1;
  });
  startDragging();
}
