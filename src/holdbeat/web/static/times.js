// Keeps distances of time true between two looks at the server, by the server's clock.

let skew = 0;

export function span(seconds) {
  const whole = Math.round(Math.abs(seconds));
  if (whole < 60) return `${whole} s`;
  const parts = [];
  let rest = whole;
  for (const [name, unit] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count || parts.length) parts.push([count, name]);
  }
  return parts.slice(0, 2).filter(([count]) => count).map(([count, name]) => `${count} ${name}`).join(" ");
}

// How far an instant is: no seconds beside minutes, and beyond ten of a unit that alone.
function far(seconds) {
  const amount = Math.abs(seconds);
  const two = (count, name, rest, smaller) => rest ? `${count} ${name} ${rest} ${smaller}` : `${count} ${name}`;
  if (amount < 59.5) return `${Math.round(amount)} s`;
  const minutes = Math.round(amount / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 600) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  if (hours < 24) return `${hours} h`;
  return hours < 240 ? two(Math.floor(hours / 24), "d", hours % 24, "h") : `${Math.round(hours / 24)} d`;
}

function tick() {
  const now = Date.now() + skew;
  for (const time of document.querySelectorAll("time[data-when], time[data-since]")) {
    const distance = (Date.parse(time.dateTime) - now) / 1000;
    let words;
    if (time.dataset.since !== undefined) words = span(Math.max(0, -distance));
    else if (Math.abs(distance) < 1) words = "now";
    else words = distance > 0 ? `in ${far(distance)}` : `${far(distance)} ago`;
    if (time.textContent !== words) time.textContent = words;
  }
}

export function updateTimes(now) {
  if (now) skew = Date.parse(now) - Date.now();
  tick();
}

export function startTimes() {
  updateTimes(document.body.dataset.now);
  setInterval(tick, 1000);
}
