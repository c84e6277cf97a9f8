// Parts that several views use.

import { h, svg } from "./dom.js";
import { encode } from "./exact.js";
import { ago, clockTime, span, now, count } from "./format.js";
import { query, seg } from "./address.js";

// What a status looks like: a tone, and a sign for those who do not see the colour.
const tones = {
  ok: "online completed successful passing healthy succeeded leader pass active on auto manual",
  run: "running moving act",
  warn: "suspect stopping degraded warning warn retry_wait review dead_letter no_target_available draining unknown partial blocked skipped reported",
  bad: "offline critical failed failing lost fail timed_out error expired missing",
  wait: "queued pending starting stopped ready pausing moved waiting standby planned notice maintenance paused dry_run",
  off: "cancelled passed member not_in_cluster",
};
const signs = { ok: "●", run: "▶", warn: "▲", bad: "✕", wait: "○", off: "–" };
const toneOf = {};
for (const [tone, list] of Object.entries(tones)) for (const status of list.split(" ")) toneOf[status] = tone;

const labels = { dead_letter: "dead letter", retry_wait: "waits to retry", review: "in review", offline: "lost", suspect: "not answering",
  no_target_available: "no target", not_in_cluster: "not in cluster", timed_out: "timed out", active_active: "all serve", active_passive: "leader serves",
  maintenance: "maintenance", planned: "dry run", passed: "skipped", true: "yes" };

/** label is a status in words. */
export const label = (status) => labels[status] ?? String(status ?? "").replaceAll("_", " ");

export const tone = (status) => toneOf[status] ?? "off";

/** badge shows a status by sign, colour and word. */
export function badge(status, words) {
  if (!status) return null;
  return h("span.badge.t-" + tone(status), null, h("span", { "aria-hidden": "true" }, signs[tone(status)]), words ?? label(status));
}

const link = (kind, id, text, more) => id ? h("a", { href: `#/${kind}/${seg(id)}`, ...more }, text ?? id) : null;
export const agentLink = (id, text) => link("agents", id, text);
export const clusterLink = (id, text) => link("clusters", id, text);
export const taskLink = (id, text) => link("tasks", id, text, { class: "mono" });
export const runLink = (id, text) => link("runs", id, text, { class: "mono" });
export const arrayLink = (id, text) => link("arrays", id, text, { class: "mono" });
export const failoverLink = (id, text) => link("failovers", id, text);

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

/** temporalLink leads to a workflow in the Temporal Web UI; nothing when it is not known where that is. */
export function temporalLink(workflowID, runID, text = "Temporal") {
  const ui = meta("temporal-ui");
  if (!ui || !workflowID) return null;
  const path = `/namespaces/${seg(meta("temporal-namespace"))}/workflows/${seg(workflowID)}` + (runID ? `/${seg(runID)}` : "");
  return h("a.out", { href: ui.replace(/\/$/, "") + path, target: "_blank", rel: "noopener", title: `${workflowID} in the Temporal Web UI` }, text);
}

/** temporalSchedule leads to a schedule there. */
export function temporalSchedule(id) {
  const ui = meta("temporal-ui");
  if (!ui) return null;
  return h("a.out", { href: `${ui.replace(/\/$/, "")}/namespaces/${seg(meta("temporal-namespace"))}/schedules/${seg(id)}`, target: "_blank", rel: "noopener", title: `The schedule ${id} in the Temporal Web UI` }, "Temporal");
}

/** section is a part of a page with its heading. */
export function section(title, props, ...children) {
  const { aside, ...more } = props ?? {};
  return h("section", { key: "s-" + title, ...more }, h("header.row", null, h("h2", null, title), aside), children);
}

/** table shows rows. columns are [heading, cell(row), class?]; on a phone a row becomes a card. */
export function table(caption, columns, rows, { key, empty = "None." } = {}) {
  if (!rows.length) return h("p.empty", null, empty);
  return h("div.scroll", { role: "region", "aria-label": caption, tabindex: "0" },
    h("table", null,
      h("caption.sr", null, caption),
      h("thead", null, h("tr", null, columns.map(([heading, , cls]) => h("th" + (cls ? "." + cls : ""), { scope: "col" }, heading || h("span.sr", null, "Actions"))))),
      h("tbody", null, rows.map((row) => h("tr", { key: key?.(row) }, columns.map(([heading, cell, cls], i) => {
        const content = cell(row);
        const tag = (i === 0 ? "th" : "td") + (cls ? "." + cls : "") + (isBlank(content) ? ".blank" : "");
        return h(tag, { "data-label": heading || null, scope: i === 0 ? "row" : null }, content);
      }))))));
}

const isBlank = (x) => Array.isArray(x) ? x.every(isBlank) : x === null || x === undefined || x === "" || x === false;

