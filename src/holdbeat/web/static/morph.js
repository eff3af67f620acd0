// Makes one tree like another with as few changes as possible, so that focus, open details and selections stay.

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.id ? node.id : null;
}

function sameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function morphAttributes(from, to) {
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (to.hasAttribute(name)) continue;
    // What the reader has opened stays open.
    if (name === "open" && (from.nodeName === "DETAILS" || from.nodeName === "DIALOG")) continue;
    from.removeAttribute(name);
  }
}

export function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.dataset && from.dataset.morph === "keep") return;
  if (from.isEqualNode(to)) return;
  const focusHolder = from === document.activeElement && from.matches("tr[data-job]");
  const tabindex = focusHolder ? from.getAttribute("tabindex") : null;
  morphAttributes(from, to);
  if (focusHolder) from.setAttribute("tabindex", tabindex);
  if (from.matches("input, textarea, select")) return;
  morphChildren(from, to);
}

function morphChildren(from, to) {
  const keyed = new Map();
  for (const child of from.children) if (child.id) keyed.set(child.id, child);
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    if (place && sameKind(place, wanted)) {
      const next = place.nextSibling;
      morph(place, wanted);
      place = next;
    } else if (key && keyed.has(key)) {
      const known = keyed.get(key);
      const hadFocus = known.contains(document.activeElement) ? document.activeElement : null;
      from.insertBefore(known, place);
      morph(known, wanted);
      if (hadFocus && hadFocus.isConnected) hadFocus.focus({ preventScroll: true });
    } else {
      const fresh = document.importNode(wanted, true);
      if (key && fresh.matches("tr, li")) fresh.classList.add("fresh");
      from.insertBefore(fresh, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
