// Tasks: the list, one task with its attempts, dead letters and reviews.

import { h, patch } from "./dom.js";
import { query, seg } from "./address.js";
import { get } from "./api.js";
import { lists, single, spans } from "./reads.js";
import { ago, clockTime, count, goDuration, span } from "./format.js";
import { badge, label, section, table, facts, attempts, tried, agentLink, clusterLink, taskLink, runLink, arrayLink, filters, button, pager, temporalLink, json, plain } from "./parts.js";
import * as act from "./actions.js";

const statuses = ["queued", "running", "retry_wait", "review", "dead_letter", "completed", "failed", "cancelled", "expired"];

const onAgent = (t) => agentLink(t.attempts?.at(-1)?.agent_id ?? t.ran_on?.at(-1)) ?? (t.agent ? [agentLink(t.agent), h("span.quiet", null, " only")] : null);
const labelsOf = (t) => Object.entries(t.labels ?? {}).map(([k, v]) => h("a.label", { href: "#/tasks" + query({ label: `${k}=${v}` }), title: "Show all tasks with this label" }, `${k}=${v}`));

export const tasks = {
  title: "Tasks",
  every: 10000,
  partial: (d) => d.next_page_token,
  everyTask: true,
  wants: (type, d, p) => type.startsWith("task.") && !p.page && (!p.cluster || d.cluster === p.cluster),
  load: (p, signal, { first }) => get(lists.tasks(p, first)[0], signal),
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Tasks"), h("span.quiet", { role: "status" }, (!app.brief || !d.next_page_token) && `${count(d.tasks.length, "task")} on this page, newest first`)),
    filters("tasks", p, [["status", "Status", statuses], ["cluster", "Cluster", app.clusterNames()], ["type", "Type"], ["tenant", "Tenant"], ["agent", "Agent"],
      ["label", "Label, as name=value"], ["text", "Text"], ["since", "Submitted within", Object.keys(spans)]]),
    table("Tasks", [
      ["Task", (t) => taskLink(t.id)], ["Status", (t) => badge(t.status)], ["Type", (t) => t.type], ["Cluster", (t) => clusterLink(t.cluster)], ["Agent", onAgent],
      ["Priority", (t) => (t.priority_name === "normal" ? "" : t.priority_name)], ["Submitted", (t) => ago(t.created_at)], ["Ended", (t) => t.closed_at && ago(t.closed_at)],
      ["Took", (t) => t.closed_at && span(Date.parse(t.closed_at) - Date.parse(t.created_at)), "num"],
      ["Why", (t) => [t.status === "completed" ? "" : t.why, labelsOf(t)], "wide"]],
    d.tasks, { key: (t) => t.id, empty: Object.keys(p).length ? "No task matches." : "No task was submitted yet. Try: mainstay task submit -- echo hello" }),
    !app.brief && pager("tasks", p, d),
  ],
};

export const deadLetters = {
  title: "Dead letters",
  every: 10000,
  everyTask: true,
  wants: (type) => type.startsWith("task."),
  load: (p, signal) => get(lists["dead-letters"](p)[0], signal),
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Dead letters"), h("span.quiet", { role: "status" }, count(d.tasks.length, "task") + (d.next_page_token ? " and more" : ""))),
    h("p.quiet", null, "Their attempts are used up. Mend the cause and retry them, or discard them; they fail when their retention ends."),
    filters("dead-letters", p, [["cluster", "Cluster", app.clusterNames()], ["tenant", "Tenant"]]),
    d.tasks.length > 1 && h("div.actions", null, button(`Retry all${p.cluster || p.tenant ? " that match" : ""}…`, () => act.bulk("retry", { status: "dead_letter", ...(p.cluster && { cluster: p.cluster }), ...(p.tenant && { tenant: p.tenant }) }, "Retry"))),
    table("Dead letters", [
      ["Task", (t) => [taskLink(t.id), labelsOf(t)]], ["Cause", (t) => t.dead_letter?.cause ?? t.why, "wide"], ["Cluster", (t) => clusterLink(t.cluster)], ["Type", (t) => t.type],
      ["Since", (t) => ago(t.dead_letter?.since)], ["Kept", (t) => ago(t.dead_letter?.until)],
      ["", (t) => h("span.actions", null, button("Retry", (e) => act.retryTask(t.id, e.currentTarget), { "aria-label": `Retry ${t.id}` }),
        button("Discard…", () => act.discardTask(t.id), { kind: "danger", "aria-label": `Discard ${t.id}` }))]],
    d.tasks, { key: (t) => t.id, empty: "No dead letters." }),
    pager("dead-letters", p, d),
  ],
};

