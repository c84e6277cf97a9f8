// Clusters and agents.

import { h } from "./dom.js";
import { query } from "./address.js";
import { get } from "./api.js";
import { lists, single } from "./reads.js";
import { ago, span, goDuration, num, count } from "./format.js";
import { badge, section, table, facts, load, bar, agentLink, clusterLink, failoverItem, filters, button, temporalLink, label, tone } from "./parts.js";
import { laneTable } from "./work.js";
import { healingList, healingMode } from "./healing.js";
import { scalingButtons, scalingItem, scalingNow } from "./scaling.js";
import * as act from "./actions.js";

const percent = (n) => (n === undefined ? null : `${Math.round(n)} %`);

function roles(a) {
  if (a.shards?.length) return count(a.shards.length, "shard");
  return a.role === "member" ? "" : badge(a.role);
}

/** away says how an agent stands with its hub, where its status does not. */
const away = (a) => a.connection && a.connection !== "connected" && a.connection !== a.status && h("span.quiet", null, " ", a.connection === "offline" ? "not connected" : a.connection);

const agentColumns = (withCluster) => [
  ["Agent", (a) => agentLink(a.id)],
  withCluster && ["Cluster", (a) => clusterLink(a.cluster)],
  ["Status", (a) => [badge(a.status), away(a), a.status !== "online" && h("span.quiet", null, " for ", ago(a.status_since, "for"), a.status_reason && `: ${a.status_reason}`)]],
  ["Role", roles],
  ["Load", (a) => a.status === "offline" ? "" : load(a)],
  ["Heartbeat", (a) => a.status === "offline" ? "" : ago(a.last_heartbeat)],
  ["CPU", (a) => percent(a.cpu_percent), "num"],
  ["Memory", (a) => percent(a.memory_percent), "num"],
  ["Host", (a) => [a.host, a.zone && h("span.quiet", null, ` ${a.zone}`)]],
].filter(Boolean);

const rows = 200; // of a long list that are drawn before somebody asks for more

export const agents = {
  title: "Agents",
  every: 5000,
  partial: (d) => d.next_page_token,
  wants: (type) => /^(agent|leader|shard|failover)\./.test(type),
  filters: ["cluster", "status", "zone", "group", "capability"],
  load: (p, signal, { first }) => get(lists.agents(p, first)[0], signal),
  render(d, p, app) {
    const more = Number(p.show) || rows, whole = !app.brief || !d.next_page_token;
    return [
      h("header.row", null, h("h1", { tabindex: "-1" }, "Agents"), h("span.quiet", { role: "status" }, whole && count(d.agents.length, "agent") + (d.next_page_token ? " and more" : ""))),
      filters("agents", p, [["cluster", "Cluster", app.clusterNames()], ["status", "Status", ["online", "suspect", "warning", "stopping", "offline", "draining", "maintenance"]], ["zone", "Zone"], ["capability", "Capability"]]),
      table("Agents", agentColumns(true), d.agents.slice(0, more), { key: (a) => a.id + "@" + a.cluster, empty: Object.keys(p).length ? "No agent matches." : "No agent has registered yet. Start one: mainstay agent run" }),
      d.agents.length > more && h("p", null, h("a.button", { href: "#/agents" + query({ ...p, show: d.agents.length }) }, `Show all ${num(d.agents.length)}`)),
    ];
  },
};

export const agent = {
  title: (p) => "Agent " + p.id,
  every: 5000,
  wants: (type, d, p) => d.agent_id === p.id || d.previous_agent_id === p.id,
  async load(p, signal) {
    const [one, ...more] = single.agents(p);
    const [a, health, failovers, healing] = await Promise.all([get(one, signal), ...more.map((path) => get(path, signal).catch(() => null))]);
    return { a, health, failovers, healing };
  },
  render({ a, health, failovers, healing }) {
    const serving = ["online", "suspect", "warning"].includes(a.status);
    return [
      h("nav.crumbs", { "aria-label": "Where this is" }, clusterLink(a.cluster), " / ", h("span", null, "agent")),
      h("header.row", null, h("h1", { tabindex: "-1" }, a.id), badge(a.status), away(a), a.role !== "member" && badge(a.role)),
      a.status !== "online" && h("p.why", null, label(a.status), " for ", ago(a.status_since, "for"), a.status_reason && `: ${a.status_reason}`),
      h("div.actions", null,
        serving && button("Drain…", () => act.drain(a.id)),
        serving && button("Maintenance…", () => act.maintenance(a.id, true)),
        a.status === "maintenance" && button("End maintenance…", () => act.maintenance(a.id, false)),
        (a.status === "offline" || !a.hub) && button("Forget…", () => act.forget(a.id), { kind: "danger" }),
        serving && button("Fail over…", () => act.failover(a.id), { kind: "danger" }),
        h("a.button", { href: "#/tasks" + query({ agent: a.id }) }, "Its tasks"), temporalLink("cluster/" + a.cluster)),
      facts(["Load", load(a)], ["Heartbeat", ago(a.last_heartbeat)], ["Epoch", a.epoch], ["Shards", a.shards?.join(", ")], ["CPU", percent(a.cpu_percent)], ["Memory", percent(a.memory_percent)],
        ["Completed", num(a.completed)], ["Failed", num(a.failed)], ["Joined", ago(a.joined_at)], ["Host", [a.host, a.pid && `, pid ${a.pid}`]], ["Zone", a.zone], ["Group", a.group],
        ["Hub", a.hub], ["Version", a.version], ["Capabilities", a.capabilities?.join(", ")], ["Task types", a.task_types?.join(", ") || "any"], ["Process", h("span.mono", null, a.instance_id)],
        ...Object.entries(a.metadata ?? {})),
      section("Health", { aside: health?.level && badge(health.level, `${label(health.level)} ${health.score?.toFixed(2) ?? ""}`) }, healthParts(health)),
      section("Healing", { aside: h("a", { href: "#/healing" + query({ agent: a.id }) }, "all") }, healingList(healing?.actions, "Healing never had to do anything about it.")),
      section("Failovers", null, failovers?.failovers.length ? h("ul.plain", null, failovers.failovers.map(failoverItem)) : h("p.empty", null, "Its work was never moved.")),
    ];
  },
};

