// Healing: whether it runs, what it decided of late and why, and what it did.

import { h } from "./dom.js";
import { query, seg } from "./address.js";
import { call, get, post } from "./api.js";
import { lists } from "./reads.js";
import { ago, coarse, count, goDuration, span } from "./format.js";
import { badge, section, table, facts, agentLink, clusterLink, taskLink, failoverLink, filters, button, temporalLink, temporalSchedule, label } from "./parts.js";
import { ask, because, changed, reason, say, words } from "./actions.js";

const kinds = { failover_agent: "Fail over", reassign_task: "Deliver again", rebalance_cluster: "Rebalance", drain_agent: "Drain", reduce_load: "Reduce the load of",
  restore_agent: "Give work again to", report: "Report" };
const outcomes = ["running", "succeeded", "failed", "planned", "skipped", "reported"];
const modeWords = { on: "heals", dry_run: "dry run: only tells what it would do", off: "off: does not look" };

/** about links to what a decision or action is about. */
function about(a) {
  if (a.type === "reassign_task") return taskLink(a.target_id);
  if (a.type === "rebalance_cluster") return clusterLink(a.target_id);
  if (a.target_id === "reviews") return h("a", { href: "#/reviews" + query({ cluster: a.cluster }) }, "reviews");
  if (a.type === "report") return h("a", { href: "#/queue" + query({ cluster: a.cluster }) }, a.target_id.replace(/^lane:/, "lane "));
  return agentLink(a.target_id);
}

/** started links to the drain or failover that an action began. */
function started(a) {
  const [kind, id] = (a.ref ?? "").split(" ");
  if (kind === "failover") return failoverLink(id, "its failover");
  if (kind === "drain") return h("a", { href: "#/drains" + query({ cluster: a.cluster }), title: id }, "its drain");
  return null;
}

/** seen is what an action was decided on. */
function seen(a) {
  const f = a.facts ?? {};
  if (!f.health) return a.reason;
  return [badge(f.health, `${label(f.health)}${f.health_score === undefined ? "" : " " + f.health_score.toFixed(2)}`), f.detail && [" ", f.detail], f.since && h("span.quiet", null, ", since ", ago(f.since, "for"))];
}

/** healingItem is one action in a list. */
export function healingItem(a) {
  return h("li", { key: a.id },
    h("p.headline", null, badge(a.status), h("strong", null, kinds[a.type] ?? label(a.type), " ", about(a)), h("span.quiet", null, "in ", clusterLink(a.cluster), ", ", ago(a.decided_at))),
    h("p", null, h("span.quiet", null, "Seen: "), seen(a)),
    (a.outcome || a.status === "running") && h("p", null, h("span.quiet", null, a.status === "skipped" ? "Not done: " : a.status === "planned" ? "Planned: " : "Outcome: "), a.outcome || "under way",
      a.completed_at && Date.parse(a.completed_at) - Date.parse(a.decided_at) >= 1000 && h("span.quiet", null, `, after ${span(Date.parse(a.completed_at) - Date.parse(a.decided_at))}`)),
    h("p.links", null, started(a), a.type !== "reassign_task" && a.facts?.orphan && taskLink(a.facts.orphan.task_id), a.type === "reassign_task" && agentLink(a.facts?.orphan?.agent_id), temporalLink(a.workflow_id, a.run_id)));
}

/** healingList shows actions, newest first. */
export const healingList = (actions, empty) => actions?.length ? h("ul.plain", null, actions.map(healingItem)) : h("p.empty", null, actions ? empty : "Temporal did not tell.");

let byHand = null; // the newest cycle that was asked for here

async function trigger(body) {
  const r = await post("/healing/trigger", body);
  if (r.completed_at) byHand = r;
  return r;
}

const looked = (r) => `${count(r.agents, "agent")} in ${count(r.clusters, "cluster")}`;

function told(r) {
  if (!r.completed_at) return "The cycle is under way.";
  const acts = (r.decisions ?? []).filter((d) => d.verdict === (r.dry_run ? "planned" : "act")).length;
  return `Looked at ${looked(r)}: ${r.decisions?.length ? `${count(acts, "action")} ${r.dry_run ? "would begin" : "begun"}, ${r.decisions.length - acts} held back` : "nothing is wrong"}.`;
}

const run = (cluster, names) => ask({
  title: "Run a healing cycle now?", text: "It looks at once and acts on what it finds, also while healing is paused. Clusters in dry run or off stay so.", confirm: "Run the cycle",
  fields: [{ name: "cluster", label: "Cluster", kind: "select", options: [...(cluster ? [[cluster, cluster]] : []), ["", "all"], ...names.filter((n) => n !== cluster).map((n) => [n, n])] }, reason()],
  act: (v) => trigger({ ...(v.cluster && { cluster: v.cluster }), ...because(v) }), done: told,
});

/** preview needs no dialog: it changes nothing. */
async function preview(cluster, from) {
  from.disabled = true;
  try {
    say("Changed nothing. " + told(await trigger({ dry_run: true, ...(cluster && { cluster }), reason: "asked on the fleet page" })));
    changed();
  } catch (error) {
    say(words(error), "bad");
  } finally {
    from.disabled = false;
  }
}

export const pauseHealing = () => ask({
  title: "Pause healing?", text: "No cycle begins by itself until it is resumed, in any cluster: an agent that falls ill keeps its work. What is under way goes on.", confirm: "Pause healing",
  fields: [reason()], act: (v) => post("/healing/pause", because(v)), done: "Healing is paused.",
});

export const resumeHealing = () => ask({
  title: "Resume healing?", text: "Cycles begin by themselves again, and act on what they find.", confirm: "Resume healing",
  fields: [reason()], act: (v) => post("/healing/resume", because(v)), done: "Healing is on.",
});