/** decide are the buttons for a task in review. */
export const decide = (t) => h("span.actions", null,
  t.late_result && button("Take its result…", () => act.review(t.id, "accept"), { "aria-label": `Take the result that ${t.id} had late` }),
  button("Run again…", () => act.review(t.id, "rerun"), { "aria-label": `Run ${t.id} again` }),
  button("It was done…", () => act.review(t.id, "completed"), { "aria-label": `${t.id} was done` }),
  button("Give up…", () => act.review(t.id, "failed"), { kind: "danger", "aria-label": `Give ${t.id} up` }));

export const reviews = {
  title: "Reviews",
  every: 10000,
  everyTask: true,
  wants: (type) => type.startsWith("task."),
  async load(p, signal) {
    const d = await get(lists.reviews(p)[0], signal);
    // Only a task by itself says why it is in review, and what was tried.
    d.tasks = await Promise.all(d.tasks.map((t, i) => (i < 20 ? get(`/tasks/${seg(t.id)}`, signal).catch(() => t) : t)));
    return d;
  },
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Reviews"), h("span.quiet", { role: "status" }, count(d.tasks.length, "task") + " waiting for a decision")),
    h("p.quiet", null, "Each may have run already; running it again may not be safe. Find out whether it was done, and decide."),
    filters("reviews", p, [["cluster", "Cluster", app.clusterNames()], ["tenant", "Tenant"]]),
    d.tasks.length ? h("div.cards.wide", null, d.tasks.map((t) => h("article.card.t-warn", { key: t.id },
      h("header.row", null, h("h2", null, taskLink(t.id)), h("span.quiet", null, t.type, " in ", clusterLink(t.cluster), ", submitted ", ago(t.created_at))),
      t.why && h("p", null, t.why), attempts(t), decide(t)))) : h("p.empty", null, "Nothing waits for a decision."),
    pager("reviews", p, d),
  ],
};

const open = (t) => ["queued", "running", "retry_wait", "review", "dead_letter"].includes(t.status);

/** partOf leads to what the task is a part of: an instance's job, an element's array, or a step's run. */
function partOf(t) {
  const [whole, more] = t.id.split("~", 2);
  if (more === undefined) return null;
  if (more === "") return ["job ", h("a", { href: "#/jobs/" + seg(whole) }, whole)];
  return more[0] === "." ? ["array ", arrayLink(whole)] : ["run ", runLink(whole)];
}

export const task = {
  title: (p) => "Task " + p.id,
  every: 5000,
  everyTask: true,
  wants: (type, d, p) => d.task_id === p.id,
  load: (p, signal) => get(single.tasks(p)[0], signal),
  render: (t) => [
    h("nav.crumbs", { "aria-label": "Where this is" }, clusterLink(t.cluster), " / ", partOf(t) ?? h("a", { href: "#/tasks" + query({ cluster: t.cluster }) }, "tasks")),
    h("header.row", null, h("h1.mono", { tabindex: "-1" }, t.id), badge(t.status)),
    t.cancelling && h("p.why", null, "It is being cancelled", t.cancelling.by && ` by ${t.cancelling.by}`, t.cancelling.reason && `: ${t.cancelling.reason}`, ". Its agent stops it first."),
    t.why && h("p.why", null, t.why),
    h("div.actions", null,
      t.status === "dead_letter" && [button("Retry", (e) => act.retryTask(t.id, e.currentTarget), { kind: "primary" }), button("Discard…", () => act.discardTask(t.id), { kind: "danger" })],
      t.status === "review" && decide(t),
      ["queued", "running", "retry_wait"].includes(t.status) && button("Priority…", () => act.prioritize(t.id)),
      open(t) && t.status !== "dead_letter" && button("Cancel…", () => act.cancelTask(t.id), { kind: "danger" }),
      temporalLink(t.workflow_id, t.run_id)),
    facts(["Type", t.type], ["Cluster", clusterLink(t.cluster)], ["Only agent", agentLink(t.agent)], ["Priority", t.priority_name], ["Tenant", t.tenant], ["Submitted", ago(t.created_at)],
      ["Starts", t.start_at && ago(t.start_at)], ["Next attempt", t.next_attempt_at && ago(t.next_attempt_at)], ["Waits until", t.expires_at && ago(t.expires_at)], ["Ended", t.closed_at && ago(t.closed_at)],
      ...submitted(t.spec), ["Recovery", t.recovery && label(t.recovery.mode)], ["So far", open(t) && tried(t.policy_state)], ["Kept until", t.dead_letter && open(t) && ago(t.dead_letter.until)], ["Schedule", t.schedule], ["Labels", labelsOf(t)]),
    section("Attempts", { aside: h("span.quiet", null, t.attempts?.length > 1 && "oldest first") }, attempts(t, (a) => a.outcome !== "returned" && log(t.id, a.number))),
    t.late_result && section("Late result", { aside: h("span.quiet", null, "brought after the task went to review; it does not count unless you take it") },
      facts(["Agent", agentLink(t.late_result.agent_id)], ["Attempt", t.late_result.attempt], ["Outcome", label(t.late_result.outcome)], ["Brought", ago(t.late_result.at)], ["Why", t.late_result.reason]),
      t.late_result.result !== undefined && result(t.late_result.result)),
    t.result !== undefined && section("Result", null, result(t.result)),
    t.payload !== undefined && section("Payload", null, json(t.payload)),
    t.history?.length && section("History", { aside: h("span.quiet", null, "oldest first") }, table("History", [
      ["Time", (m) => clockTime(m.at)], ["What", (m) => [label(m.event), m.times > 1 && `, ${m.times} times`]],
      ["Attempt", (m) => m.attempt, "num"], ["Agent", (m) => agentLink(m.agent_id)], ["By", (m) => m.by],
      ["Why", (m) => m.reason ?? [m.progress?.percent && `${m.progress.percent} %`, m.progress?.step, m.progress?.message].filter(Boolean).join(" · "), "wide"]],
    t.history, { key: (m) => m.at + m.event + (m.attempt ?? "") })),
  ],
};