function healthParts(health) {
  if (!health) return h("p.empty", null, "Not known: its hub did not answer.");
  return [
    health.why && h("p", null, health.why),
    health.factors && table("What the health is made of, over the last five minutes", [
      ["Factor", (f) => label(f.name)],
      ["Score", (f) => h("span.load", null, bar(f.score, f.score >= 0.9 ? "ok" : f.score >= 0.5 ? "warn" : "bad"), f.score.toFixed(2))],
      ["Weight", (f) => f.weight, "num"], ["Why", (f) => f.why]], health.factors, { key: (f) => f.name }),
    health.checks && h("ul.chips", { "aria-label": "Checks" }, health.checks.map((c) => h("li", { key: c.name }, badge(c.status, `${c.name}: ${c.why}`)))),
  ];
}

export const clusters = {
  title: "Clusters",
  every: 10000,
  wants: (type) => !type.startsWith("task."),
  load: (_, signal) => get(lists.clusters()[0], signal),
  render: (d) => [
    h("h1", { tabindex: "-1" }, "Clusters"),
    table("Clusters", [
      ["Cluster", (c) => clusterLink(c.name)], ["Status", (c) => [badge(c.status), c.paused && badge("paused")]],
      ["Agents", (c) => `${c.healthy_agent_count} of ${c.agent_count}`], ["Wanted", (c) => (c.min_agents || c.desired_agents ? `${c.min_agents} to ${c.desired_agents || c.max_agents}` : "")],
      ["Mode", (c) => label(c.replication_mode)], ["Leader", (c) => agentLink(c.leader)], ["Since", (c) => ago(c.created_at)]],
    d.clusters, { key: (c) => c.name, empty: "There are no clusters yet. Make one: mainstay cluster create NAME" }),
  ],
};

export const cluster = {
  title: (p) => "Cluster " + p.id,
  every: 5000,
  redraw: true,
  wants: (type, d, p) => d.cluster === p.id && !type.startsWith("task."),
  async load(p, signal) {
    const [one, itsMembers, ...more] = single.clusters(p);
    const [c, members, queue, failovers, healing, scaling] = await Promise.all([get(one, signal), get(itsMembers, signal), ...more.map((path) => get(path, signal).catch(() => null))]);
    return { c, members: members.members, queue, failovers, healing, scaling };
  },
  render({ c, members, queue, failovers, healing, scaling }, p, app) {
    const problems = app.overview()?.problems.filter((x) => x.cluster === c.name) ?? [];
    return [
      h("nav.crumbs", { "aria-label": "Where this is" }, h("a", { href: "#/clusters" }, "clusters")),
      h("header.row", null, h("h1", { tabindex: "-1" }, c.name), badge(c.status), c.paused && badge("paused")),
      c.paused && h("p.why", null, "Paused for ", ago(c.paused.since, "for"), c.paused.reason && `: ${c.paused.reason}`),
      problems.length > 0 && h("ul.problems", { "aria-label": "Problems of this cluster" }, problems.map(app.problem)),
      h("div.actions", null,
        c.paused ? button("Resume…", () => act.resume(c.name)) : button("Pause…", () => act.pause(c.name)),
        c.brake_holds?.length && button("Release the brake…", () => act.releaseBrake(c.name), { kind: "danger" }),
        h("a.button", { href: "#/tasks" + query({ cluster: c.name }) }, "Tasks"), temporalLink("cluster/" + c.name)),
      section("Topology", { aside: h("span.quiet", null, label(c.replication_mode)) }, topology(c, members)),
      section("Members", { aside: h("span.quiet", null, `${c.healthy_agent_count} of ${c.agent_count} online`) },
        table("Members", agentColumns(false), members.slice(0, app.brief ? rows / 10 : rows), { key: (a) => a.id, empty: `No agent yet. Start one: mainstay agent run --cluster ${c.name}` }),
        members.length > rows && h("p", null, h("a", { href: "#/agents" + query({ cluster: c.name, show: members.length }) }, `All ${num(members.length)} agents`))),
      section("Lanes", null, queue ? laneTable(queue.lanes, false) : h("p.empty", null, "Temporal did not tell what waits.")),
      section("Failovers", { aside: h("a", { href: "#/failovers" + query({ cluster: c.name }) }, "all") },
        failovers?.failovers.length ? h("ul.plain", null, failovers.failovers.map(failoverItem)) : h("p.empty", null, "None.")),
      section("Healing", { aside: [badge(c.self_healing.mode), h("a", { href: "#/healing" + query({ cluster: c.name }) }, "all")] },
        healingList(healing?.actions, "It did not have to do anything here."),
        h("div.actions", null, button("Mode…", () => healingMode(c.name, c.self_healing.mode), { "aria-label": `Change healing of cluster ${c.name}` }))),
      section("Scaling", { aside: [badge(c.scaling?.mode || "off"), h("a", { href: "#/scaling" + query({ cluster: c.name }) }, "all")] },
        scaling ? h("div.stack", null, scalingNow(scaling), scaling.actions.length > 0 && h("ul.plain", null, scaling.actions.slice(0, 3).map(scalingItem)), scalingButtons(scaling)) : h("p.empty", null, "Temporal did not tell.")),
      section("Settings", null, facts(["Agents", [c.min_agents && `at least ${c.min_agents}`, c.desired_agents && `${c.desired_agents} desired`, `at most ${num(c.max_agents)}`].filter(Boolean).join(", ")], ["Selection", label(c.selection_strategy)], ["Role lease", c.role_lease],
        ["Transfer timeout", span(goDuration(c.task_transfer_timeout))], ["Dead letters kept", span(goDuration(c.dead_letter_retention))], ["Target group", c.target_group],
        ["Brake", c.brake.share >= 1 ? "off" : `more than ${Math.round(c.brake.share * 100)} % and at least ${c.brake.min_lost} agents within ${c.brake.window}`],
        ["Tenant weights", Object.entries(c.tenant_weights ?? {}).map(([t, w]) => `${t} ${w}`).join(", ")], ["Created", ago(c.created_at)])),
    ];
  },
};

