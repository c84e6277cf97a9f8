// The frame of the page: which view is shown, when it is read again, keys, search, theme and signing in.

import { h, patch } from "./dom.js";
import { base, keepKey, query, route, seg } from "./address.js";
import { call, get, whenUnauthorized, Problem } from "./api.js";
import { lists } from "./reads.js";
import { setClock, tick, clockTime } from "./format.js";
import { follow } from "./live.js";
import { note } from "./happened.js";
import { say, whenChanged, signOut } from "./actions.js";
import { button } from "./parts.js";
import { overview, problem } from "./overview.js";
import { agents, agent, clusters, cluster } from "./fleet.js";
import { tasks, task, deadLetters, reviews } from "./tasks.js";
import { runs, run, jobs } from "./runs.js";
import { job } from "./services.js";
import { arrays, array } from "./arrays.js";
import { queue, failovers, failover, drains } from "./work.js";
import { healing } from "./healing.js";
import { scaling } from "./scaling.js";

performance.mark("script"); // a test reads it: by then the first view's reads are under way

const views = { "": overview, agents, clusters, tasks, runs, jobs, arrays, failovers, drains, healing, scaling, queue, "dead-letters": deadLetters, reviews };
const one = { agents: agent, clusters: cluster, tasks: task, runs: run, jobs: job, arrays: array, failovers: failover };

const nav = [["", "Overview", "o"], ["clusters", "Clusters", "c"], ["agents", "Agents", "a"], ["tasks", "Tasks", "t"], ["runs", "Runs", "u"], ["jobs", "Jobs", "j", (o) => o.jobs.troubled], ["arrays", "Arrays", "y"], ["queue", "Queue", "q"], ["failovers", "Failovers", "f"],
  ["drains", "Drains", "d"], ["healing", "Healing", "h"], ["scaling", "Scaling", "s"], ["dead-letters", "Dead letters", "l", (o) => o.tasks.dead_letter], ["reviews", "Reviews", "r", (o) => o.tasks.review]];

const $ = (id) => document.getElementById(id);

// What is known.
let known = null; // the newest overview
let shown = null; // the view: {name, view, params, hash, data, error, first, drawn}
let reading = null; // the AbortController of a read under way
let up = false, since = Date.now(), failing = null; // the stream; and since when the API does not answer
let session = null;

/** app is what views may ask of the frame. brief: it is drawn for the first time, and should be soon. */
const app = { brief: true, overview: () => known, clusterNames: () => known?.clusters.map((c) => c.name) ?? [], problem };

async function readOverview(signal) {
  const before = Date.now(), answer = await get(lists[""]()[0], signal);
  setClock(answer.at, before, Date.now());
  known = answer;
  drawNav();
  return answer;
}

function show() {
  const { name, id, params } = route(location.hash), view = (id ? one : views)[name];
  reading?.abort();
  shown = { name, view, params, hash: location.hash, data: null, error: null, first: shown === null };
  drawNav();
  if (!view) {
    document.title = "Not found · Mainstay";
    patch($("main"), [h("h1", { tabindex: "-1" }, "There is nothing here"), h("p", null, h("a", { href: "#/" }, "Overview"))]);
    return;
  }
  const title = typeof view.title === "function" ? view.title(params) : view.title;
  document.title = `${title} · Mainstay`;
  const mine = shown, first = mine.first;
  setTimeout(() => { if (shown === mine && !mine.data && !mine.error && !signingIn) patch($("main"), [h("p.loading", { key: "loading" }, "Loading…")]); }, 250);
  if (!first) {
    scrollTo(0, 0); // of a page that is still empty it would cost a layout
    listen();
  }
  const done = read();
  if (first) done.finally(() => painted(begin));
}

/** painted runs something when what is being drawn is on the screen; where nobody looks, when it is drawn. */
const painted = (run) => (document.hidden ? setTimeout(run) : requestAnimationFrame(() => setTimeout(run)));

/** begin starts what must not stand in the first view's way. */
function begin() {
  if (signingIn) return;
  listen();
  call("GET", "/api/v1/session").then((s) => { session = s; drawTools(); }, () => {});
}

/** read reads what the view shows, and draws it. */
async function read() {
  clearTimeout(timer);
  reading?.abort();
  lastRead = Date.now();
  const mine = shown, controller = reading = new AbortController();
  if (!mine?.view || signingIn) return;
  const { view, params } = mine;
  try {
    const data = await view.load(params, controller.signal, { known: readOverview, first: !mine.drawn });
    if (shown !== mine || controller.signal.aborted) return;
    mine.data = data;
    mine.error = null;
    failing = null;
  } catch (error) {
    if (shown !== mine || controller.signal.aborted) return;
    if (error instanceof Problem && error.status === 401) return;
    mine.error = error;
    failing = error.status === 0 || error.status >= 500 ? failing ?? Date.now() : null;
  }
  draw();
  if (view !== overview && (!known || Date.now() - (readOverview.at ?? 0) > 10000)) {
    readOverview.at = Date.now();
    painted(() => readOverview().catch(() => {})); // the counts in the navigation stay as they were
  }
  if (reading === controller) reading = null;
  timer = setTimeout(() => (document.hidden ? 0 : read()), failing ? 3000 : up ? view.every : Math.min(view.every, 3000));
}

