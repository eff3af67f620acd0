// Tells the reader when a job that they watch has ended, in whichever page of the dashboard is open then.
import { toast } from "./actions.js";

const KEPT = "holdbeat.watched";
const LOOK_MS = 4000;
const OPEN = new Set(["QUEUED", "RUNNING"]);

function watched() { return JSON.parse(localStorage.getItem(KEPT) || "{}"); }
function keep(jobs) { localStorage.setItem(KEPT, JSON.stringify(jobs)); }

function tell(id, job) {
  const words = `${job.title}: ${job.status.toLowerCase()}`;
  toast(words, job.status === "FAILED");
  if (window.Notification?.permission !== "granted") return;
  // The tag lets several open pages show one notification.
  const shown = new Notification(words, { tag: id, body: job.run?.error || "" });
  shown.onclick = () => { window.focus(); location.assign(`/ui/jobs/${id}`); };
}

// A job that is retried or goes on after a wait has not ended: its follower is watched instead.
async function look() {
  for (const [id, first] of Object.entries(watched())) {
    const response = await fetch(`/api/jobs/${id}`).catch(() => null);
    if (!response || (!response.ok && response.status !== 404)) continue;
    const job = response.ok ? await response.json() : null;
    if (job && OPEN.has(job.status)) continue;
    const jobs = watched();
    if (!(id in jobs)) continue;
    delete jobs[id];
    const next = job && (job.continued_by || job.retried_by);
    if (next) jobs[next] = first;
    keep(jobs);
    if (job && !next) tell(id, job);
    show();
  }
}

function show() {
  const button = document.querySelector("[data-watch]");
  if (!button) return;
  const isOn = button.dataset.watch in watched();
  button.setAttribute("aria-pressed", String(isOn));
  const words = isOn ? "Watching" : "Notify me";
  if (button.lastElementChild.textContent !== words) button.lastElementChild.textContent = words;
}

async function toggle(button) {
  const jobs = watched();
  const id = button.dataset.watch;
  if (id in jobs) delete jobs[id];
  else jobs[id] = button.dataset.title;
  keep(jobs);
  show();
  if (!(id in jobs)) return;
  const allowed = window.Notification ? await Notification.requestPermission() : "denied";
  toast(allowed === "granted" ? "You are notified when it ends." : "This browser shows no notifications; an open page of the dashboard will tell you.");
}

export function startNotify() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-watch]");
    if (button) toggle(button);
  });
  document.addEventListener("holdbeat:fresh", show);
  show();
  setInterval(() => { if (Object.keys(watched()).length) look(); }, LOOK_MS);
}
