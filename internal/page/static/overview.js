// The first screen: is anything wrong, where, since when, and what can be done.

import { h } from "./dom.js";
import { ago, coarse, goDuration, num, count } from "./format.js";
import { badge, tone, section, clusterLink, agentLink, failoverItem, bar, button } from "./parts.js";
import { happened } from "./happened.js";
import { resumeHealing } from "./healing.js";
import * as act from "./actions.js";

const urgency = { critical: "bad", warning: "warn", notice: "wait" };

/** where a problem is looked at. */
function target(p) {
  if (p.kind === "dead_letter") return `#/dead-letters?cluster=${p.cluster}`;
  if (p.kind === "review") return `#/reviews?cluster=${p.cluster}`;
  if (p.kind === "run" || p.kind === "array") return `#/${p.kind}s?cluster=${p.cluster}&status=blocked`;
  if (p.kind === "job" || p.kind === "deployment") return p.count === 1 ? `#/jobs/${encodeURIComponent(p.jobs[0])}` : `#/jobs?cluster=${p.cluster}${p.severity === "notice" ? "" : "&troubled=true"}`;
  if (p.kind === "failover") return `#/failovers/${encodeURIComponent(p.failover)}`;
  if (p.kind === "not_served" || p.kind === "old_work") return `#/queue?cluster=${p.cluster}`;
  if (p.kind === "unhandled") return `#/tasks?cluster=${p.cluster}&status=retry_wait&type=${encodeURIComponent(p.task_type)}`;
  if (p.kind.startsWith("healing")) return `#/healing${p.cluster ? "?cluster=" + p.cluster : ""}`;
  if (p.kind === "scaling") return `#/scaling${p.cluster ? "?cluster=" + p.cluster : ""}`;
  if ((p.kind === "agents" || p.kind === "health") && p.agents?.length === 1 && p.count === 1) return `#/agents/${p.agents[0]}`;
  if ((p.kind === "agents" || p.kind === "health") && p.count > 0) return `#/agents?cluster=${p.cluster}`;
  return `#/clusters/${p.cluster}`;
}

