// The zone in which times are shown: the browser's until the reader chooses another one. The server draws all times, so
// the choice is kept in a cookie.
const NAME = "holdbeat_zone";
const AUTO = "auto:";

export function zone() { return document.body.dataset.zone; }

function kept() {
  const entry = document.cookie.split("; ").find((each) => each.startsWith(`${NAME}=`));
  return entry ? entry.slice(NAME.length + 1) : "";
}

function keep(value) {
  document.cookie = `${NAME}=${value}; path=/; max-age=31536000; samesite=strict`;
  if (kept() === value) location.reload();
}

function offsetMs(at, name) {
  const options = { timeZone: name, hourCycle: "h23", dateStyle: "short", timeStyle: "medium" };
  return Date.parse(`${new Date(at).toLocaleString("sv", options).replace(" ", "T")}Z`) - Math.floor(at / 1000) * 1000;
}

// The instant that a clock of the chosen zone shows as this text (of an input of type datetime-local).
export function instantOf(text) {
  const wall = Date.parse(`${text}Z`);
  let at = wall;
  for (let round = 0; round < 2; round += 1) at = wall - offsetMs(at, zone());
  return new Date(at).toISOString();
}

function option(value, words) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = words;
  return made;
}

export function startZone() {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const isAuto = !kept() || kept().startsWith(AUTO);
  if (isAuto && zone() !== own && kept() !== AUTO + own) { keep(AUTO + own); return; }
  const choice = document.querySelector("[data-zone-choice]");
  if (!choice) return;
  choice.addEventListener("focus", () => {
    const others = Intl.supportedValuesOf("timeZone").filter((each) => each !== own && each !== "UTC");
    const list = [option(AUTO + own, `${own} (this browser)`), option("UTC", "UTC"), ...others.map((each) => option(each, each))];
    choice.replaceChildren(...list);
    choice.value = isAuto ? AUTO + own : zone();
  }, { once: true });
  choice.addEventListener("change", () => keep(choice.value));
}
