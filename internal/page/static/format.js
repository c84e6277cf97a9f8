// Times, durations and numbers in words.

import { h } from "./dom.js";

let skew = 0; // the server's clock minus ours, in ms

/** setClock notes what the server's clock showed between two moments of ours. */
export function setClock(serverTime, before, after) {
  skew = Date.parse(serverTime) - (before + after) / 2;
}

/** now is the server's time in ms. */
export const now = () => Date.now() + skew;

/** span is a duration in ms, in one unit. */
export function span(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  return coarse(ms);
}

/** coarse is a duration in ms without fractions, for what ticks. */
export function coarse(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 100) return `${Math.floor(s)} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min`;
  if (s < 129600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const units = { h: 3600e3, m: 60e3, s: 1e3, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 };

/** goDuration reads a duration as the API writes it, such as 1m5.2s, into ms. */
export function goDuration(text) {
  let ms = 0;
  for (const [, n, unit] of String(text ?? "").matchAll(/([\d.]+)(ms|us|µs|ns|h|m|s)/g)) ms += Number(n) * units[unit];
  return ms;
}

function words(ms, form) {
  if (form === "for") return coarse(ms);
  return ms < -999 ? `in ${coarse(ms)}` : ms < 1000 ? "now" : `${coarse(ms)} ago`;
}

/** ago is a time that ticks. form "for" says how long since, without "ago". */
export function ago(time, form = "ago") {
  if (!time) return null;
  const at = new Date(time);
  return h("time", { datetime: time, "data-tick": form }, words(now() - at, form));
}

/** tick renews all times that are shown. */
export function tick() {
  for (const node of document.querySelectorAll("time[data-tick]")) {
    const text = words(now() - Date.parse(node.getAttribute("datetime")), node.dataset.tick);
    if (node.firstChild && node.firstChild.data !== text) node.firstChild.data = text;
  }
}

/** clockTime is a time of day with its zone, as 14:03:12 GMT+0530. */
export const clockTime = (time) => h("time", { datetime: time }, new Date(time).toTimeString().slice(0, 17));

let absolute;

// Pointing at a time shows it in full.
addEventListener("pointerover", (e) => {
  const shown = e.target.closest?.("time[datetime]");
  if (!shown || shown.title) return;
  absolute ??= new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  shown.title = absolute.format(new Date(shown.dateTime));
});

/** thousands sets separators. Not by Intl: making its first format takes longer than all else that a view does. */
const thousands = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

/** count is "1 task", "2,300 tasks". */
export const count = (n, one, many = one + "s") => `${thousands(n)} ${n === 1 ? one : many}`;

/** num is a number with separators. */
export const num = (n) => (n === undefined || n === null ? "–" : thousands(n));
