// Runs before anything is painted, so that a chosen theme does not flash, and before the modules are there.
try {
  const chosen = localStorage.getItem("mainstay-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage may be blocked: the system's theme is used */ }

// Most visits begin with the overview: it is asked for while the modules load, and api.js takes the answer.
if (/^#?\/?$/.test(location.hash)) {
  globalThis.early = fetch("/api/v1/agents/overview", { credentials: "same-origin", cache: "no-store" });
  globalThis.early.catch(() => {}); // whoever takes it says so
}
