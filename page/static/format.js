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

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

function words(ms, form) {
  if (form === "for") return coarse(ms);
  return ms < -999 ? `in ${coarse(ms)}` : ms < 1000 ? "now" : `${coarse(ms)} ago`;
}

/** ago is a time that ticks; hovering shows it absolute. form "for" says how long since, without "ago". */
export function ago(time, form = "ago") {
  if (!time) return null;
  const at = new Date(time);
  return h("time", { datetime: time, title: absolute.format(at), "data-tick": form }, words(now() - at, form));
}

/** tick renews all times that are shown. */
export function tick() {
  for (const node of document.querySelectorAll("time[data-tick]")) {
    const text = words(now() - Date.parse(node.getAttribute("datetime")), node.dataset.tick);
    if (node.firstChild && node.firstChild.data !== text) node.firstChild.data = text;
  }
}

/** clockTime is a time of day; hovering shows the date too. */
export function clockTime(time) {
  const at = new Date(time);
  return h("time", { datetime: time, title: absolute.format(at) }, clock.format(at));
}

const numbers = new Intl.NumberFormat();

/** count is "1 task", "2,300 tasks". */
export const count = (n, one, many = one + "s") => `${numbers.format(n)} ${n === 1 ? one : many}`;

/** num is a number with separators. */
export const num = (n) => (n === undefined || n === null ? "–" : numbers.format(n));
