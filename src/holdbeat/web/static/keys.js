// Keys that work on every page: g and a letter goes somewhere, ? tells which.

export function startKeys() {
  const help = document.querySelector("[data-keys]");
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "?") {
      if (help.open) help.close();
      else help.showModal();
      return;
    }
    if (isGoing) {
      isGoing = false;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.stopImmediatePropagation(); event.preventDefault(); location.assign(link.href); }
      return;
    }
    if (event.key === "g") {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, 1200);
    } else if (event.key === "/") {
      const field = document.querySelector(".filters input, .filters select");
      if (field) { event.preventDefault(); field.focus(); }
    }
  }, true);
}
