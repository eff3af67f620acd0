// Dragging over the timeline zooms into that stretch of time. With the keyboard the buttons above it do the same in steps.
import { hold, release } from "./live.js";

const SHORTEST_PX = 8;
const LEFT = -52;
const WIDTH = 1054;

// Where in the drawn stretch of time, from 0 to 1.
function place(svg, clientX) {
  const box = svg.getBoundingClientRect();
  return Math.min(1, Math.max(0, ((clientX - box.left) / box.width * WIDTH + LEFT) / 1000));
}

export function startTimeline() {
  if (document.body.dataset.page !== "timeline") return;
  let drag = null;
  document.addEventListener("dragstart", (event) => { if (event.target.closest?.("svg.timeline")) event.preventDefault(); });
  document.addEventListener("pointerdown", (event) => {
    const svg = event.target.closest?.("svg.timeline");
    if (!svg || event.button !== 0 || event.pointerType === "touch") return;
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    mark.setAttribute("class", "range");
    mark.setAttribute("height", "100%");
    drag = { svg, mark, from: event.clientX, isLong: false };
    hold();
  });
  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.isLong ||= Math.abs(event.clientX - drag.from) >= SHORTEST_PX;
    if (!drag.isLong) return;
    const [low, high] = [place(drag.svg, drag.from), place(drag.svg, event.clientX)].sort((one, other) => one - other);
    drag.mark.setAttribute("x", low * 1000);
    drag.mark.setAttribute("width", (high - low) * 1000);
    if (!drag.mark.isConnected) drag.svg.append(drag.mark);
  });
  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { svg, mark, from, isLong } = drag;
    drag = null;
    mark.remove();
    release();
    if (!isLong) return;
    // The bar under the pointer must not be opened by this click.
    document.addEventListener("click", (click) => click.preventDefault(), { capture: true, once: true });
    const [since, until] = document.getElementById("lanes").dataset.range.split(" ").map(Number);
    const [low, high] = [place(svg, from), place(svg, event.clientX)].sort((one, other) => one - other);
    const address = new URL(location.href);
    address.searchParams.delete("zoom");
    address.searchParams.set("from", Math.round(since + low * (until - since)));
    address.searchParams.set("to", Math.max(Math.round(since + high * (until - since)), Math.round(since + low * (until - since)) + 1000));
    location.assign(address);
  });
}