let timer = 0, lastRead = 0;

function draw() {
  const { view, params, data, error } = shown;
  if (data) {
    app.brief = !shown.drawn;
    if (app.brief) {
      const mine = shown;
      painted(() => afterFirst(mine));
    }
    shown.drawn = true;
    const fresh = !$("main").querySelector("h1") || $("main").dataset.view !== shown.hash;
    $("main").dataset.view = shown.hash; // the address may be that of the next view already
    patch($("main"), view.render(data, params, app).flat(9).filter((n) => n instanceof Node));
    if (fresh && !shown.first) $("main").querySelector("h1")?.focus({ preventScroll: true });
    shown.first = false;
  } else if (error) {
    patch($("main"), [h("h1", { tabindex: "-1" }, error.status === 404 ? "Not found" : "This cannot be shown"), h("p.why", null, error.message), h("p", null, h("a", { href: "#/" }, "Overview"))]);
  }
  drawLive();
  tick();
}

/** afterFirst runs when a view is on the screen: now there is time for the rest of a long list. */
function afterFirst(mine) {
  performance.mark("drawn"); // the benchmark reads it
  if (shown !== mine) return;
  if (mine.view.partial?.(mine.data)) read();
  else if (mine.view.redraw) draw();
}

function drawNav() {
  const here = shown?.name ?? "";
  patch($("nav"), nav.map(([name, text, , number]) => {
    const n = known && number ? number(known) : 0;
    return h("a", { key: name, href: "#/" + name, "aria-current": name === here ? "page" : null }, text, n > 0 && h("b.count", null, n));
  }));
}

/** drawLive says whether what is shown is fresh. */
function drawLive() {
  if (signingIn) return;
  const trouble = [];
  let text = ["live", "Live"];
  if (failing) {
    text = ["bad", "No answer"];
    trouble.push(h("p.banner.t-bad", null, h("b", null, "The control plane does not answer"), " since ", clockTime(new Date(failing).toISOString()), shown.error?.status ? `: ${shown.error.message} ` : ". ",
      shown.data ? "What you see is from before. " : "", "Trying again every few seconds."));
  } else if (shown?.error && shown.data) {
    trouble.push(h("p.banner.t-warn", null, shown.error.message));
  } else if (!up) {
    text = Date.now() - since < 1500 ? ["wait", "Connecting"] : ["warn", "Read every 3 s"];
  }
  const line = h("span." + text[0], { key: text[0], title: up ? "Changes show at once." : "The stream of events is not there: what is shown is read again every few seconds." }, text[1]);
  patch($("live"), [line]);
  patch($("trouble"), trouble);
}

// Events: what they change is read again, soon, and once more where lists follow a second later. While many come, reads
// keep a distance.

const quickest = 150, apart = 1000, afterwards = 1600; // ms
let soon = 0, later = 0;

function changed() {
  clearTimeout(later);
  later = setTimeout(read, afterwards);
  soon ||= setTimeout(() => { soon = 0; read(); }, Math.max(quickest, lastRead + apart - Date.now()));
}

const always = "agent,leader,shard,failover,drain,healing,scaling,state_sync,schedule,cluster,lane,brake,task.review,task.dead_letter,task.failed,task.expired";
const opened = Date.now() - afterwards;
let stream = { types: "", stop() {} };

/** listen follows the events that the view needs: those of all tasks only where tasks are shown. A tab that nobody sees
follows none: a browser has six connections to a host, for all of its tabs. */
function listen() {
  if (document.hidden) return;
  const types = shown?.view?.everyTask ? always + ",task" : always;
  if (types === stream.types) return;
  stream.stop();
  stream = { types, stop: follow(`${base}/events?type=${types}&since=15m`, { // since: only before the first event
    event(text) {
      let event;
      try {
        event = JSON.parse(text);
      } catch {
        return; // no event of ours
      }
      const type = String(event.type).replace(/^dev\.mainstay\./, "");
      const spoken = note(type, event);
      if (Date.parse(event.time) < opened) return draw(); // what else is shown was read after it
      if (spoken) announce(spoken);
      if (shown?.view && (type === "gap" || shown.view.wants(type, event.data ?? {}, shown.params))) changed();
    },
    state(now, status) {
      const was = up;
      up = now;
      if (was !== now) since = Date.now();
      if (status === 401) signIn();
      drawLive();
      if (now && !was && shown?.data) changed(); // what happened while there was no stream
    },
  }) };
}

/** unlisten ends the stream until listen() begins another. */
function unlisten() {
  stream.stop();
  stream = { types: "", stop() {} };
  up = false;
  since = Date.now();
}

/** announce has a sentence read out. It is added to the last ones, because several may come in one turn. */
function announce(text) {
  const log = $("announce");
  log.append(h("p", null, text));
  if (log.children.length > 10) log.firstChild.remove();
}

// Keys.

let pending = "";

addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, dialog")) return;
  if (pending === "g") {
    pending = "";
    const to = nav.find(([, , key]) => key === e.key);
    if (to) location.hash = "#/" + to[0];
    return;
  }
  if (e.key === "g") {
    pending = "g";
    setTimeout(() => { pending = ""; }, 1500);
  } else if (e.key === "/") {
    e.preventDefault();
    $("search").q.focus();
  } else if (e.key === "?") help();
  else if (e.key === "r") read();
});

function help() {
  const dialog = h("dialog", { "aria-labelledby": "help-title", on: { close() { dialog.remove(); } } },
    h("form", { method: "dialog" }, h("h2", { id: "help-title" }, "Keys"),
      h("dl.keys", null, [["/", "search"], ["r", "read again"], ["?", "this help"], ...nav.map(([, text, key]) => ["g " + key, text])].map(([k, text]) => h("div", null, h("dt", null, k.split(" ").map((x) => h("kbd", null, x))), h("dd", null, text)))),
      h("footer", null, h("button.primary", { type: "submit", autofocus: true }, "Close"))));
  document.body.append(dialog);
  dialog.showModal();
}

// Search goes to what has this name.

$("search").addEventListener("submit", async (e) => {
  e.preventDefault();
  const input = $("search").q, text = input.value.trim();
  if (!text) return;
  const go = (hash) => { location.hash = hash; input.value = ""; input.blur(); };
  if (/^[a-z0-9][a-z0-9._-]*[=:]/.test(text)) return go(`#/tasks?label=${seg(text)}`);
  const { found, near } = await get("/search" + query({ text })).catch(() => ({ found: [], near: [] }));
  const shown = found.filter((f) => f.kind + "s" in views), exact = shown.find((f) => f.id === text) ?? (shown.length === 1 && shown[0]);
  if (exact) return go(`#/${exact.kind}s/${seg(exact.id)}`);
  const names = (list) => list.slice(0, 5).map((f) => `${f.kind} ${f.id}`).join(", ");
  if (found.length) return say(`Several things are called so: ${names(found)}${found.length > 5 ? " …" : ""}. Type more of the name.`, "bad");
  say(`Nothing is named ${text}.${near.length ? ` Did you mean ${names(near)}?` : ""}`, "bad");
});

// Theme.

const themes = ["", "light", "dark"], themeNames = { "": "System", light: "Light", dark: "Dark" };

function drawTools() {
  const theme = document.documentElement.dataset.theme ?? "";
  patch($("tools"), [
    button(themeNames[theme], () => {
      const next = themes[(themes.indexOf(theme) + 1) % themes.length];
      if (next) document.documentElement.dataset.theme = next;
      else delete document.documentElement.dataset.theme;
      try { localStorage.setItem("mainstay-theme", next); } catch { /* it lasts until the page is closed */ }
      drawTools();
    }, { kind: "quiet", key: "theme", title: "Colours: system, light or dark", "aria-label": `Colours: ${themeNames[theme]}` }),
    button("?", help, { kind: "quiet", key: "help", title: "Keys", "aria-label": "Keys" }),
    session?.kind === "token" && button("Sign out", leave, { kind: "quiet", key: "out", title: `${session.name}, ${session.role}` }),
  ].filter(Boolean));
}

// Signing in.

let signingIn = false;

async function leave() {
  try {
    await signOut();
    location.reload();
  } catch (error) {
    say(`You are still signed in. ${error.message}`, "bad");
  }
}

/** signIn shows the form in place of everything else; what is read and heard begins anew when the page is loaded again. */
function signIn() {
  if (signingIn) return;
  signingIn = true;
  stream.stop();
  reading?.abort();
  session = null;
  drawTools();
  const problem_ = h("p.problem", { role: "alert", hidden: true });
  const form = h("form.card.signin", { on: { async submit(e) {
    e.preventDefault();
    try {
      session = await call("POST", "/api/v1/session", { token: form.token.value.trim() });
      keepKey(session.session_key);
      location.reload();
    } catch (error) {
      problem_.textContent = error.status === 401 ? "This token is not valid, or is no longer." : error.message;
      problem_.hidden = false;
      form.token.select();
    }
  } } },
  h("h1", null, "Sign in"), h("p", null, "Enter the API token that an admin gave you."),
  h("label", null, h("span", null, "API token"), h("input", { name: "token", type: "password", autocomplete: "current-password", required: true })),
  problem_, h("button.primary", { type: "submit" }, "Sign in"));
  $("main").replaceChildren(form);
  for (const id of ["live", "trouble"]) patch($(id), []);
  for (const id of ["nav", "search"]) $(id).hidden = true;
  document.title = "Sign in · Mainstay";
  form.token.focus();
}

whenUnauthorized(signIn);
whenChanged(changed);
addEventListener("hashchange", () => { if (!signingIn) show(); });
document.addEventListener("visibilitychange", () => {
  if (signingIn) return;
  if (document.hidden) return unlisten();
  listen();
  read();
});
document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); $("main").focus(); });
setInterval(() => { tick(); if (!up) drawLive(); }, 1000);

drawTools();
show();
