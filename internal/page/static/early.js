// Stands in the page itself, and so runs before anything else is there.

import { base, proof, route } from "./address.js";
import { lists, single } from "./reads.js";

// A chosen theme must not flash.
try {
  const chosen = localStorage.getItem("mainstay-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage may be blocked: the system's theme is used */ }

// What the first view reads is asked for while the page's other files load; api.js takes the answers.
globalThis.early = new Map();
const { name, id, params } = route(location.hash);
for (const path of (id ? single : lists)[name]?.(params, true) ?? []) {
  const answer = fetch(base + path, { headers: proof(), credentials: "same-origin", cache: "no-store" });
  answer.catch(() => {}); // whoever takes it says so
  globalThis.early.set(path, answer);
}