export const healingMode = (cluster, now) => ask({
  title: `Healing of cluster ${cluster}`, confirm: "Change",
  fields: [{ name: "mode", label: "Healing", kind: "select", options: [now, ..."on dry_run off".split(" ").filter((m) => m !== now)].map((m) => [m, `${label(m)}${m === now ? " (as now)" : ""}`]) }],
  act: (v) => call("PATCH", `/clusters/${seg(cluster)}`, { self_healing: { mode: v.mode } }), done: (_, v) => `Healing of cluster ${cluster}: ${label(v.mode)}.`,
});

/** decisions is what a cycle made of what it found: also what it left alone, and why. */
function decisions(r, p) {
  const list = (r.decisions ?? []).filter((d) => (!p.cluster || d.cluster === p.cluster) && (!p.agent || d.target_id === p.agent));
  return [
    r.error && h("p.banner.t-bad", null, r.error),
    r.silent?.length > 0 && h("p.banner.t-warn", null, "Did not answer, so nothing is concluded about: ", r.silent.join(", ")),
    table("What the newest cycle decided", [
      ["What", (d) => [kinds[d.type] ?? label(d.type), " ", about(d)]], ["Cluster", (d) => clusterLink(d.cluster)], ["Verdict", (d) => badge(d.verdict, d.verdict === "act" ? "begun" : null)],
      ["Found", (d) => seen(d), "wide"], ["Why not", (d) => d.why, "wide"]], list, { key: (d) => d.cluster + d.type + d.target_id, empty: "It found nothing that is wrong." }),
  ];
}

const matches = (a, p) => (!p.cluster || a.cluster === p.cluster) && (!p.agent || a.target_id === p.agent) && (!p.type || a.type === p.type) && (!p.status || a.status === p.status);

export const healing = {
  title: "Healing",
  every: 5000,
  wants: (type) => /^(healing|drain|failover|cluster)\.|^agent\.(health|draining|maintenance|in_service|load|lost)/.test(type),
  async load(p, signal) {
    const [status, list] = await Promise.all(lists.healing(p).map((path) => get(path, signal)));
    return { status, ...list };
  },
  render({ status: s, actions, next_page_token: more }, p, app) {
    const there = new Set(actions.map((a) => a.id)), all = p.page ? actions : [...s.running.filter((a) => !there.has(a.id) && matches(a, p)), ...actions];
    const cycle = byHand && !(Date.parse(s.last_cycle?.started_at) > Date.parse(byHand.started_at)) ? byHand : s.last_cycle;
    const modes = s.clusters.filter((c) => !p.cluster || c.cluster === p.cluster);
    return [
      h("header.row", null, h("h1", { tabindex: "-1" }, "Healing"), badge(s.state, { active: "on", paused: "paused", missing: "does not run" }[s.state])),
      s.state === "paused" && h("p.why", null, `Paused: no cycle begins by itself.${s.note ? " " + s.note : ""}`),
      s.state === "missing" && h("p.why", null, "Its schedule is missing in Temporal. A worker makes it when it starts: ", h("code", null, "mainstay serve --roles worker")),
      h("div.actions", null,
        s.state === "active" && button("Pause healing…", pauseHealing), s.state === "paused" && button("Resume healing…", resumeHealing, { kind: "primary" }),
        button("Run a cycle now…", () => run(p.cluster, app.clusterNames())), button("What would it do now?", (e) => preview(p.cluster, e.currentTarget)),
        temporalSchedule("healing")),
      facts(["Looks every", s.cycle_interval && span(goDuration(s.cycle_interval))], ["Last cycle", s.last_cycle ? [ago(s.last_cycle.started_at), `: ${looked(s.last_cycle)}`] : "none yet"], ["Next cycle", ago(s.next_cycle_at)],
        ["Clusters", ["on", "dry_run", "off"].map((m) => [s.clusters.filter((c) => c.mode === m).length, m]).filter(([n]) => n).map(([n, m]) => `${n} ${label(m)}`).join(", ")]),
      cycle && section(cycle === byHand ? (cycle.dry_run ? "What it would do now" : "What the cycle by hand decided") : "What the last cycle decided", { key: "s-cycle", aside: h("span.quiet", null, ago(cycle.started_at), `, ${looked(cycle)}`) }, decisions(cycle, p)),
      section("What it did", { aside: h("span.quiet", { role: "status" }, `${count(all.length, "action")}${more ? " and more" : ""}, newest first`) },
        filters("healing", p, [["cluster", "Cluster", app.clusterNames()], ["agent", "Agent"], ["type", "Action", Object.keys(kinds)], ["status", "Outcome", outcomes]]),
        all.length ? h("ul.plain.cards.wide", null, all.map(healingItem)) : h("p.empty", null, Object.keys(p).length ? "No action matches." : "It did not have to do anything yet."),
        (more || p.page) && h("nav.pager", { "aria-label": "Pages" }, p.page && h("a.button", { href: "#/healing" + query({ ...p, page: "" }) }, "← Newest"), more && h("a.button", { href: "#/healing" + query({ ...p, page: more }) }, "Older →"))),
      section("Clusters", null, table("Healing of the clusters", [
        ["Cluster", (c) => clusterLink(c.cluster)], ["Healing", (c) => badge(c.mode, modeWords[c.mode])], ["Looked at every", (c) => coarse(goDuration(c.cycle_interval))],
        ["", (c) => button("Change…", () => healingMode(c.cluster, c.mode), { "aria-label": `Change healing of cluster ${c.cluster}` })]], modes, { key: (c) => c.cluster, empty: "There are no clusters yet." })),
    ];
  },
};
