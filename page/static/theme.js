// Runs before anything is painted, so that a chosen theme does not flash.
try {
  const chosen = localStorage.getItem("mainstay-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage may be blocked: the system's theme is used */ }