function chip(m, role) {
  return h("li.chip.t-" + tone(m.status), { key: m.id }, h("strong", null, agentLink(m.id)), role && h("span.quiet", null, role), m.status === "online" ? load(m) : badge(m.status));
}

const drawn = 60; // agents that are drawn one by one

function topology(c, members) {
  if (c.replication_mode === "sharded") return shardMap(c);
  if (c.replication_mode === "active_passive") {
    const by = Object.fromEntries(members.map((m) => [m.id, m])), standbys = (c.standbys ?? []).map((id) => by[id]).filter(Boolean);
    const others = members.filter((m) => m.id !== c.leader && !c.standbys?.includes(m.id));
    return h("div.topology", null,
      h("div", null, h("h3", null, "Leader"), by[c.leader] ? h("ul.chips", null, chip(by[c.leader], `epoch ${c.leader_epoch}`)) : h("p.empty", null, "None now.")),
      h("div.arrow", { "aria-hidden": "true" }, "⇠"),
      h("div", null, h("h3", null, c.selection_strategy === "standby" ? "Standbys, the next leader first" : "Standbys"), standbys.length ? h("ol.chips", null, standbys.slice(0, drawn).map((m) => chip(m))) : h("p.empty", null, "None: if the leader is lost, nobody can take over.")),
      others.length > 0 && h("div", null, h("h3", null, "Out of service"), h("ul.chips", null, others.slice(0, drawn).map((m) => chip(m)))));
  }
  if (!members.length) return h("p.empty", null, "No agent yet.");
  return [h("p.quiet", null, "Every online agent serves the cluster's lanes."), h("ul.chips", null, members.slice(0, drawn).map((m) => chip(m)), members.length > drawn && h("li.quiet", null, `and ${members.length - drawn} more`))];
}

function ranges(list) {
  const out = [];
  for (const n of list) {
    const last = out.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else out.push([n, n]);
  }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

function shardMap(c) {
  const owners = new Map();
  for (const s of c.shard_owners ?? []) owners.set(s.owner ?? "", [...(owners.get(s.owner ?? "") ?? []), s.shard]);
  const names = [...owners.keys()].filter(Boolean).sort(), colour = (o) => (o ? "c" + names.indexOf(o) % 8 : "none");
  return [
    h("div.shards", { "aria-hidden": "true" }, (c.shard_owners ?? []).map((s) => h("span." + colour(s.owner), { key: s.shard, title: `shard ${s.shard}: ${s.owner ?? "no owner"}` }, s.shard))),
    h("ul.plain.owners", { "aria-label": "Shards by owner" },
      owners.has("") && h("li", { key: "none" }, h("span.swatch.none", { "aria-hidden": "true" }), h("b", null, "no owner"), `: ${ranges(owners.get(""))}`),
      names.map((o) => h("li", { key: o }, h("span.swatch." + colour(o), { "aria-hidden": "true" }), agentLink(o), `: ${ranges(owners.get(o))}`))),
  ];
}