/** result shows what a command wrote as text, and anything else as JSON. */
function result(r) {
  const written = ["stdout", "stderr"].filter((name) => typeof r?.[name] === "string" && r[name] !== "");
  if (!written.length) return json(r);
  const rest = Object.entries(r).filter(([name, value]) => !["stdout", "stderr"].includes(name) && (typeof value !== "object" || value instanceof Number));
  return h("div.stack", null, facts(...rest.map(([name, value]) => [label(name), String(value)])), written.map((name) => [h("h3", null, name), json(r[name])]));
}

/** submitted is what a task was submitted with. */
const submitted = (s) => !s ? [] : [["Retry safety", label(s.retry_safety ?? "idempotent")], ["Needs", s.required_capabilities?.join(", ")],
  ["Prefers", s.preferred_capabilities?.join(", ")], ["Affinity", s.affinity], ["Provider", s.provider], ["Shard key", s.shard_key], ["Timeout", s.timeout],
  ["Expires", s.expires_in && !s.keep_running && `if no agent takes it within ${span(goDuration(s.expires_in))}`], ["Beacons", s.beacon_timeout && `at least one in ${s.beacon_timeout}`],
  ["Retries", s.retry && !s.recovery && !s.keep_running && `up to ${count(s.retry.max_attempts ?? 3, "attempt")}, ${count(s.retry.max_transfers ?? 3, "agent")} lost`]];

/** log is a part that reads an attempt's newest lines when it is opened, and follows them while it stays open. */
function log(id, number) {
  return h("details.log", { key: "log", on: { toggle() {
    if (!this.open || this.__reading) return;
    this.__reading = true;
    readLog(id, number, this).finally(() => { this.__reading = false; });
  } } }, h("summary", null, `Output of attempt ${number}`), h("pre", { key: "lines", tabindex: "0", "aria-label": `Output of attempt ${number}` }));
}

const logLines = 500;

async function readLog(id, number, details) {
  let after = 0;
  const lines = [];
  while (details.open && details.isConnected) {
    let part;
    try {
      part = await get(`/tasks/${seg(id)}/log?attempt=${number}&wait=15s${after ? "&after=" + after : ""}`);
    } catch (error) {
      part = { lines: [], why: error.message, ended: true };
    }
    const before = (part.lines[0]?.number ?? 0) - after - 1;
    if (before > 0) lines.push(`— ${count(before, "line")} before these ${before === 1 ? "is" : "are"} no longer kept`);
    after = part.next || after;
    lines.push(...part.lines.map((l) => plain(l.text)));
    if (part.why || part.ended) lines.push(`— ${part.why || "the attempt has ended"}`);
    lines.splice(0, lines.length - logLines - 1);
    const pre = details.querySelector("pre");
    if (pre) pre.__log = lines.join("\n"), patch(pre, [document.createTextNode(pre.__log)]), pre.scrollTop = pre.scrollHeight;
    if (part.ended) return;
  }
}
