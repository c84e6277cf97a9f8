// Lanes, failovers and drains.

import { h, svg } from "./dom.js";
import { query } from "./address.js";
import { get } from "./api.js";
import { lists, single } from "./reads.js";
import { ago, coarse, count, goDuration, now, num, span } from "./format.js";
import { badge, section, table, facts, bar, agentLink, clusterLink, taskLink, failoverItem, failoverStages, movedTasks, after, filters, button, temporalLink, label, tone } from "./parts.js";
import * as act from "./actions.js";

/** laneTable shows what waits in lanes, and who takes it. */
export function laneTable(lanes, withCluster) {
  return table("Lanes", [
    ["Lane", (l) => l.lane], withCluster && ["Cluster", (l) => clusterLink(l.cluster)],
    ["Waiting", (l) => num(l.depth), "num"], ["Oldest", (l) => (l.depth ? coarse(goDuration(l.oldest_age)) : ""), "num"],
    ["By priority", (l) => l.priorities.filter((p) => p.depth).map((p) => `${p.name} ${num(p.depth)}`).join(", ")],
    ["In / s", (l) => l.add_rate || "", "num"], ["Out / s", (l) => l.dispatch_rate || "", "num"],
    ["Served by", (l) => (l.agents ? count(l.agents, "agent") : h("span.badge.t-" + (l.depth ? "bad" : "off"), null, "nobody"))],
    ["Slots busy", (l) => (l.slots ? h("span.load", null, bar((l.busy_slots ?? 0) / l.slots, l.busy_slots >= l.slots ? "warn" : "run"), l.busy_slots === undefined ? `? of ${l.slots}` : `${l.busy_slots} of ${l.slots}`) : "")],
    ["State", (l) => l.paused && [badge("paused"), h("span.quiet", null, " for ", ago(l.paused.since, "for"), l.paused.reason && `: ${l.paused.reason}`)]],
    ["", (l) => (l.paused ? button("Resume…", () => act.resume(l.cluster, l.lane), { "aria-label": `Resume lane ${l.lane} of ${l.cluster}` }) : button("Pause…", () => act.pause(l.cluster, l.lane), { "aria-label": `Pause lane ${l.lane} of ${l.cluster}` }))],
  ].filter(Boolean), lanes, { key: (l) => l.cluster + "/" + l.lane, empty: "There are no lanes." });
}

export const queue = {
  title: "Queue",
  every: 5000,
  partial: (d) => d.more,
  everyTask: true,
  wants: (type) => /^(lane|brake)\.|^task\.(queued|running|retry_wait)/.test(type),
  async load(p, signal, { first }) {
    const [a, b] = await Promise.all(lists.queue(p, first).map((path) => get(path, signal)));
    return { ...a, tasks: b.tasks, more: b.next_page_token };
  },
  render: (d, p, app) => [
    h("h1", { tabindex: "-1" }, "Queue"),
    filters("queue", p, [["cluster", "Cluster", app.clusterNames()], ["tenant", "Tenant"]]),
    section("Lanes", { aside: h("span.quiet", null, "depths, ages and rates are Temporal's: approximate") }, laneTable(d.lanes, !p.cluster),
      (d.next_page_token || p.page) && h("nav.pager", { "aria-label": "Pages" }, p.page && h("a.button", { href: "#/queue" + query({ ...p, page: "" }) }, "First lanes"),
        d.next_page_token && h("a.button", { href: "#/queue" + query({ ...p, page: d.next_page_token }) }, "More lanes →"))),
    section("Waiting tasks, and why", { aside: d.more && h("a", { href: "#/tasks" + query({ status: "queued", cluster: p.cluster }) }, "more") },
      table("Waiting tasks", [["Task", (t) => taskLink(t.id)], ["Status", (t) => badge(t.status)], ["Why", (t) => t.why, "wide"], ["Cluster", (t) => clusterLink(t.cluster)],
        ["Priority", (t) => t.priority_name], ["Submitted", (t) => ago(t.created_at)]], d.tasks, { key: (t) => t.id, empty: "Nothing waits." })),
  ],
};

const outcomes = ["running", "succeeded", "no_target_available", "not_in_cluster", "failed"];

export const failovers = {
  title: "Failovers",
  every: 10000,
  wants: (type) => type.startsWith("failover.") || type === "agent.lost",
  load: (p, signal) => get(lists.failovers(p)[0], signal),
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Failovers"), h("span.quiet", { role: "status" }, count(d.failovers.length, "failover") + (d.next_page_token ? " and more" : "") + ", newest first")),
    filters("failovers", p, [["cluster", "Cluster", app.clusterNames()], ["agent", "Agent"], ["status", "Status", outcomes]]),
    d.failovers.length > 0 && when(d.failovers),
    d.failovers.length ? h("ul.plain.cards.wide", null, d.failovers.map(failoverItem)) : h("p.empty", null, Object.keys(p).length ? "No failover matches." : "No agent's work had to be moved."),
    d.next_page_token && h("nav.pager", { "aria-label": "Pages" }, h("a.button", { href: "#/failovers" + query({ ...p, page: d.next_page_token }) }, "Older →")),
  ],
};