/** facts is a list of names and values; those without a value are left out. */
export function facts(...pairs) {
  return h("dl.facts", null, pairs.filter((p) => p && !isBlank(p[1]))
    .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** bar draws a share from 0 to 1. The number must stand beside it. */
export function bar(share, level = "run") {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  return svg("svg", { class: "bar", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 8" },
    svg("rect", { class: "track", width: 100, height: 8 }), width > 0 && svg("rect", { class: "t-" + level, width, height: 8 }));
}

/** load is how many of an agent's slots are in use. */
export function load(agent) {
  if (agent.running === undefined) return h("span.quiet", { title: "Not known: its hub has not told" }, `? of ${agent.max_tasks}`);
  return h("span.load", null, bar(agent.running / agent.max_tasks, agent.running >= agent.max_tasks ? "warn" : "run"), `${agent.running} of ${agent.max_tasks}`);
}

/** timeline draws spans of time as rows. Every row: {key, label, from, to (absent: runs on), tone, text, more, below}. */
export function timeline(title, rows, from, to) {
  const start = Date.parse(from), end = Math.max(to ? Date.parse(to) : now(), start + 1);
  const at = (t) => ((t === undefined ? end : Date.parse(t)) - start) / (end - start) * 100;
  return h("div.timeline", null,
    h("p.axis", null, h("span", null, clockTime(from)), h("span", null, `${span(end - start)} in all`), h("span", null, to ? clockTime(to) : "now")),
    h("ol", { "aria-label": title }, rows.map((row) => {
      const x = Math.max(0, Math.min(99, at(row.from))), width = Math.max(1, at(row.to) - x);
      return h("li", { key: row.key },
        h("span.what", null, row.label),
        svg("svg", { class: "span", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 10" },
          svg("rect", { class: "track", width: 100, height: 10 }),
          svg("rect", { class: "t-" + row.tone + (row.to ? "" : " open"), x, width: Math.min(width, 100 - x), height: 10 })),
        h("span.text", null, row.text),
        row.more && h("p.more", null, row.more), row.below && h("div.more", null, row.below));
    })));
}

/** tried says what a recovery has done so far, as far as it counts now. */
export const tried = (s) => [s?.active_restarts > 0 && count(s.active_restarts, "restart"), s?.active_reschedules > 0 && count(s.active_reschedules, "move"), s?.excluded?.length > 0 && `not on ${s.excluded.join(", ")} for now`].filter(Boolean).join(", ");

/** attempts is the story of a task's deliveries; below is what stands below one of them. */
export function attempts(task, below) {
  const list = task.attempts ?? [];
  if (!list.length) return h("p.empty", null, task.created_at ? "No agent has begun it yet." : "None.");
  const from = task.created_at ?? list[0].started_at;
  const rows = list.map((a) => ({ ...attemptRow(a, [`${a.number}. `, a.agent_id ? agentLink(a.agent_id) : "not placed"], from), below: below?.(a) }));
  return timeline("Attempts", rows, from, task.closed_at ?? (list.at(-1).ended_at && ["dead_letter", "review"].includes(task.status) ? list.at(-1).ended_at : undefined));
}

/** attemptRow is one attempt in a timeline. from is when it began, where the attempt does not tell. */
export function attemptRow(a, what, from) {
  const started = a.started_at ?? a.ended_at ?? from, ended = a.ended_at ?? (a.outcome && started), outcome = ended ? a.outcome || "ended" : "running";
  const took = (ended ? Date.parse(ended) : now()) - Date.parse(started);
  return {
    key: a.number + outcome, label: what, from: started, to: ended, tone: tone(outcome),
    text: [badge(outcome), " ", ended ? span(took) : ["for ", ago(started, "for")], progress(a)],
    more: [a.reason, a.error_type && ` (${a.error_type})`, h("span.quiet", null, a.reason ? " · began " : "began ", clockTime(started), a.epoch && `, epoch ${a.epoch}`, a.hub && `, hub ${a.hub}`),
      !ended && a.alive_at && h("span.quiet", null, " · last sign of life ", ago(a.alive_at)), !ended && a.deadline_at && h("span.quiet", null, " · may run until ", clockTime(a.deadline_at))],
  };
}

function progress(a) {
  const p = a.progress;
  if (!p) return null;
  const text = [p.percent && `${p.percent} %`, p.step, p.message, p.estimated_duration && `about ${p.estimated_duration} in all`].filter(Boolean).join(" · ");
  return text ? h("span.quiet", null, ` ${text}`) : null;
}

/** after tells how long after the loss was noticed something was so. */
export const after = (f, at) => at && "after " + span(Date.parse(at) - Date.parse(f.noticed_at));

/** movedTasks tells how many of a failover's tasks moved, and to whom. */
export function movedTasks(f) {
  if (!f.tasks) return "no tasks";
  const to = [...new Set((f.transfers ?? []).map((t) => t.to).filter(Boolean))].sort();
  return `${f.tasks_transferred} of ${count(f.tasks, "task")} moved` + (to.length ? ` → ${to.slice(0, 5).join(", ")}${to.length > 5 ? " …" : ""}` : "");
}

/** failoverItem is one failover in a list. */
export function failoverItem(f) {
  return h("li", { key: f.id },
    h("p.headline", null, badge(f.status), " ", h("strong", null, failoverLink(f.id, f.failed_agent_id)), f.target_agent_id ? [" → ", agentLink(f.target_agent_id)] : null,
      h("span.quiet", null, " in ", clusterLink(f.cluster), ", ", ago(f.noticed_at))),
    h("p", null, [
      movedTasks(f),
      f.promoted && `${f.promoted} leads now`,
      f.shards?.length && count(f.shards.length, "shard") + " moved",
      f.resumed_at && "running again " + after(f, f.resumed_at),
      f.completed_at ? "closed " + after(f, f.completed_at) : "under way",
    ].filter(Boolean).join(" · ")),
    h("p.quiet", null, f.error || f.reason));
}

/** failoverStages shows where the time of a failover went. */
export function failoverStages(f) {
  const rows = [{ key: "notice", label: "Noticed, decided", from: f.noticed_at, to: f.started_at, tone: "warn", text: span(Date.parse(f.started_at) - Date.parse(f.noticed_at)) }];
  for (const t of f.transfers ?? []) {
    rows.push({
      key: t.task_id, label: taskLink(t.task_id), from: f.noticed_at, to: t.at ?? f.completed_at, tone: t.to ? "run" : tone(t.status),
      text: t.to ? [agentLink(t.to), ` began it after ${span(Date.parse(t.at) - Date.parse(f.noticed_at))}`] : [badge(t.status), " no agent has it"],
      more: t.why,
    });
  }
  for (const s of (f.shards ?? []).slice(0, 50)) rows.push({ key: "shard" + s.shard, label: `Shard ${s.shard}`, from: f.started_at, to: s.at ?? f.completed_at, tone: "run", text: s.to ? ["to ", agentLink(s.to)] : "no owner yet" });
  if (f.promoted) rows.push({ key: "lead", label: "Leader", from: f.started_at, to: f.completed_at, tone: "ok", text: [agentLink(f.promoted), ` leads, epoch ${f.leader_epoch}`] });
  return timeline("Stages of the failover", rows, f.noticed_at, f.completed_at);
}

/** plain is what a program wrote, without what tells terminals of colours and the cursor. */
export const plain = (text) => text.replace(escapes, "").replace(/\r\n?/g, "\n").replace(controls, "\ufffd");
const escapes = /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]/g;
const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** json shows a value as it is, and a text as plain text. */
export function json(value) {
  return h("pre", { tabindex: "0" }, typeof value === "string" ? plain(value) : encode(value, 2));
}

/** filters is a form that changes the address: fields are [name, label, options or null]. */
export function filters(route, values, fields) {
  const go = (form) => {
    const q = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (String(value).trim()) q.set(name, String(value).trim());
    location.hash = `#/${route}${q.size ? "?" + q : ""}`;
  };
  return h("form.filters", { key: "filters", role: "search", "aria-label": "Filter", on: {
    submit(e) { e.preventDefault(); go(this); }, change() { go(this); } } },
  fields.map(([name, text, options]) => h("label", { key: name + (values[name] ?? "") }, h("span", null, text),
    options ? h("select", { name }, h("option", { value: "" }, "any"), options.map((o) => h("option", { value: o, selected: values[name] === o }, label(o))))
      : h("input", { name, value: values[name] ?? "", autocomplete: "off", spellcheck: "false", placeholder: "any" }))),
  Object.keys(values).some((k) => k !== "page" && values[k]) && h("a.button", { href: `#/${route}` }, "Clear"),
  h("button.sr", { type: "submit", tabindex: "-1" }, "Apply"));
}

const pages = new Map(); // the token of the page before, by the token of each page that was seen

/** pager leads to the next page, and back to where we came from. */
export function pager(route, p, d) {
  if (d.next_page_token && !pages.has(d.next_page_token)) pages.set(d.next_page_token, p.page ?? "");
  const to = (page) => `#/${route}` + query({ ...p, page });
  if (!d.next_page_token && !p.page) return null;
  return h("nav.pager", { "aria-label": "Pages" },
    p.page && h("a.button", { href: to(pages.get(p.page) ?? ""), rel: "prev" }, pages.has(p.page) ? "← Newer" : "← Newest"),
    d.next_page_token && h("a.button", { href: to(d.next_page_token), rel: "next" }, "Older →"));
}

/** button acts. */
export function button(text, act, { kind = "", ...more } = {}) {
  return h("button" + (kind && "." + kind), { type: "button", on: { click: act }, ...more }, text);
}