function remedy(p) {
  if (p.kind === "brake") return button("Release the brake", () => act.releaseBrake(p.cluster), { kind: "danger" });
  if (p.kind === "paused") return button("Resume", () => act.resume(p.cluster, p.lane));
  if (p.kind === "dead_letter") return button(p.count === 1 ? "Retry it" : `Retry all ${num(p.count)}`, () => act.bulk("retry", { cluster: p.cluster, status: "dead_letter" }, "Retry"));
  if (p.kind === "review") return h("a.button", { href: target(p) }, "Decide");
  if (p.kind === "healing_paused") return button("Resume healing…", resumeHealing);
  if (p.kind === "cordoned" && p.count === 1 && p.agents) return h("a.button", { href: `#/agents/${p.agents[0]}` }, "Show");
  return null;
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

export function problem(p) {
  return h("li.problem-row.t-" + urgency[p.severity], { key: [p.kind, p.cluster, p.lane, p.failover, p.agents?.[0], p.jobs?.[0], p.task_type].join(" ") },
    h("p.headline", null, h("span.badge.t-" + urgency[p.severity], null, h("span", { "aria-hidden": "true" }, { critical: "✕", warning: "▲", notice: "○" }[p.severity]), p.severity),
      h("a", { href: target(p) }, h("strong", null, sentence(p.what))), p.since && h("span.quiet", null, "since ", ago(p.since, "for"))),
    p.why && h("p", null, p.why),
    h("div.foot", null, p.do && h("p.quiet", null, p.do), remedy(p)));
}

function verdict(o) {
  const urgent = o.problems.filter((p) => p.severity === "critical").length, warnings = o.problems.filter((p) => p.severity === "warning").length;
  if (urgent) return ["bad", "✕", `${count(urgent, "critical problem")}${warnings ? ` and ${count(warnings, "warning")}` : ""}`];
  if (warnings) return ["warn", "▲", count(warnings, "warning")];
  return ["ok", "●", "Nothing is wrong"];
}

/** tiles are the numbers of the fleet. */
function tiles(o) {
  const tile = (href, n, text, t) => h("a.tile" + (t ? ".t-" + t : ""), { href, key: text }, h("b", null, num(n)), " ", h("span", null, text));
  const waiting = o.lanes.reduce((sum, l) => sum + l.depth, 0);
  return h("nav.tiles", { "aria-label": "The fleet in numbers" },
    tile("#/agents?status=online", o.agents.online, "agents online"),
    o.agents.suspect + o.agents.offline > 0 && tile("#/agents?status=" + (o.agents.offline ? "offline" : "suspect"), o.agents.suspect + o.agents.offline, "lost or not answering", "bad"),
    tile("#/tasks?status=running", o.agents.running, `running of ${num(o.agents.slots)} slots`),
    tile("#/queue", waiting, "waiting"),
    tile("#/tasks", o.tasks.open, "open tasks"),
    o.jobs.lacking > 0 && tile("#/jobs?troubled=true", o.jobs.lacking, o.jobs.lacking === 1 ? "job lacks instances" : "jobs lack instances", "warn"),
    o.jobs.failed_deployments > 0 && tile("#/jobs?troubled=true", o.jobs.failed_deployments, o.jobs.failed_deployments === 1 ? "failed deployment" : "failed deployments", "warn"),
    tile("#/dead-letters", o.tasks.dead_letter, o.tasks.dead_letter === 1 ? "dead letter" : "dead letters", o.tasks.dead_letter ? "warn" : ""),
    tile("#/reviews", o.tasks.review, o.tasks.review === 1 ? "review" : "reviews", o.tasks.review ? "warn" : ""));
}

function clusterCard(c, lanes, problems) {
  const mine = lanes.filter((l) => l.cluster === c.name), depth = mine.reduce((n, l) => n + l.depth, 0);
  const oldest = Math.max(0, ...mine.map((l) => goDuration(l.oldest_age)));
  const slots = mine.find((l) => l.lane === "default"), wanted = Math.max(c.desired_agents, c.min_agents, c.agent_count);
  return h("article.card.t-" + tone(c.status), { key: c.name },
    h("header.row", null, h("h3", null, clusterLink(c.name)), badge(c.status)),
    h("p.load", null, bar(wanted ? c.healthy_agent_count / wanted : 0, c.status === "healthy" ? "ok" : tone(c.status)), `${c.healthy_agent_count} of ${wanted} agents online`),
    h("p", null, c.replication_mode === "active_passive" ? [c.leader ? ["led by ", agentLink(c.leader)] : h("b", null, "no leader"), c.standbys?.length ? `, ${count(c.standbys.length, "standby", "standbys")}` : ", no standby"]
      : c.replication_mode === "sharded" ? `${c.shards} shards, ${c.shard_owners ? new Set(c.shard_owners.map((s) => s.owner).filter(Boolean)).size : "?"} owners` : "every agent serves",
      slots?.busy_slots !== undefined && c.replication_mode !== "sharded" ? ` · ${slots.busy_slots} of ${slots.slots} slots busy` : ""),
    h("p", null, h("a", { href: `#/queue?cluster=${c.name}` }, depth ? `${num(depth)} waiting` : "nothing waits"), oldest > 0 && ` · oldest ${coarse(oldest)}`),
    c.paused && h("p", null, badge("paused"), " since ", ago(c.paused.since, "for")),
    problems > 0 && h("p.quiet", null, count(problems, "problem") + " above"));
}

export const overview = {
  title: "Overview",
  every: 10000,
  wants: () => true,
  load: (_, signal, { known }) => known(signal),
  render(o) {
    const [t, sign, text] = verdict(o);
    return [
      h("h1.verdict.t-" + t, { tabindex: "-1" }, h("span", { "aria-hidden": "true" }, sign), text),
      o.missing?.length > 0 && h("p.banner.t-warn", null, "Could not be read this time: " + o.missing.join(", ") + "."),
      o.problems.length > 0 && h("ul.problems", { "aria-label": "Problems" }, o.problems.map(problem)),
      tiles(o),
      section("Clusters", null, o.clusters.length
        ? h("div.cards", null, o.clusters.map((c) => clusterCard(c, o.lanes, o.problems.filter((p) => p.cluster === c.name && p.severity !== "notice").length)))
        : h("p.empty", null, "There are no clusters yet. Make one: ", h("code", null, "mainstay cluster create NAME"))),
      h("div.columns", null,
        section("Newest failovers", { aside: h("a", { href: "#/failovers" }, "all") }, o.failovers.length
          ? h("ul.plain", null, o.failovers.slice(0, 5).map(failoverItem)) : h("p.empty", null, "No agent's work had to be moved.")),
        section("Lately", null, happened())),
    ];
  },
};
