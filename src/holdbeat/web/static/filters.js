// Filters act as they are changed: the address follows them, and the page's lists are brought up to date in place.
import { call, reach, toast } from "./actions.js";
import { refresh } from "./live.js";

const TYPING_MS = 300;

function addressOf(form) {
  const query = new URLSearchParams();
  for (const field of form.elements) if (field.name && field.value.trim()) query.set(field.name, field.value.trim());
  return query.size ? `${form.action}?${query}` : form.action;
}

function startFilters(form) {
  let timer = 0;
  const apply = () => {
    clearTimeout(timer);
    const address = addressOf(form);
    if (address === location.href) return;
    // A page that does not follow events is fetched as a whole.
    if (!document.querySelector("#live[data-live]")) { location.assign(address); return; }
    history.replaceState(null, "", address);
    refresh();
  };
  form.addEventListener("input", (event) => {
    if (event.target.type !== "search") return;
    clearTimeout(timer);
    timer = setTimeout(apply, TYPING_MS);
  });
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
}

// Retries everything that the list shows, after saying how many that is.
function startRetryAll() {
  const dialog = document.getElementById("retry-dialog");
  if (!dialog) return;
  let filter = null;
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-retry-all]");
    if (!button) return;
    filter = JSON.parse(button.dataset.retryAll);
    try {
      const { matched } = await call("POST", "/api/job-runs/retry", { filter, dry_run: true });
      if (!matched) { toast("All of these were retried already."); return; }
      dialog.querySelector("[data-retry-count]").textContent = `Retry ${matched} ${matched === 1 ? "job" : "jobs"}?`;
      dialog.showModal();
    } catch (error) {
      toast(error.message, true);
    }
  });
  dialog.querySelector("form").addEventListener("submit", async () => {
    try {
      const { changed } = await call("POST", "/api/job-runs/retry", { filter });
      toast(`Retried ${changed} ${changed === 1 ? "job" : "jobs"}`);
      await refresh();
    } catch (error) {
      toast(error.message, true);
    }
  });
}

// Text artifacts are fetched when somebody opens them.
function startTexts() {
  document.addEventListener("toggle", async (event) => {
    const details = event.target;
    if (!details.dataset?.showsText || !details.open) return;
    const place = details.querySelector("pre");
    if (place.textContent) return;
    try {
      const response = await reach(details.dataset.showsText);
      place.textContent = response.ok ? await response.text() : "The artifact cannot be read.";
    } catch (error) {
      toast(error.message, true);
      details.open = false;
    }
  }, true);
}

// On a phone the tabs scroll sideways: the one that is shown comes into sight.
function showCurrentTab() {
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

export function startLists() {
  showCurrentTab();
  for (const form of document.querySelectorAll("form[data-filters]")) startFilters(form);
  startRetryAll();
  startTexts();
}