/** when draws the failovers of a list on one axis of time: a row for each cluster. */
function when(list) {
  const first = Math.min(...list.map((f) => Date.parse(f.noticed_at))), whole = Math.max(now() - first, 60000);
  const names = [...new Set(list.map((f) => f.cluster))].sort().slice(0, 12);
  return h("div.timeline.when", null,
    h("ol", { "aria-label": "When, by cluster" }, names.map((name) => {
      const mine = list.filter((f) => f.cluster === name);
      return h("li", { key: name }, h("span.what", null, clusterLink(name)),
        svg("svg", { class: "span", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 10" }, svg("rect", { class: "track", width: 100, height: 10 }),
          mine.map((f) => svg("rect", { class: "t-" + tone(f.status), x: Math.min(99.2, (Date.parse(f.noticed_at) - first) / whole * 99.2), width: 0.8, height: 10 }))),
        h("span.text", null, `${count(mine.length, "failover")}, last `, ago(mine[0].noticed_at)));
    })), h("p.axis", null, h("span", null, ago(new Date(first).toISOString())), h("span", null, "now")));
}

export const failover = {
  title: (p) => "Failover " + p.id,
  every: 5000,
  wants: (type, d, p) => d.id === p.id,
  load: (p, signal) => get(single.failovers(p)[0], signal),
  render: (f) => [
    h("nav.crumbs", { "aria-label": "Where this is" }, clusterLink(f.cluster), " / ", h("a", { href: "#/failovers" }, "failovers")),
    h("header.row", null, h("h1", { tabindex: "-1" }, "Failover of ", agentLink(f.failed_agent_id)), badge(f.status)),
    h("p.why", null, f.error || f.reason),
    h("div.actions", null, temporalLink(`failover/${f.cluster}/${f.failed_agent_id}/${f.epoch}`)),
    facts(["Trigger", label(f.trigger)], ["Target", agentLink(f.target_agent_id)], ["Noticed", ago(f.noticed_at)], ["Running again", after(f, f.resumed_at)], ["Closed", after(f, f.completed_at)],
      ["Moved", movedTasks(f)], ["Now leads", agentLink(f.promoted)], ["Epoch lost", f.epoch]),
    section("Timeline", null, failoverStages(f)),
  ],
};

export const drains = {
  title: "Drains",
  every: 5000,
  wants: (type) => type.startsWith("drain.") || type.startsWith("agent."),
  load: (p, signal) => get(lists.drains(p)[0], signal),
  render: (d, p, app) => [
    h("h1", { tabindex: "-1" }, "Drains"),
    filters("drains", p, [["cluster", "Cluster", app.clusterNames()]]),
    d.drains.length ? h("div.cards.wide", null, d.drains.map(drainCard)) : h("p.empty", null, "No agent was drained."),
    d.next_page_token && h("nav.pager", { "aria-label": "Pages" }, h("a.button", { href: "#/drains" + query({ ...p, page: d.next_page_token }) }, "Older →")),
  ],
};

function drainCard(d) {
  const [cluster, name] = [d.cluster || d.id.split(":")[0], d.id.split(":")[1]];
  return h("article.card.t-" + tone(d.status), { key: d.id },
    h("header.row", null, h("h2", null, d.agents.length === 1 ? d.agents[0].agent_id : count(d.agents.length, "agent")), badge(d.status), h("span.quiet", null, "in ", clusterLink(cluster), ", ", ago(d.requested_at))),
    (d.error || d.reason) && h("p", null, d.error || d.reason),
    table("Agents of this drain", [["Agent", (a) => agentLink(a.agent_id)], ["Status", (a) => badge(a.status)], ["Had", (a) => count(a.work?.length ?? 0, "attempt")], ["Finished", (a) => num(a.finished), "num"],
      ["Moved", (a) => num(a.moved), "num"], ["Lost", (a) => num(a.lost ?? 0), "num"], ["Deadline", (a) => (a.completed_at ? "" : ago(a.deadline))], ["Done", (a) => ago(a.completed_at)], ["", (a) => a.error]], d.agents, { key: (a) => a.agent_id }),
    h("div.actions", null, !d.completed_at && d.status === "running" && button("Cancel the drain…", () => act.cancelDrain(d.id), { kind: "danger" }), temporalLink(`drain/${cluster}/${name}`)));
}
