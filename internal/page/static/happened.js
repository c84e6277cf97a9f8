// What happened in the last 15 minutes and since: the events of the stream, but for those of single tasks that go well.

import { h } from "./dom.js";
import { clockTime } from "./format.js";
import { agentLink, clusterLink, taskLink, failoverLink, label } from "./parts.js";

const kept = 30, remembered = 1000;
const list = [];
const seen = new Set(); // ids: after a reconnect the last events may come again

const sentences = {
  "agent.joined": (d) => [agentLink(d.agent_id), " joined"],
  "agent.replaced": (d) => [agentLink(d.agent_id), " was replaced by a newer process"],
  "agent.suspect": (d) => [agentLink(d.agent_id), " does not answer"],
  "agent.recovered": (d) => [agentLink(d.agent_id), " is back"],
  "agent.lost": (d) => [agentLink(d.agent_id), " was lost"],
  "agent.left": (d) => [agentLink(d.agent_id), " left"],
  "agent.draining": (d) => [agentLink(d.agent_id), " is being drained"],
  "agent.maintenance": (d) => [agentLink(d.agent_id), " is in maintenance"],
  "agent.in_service": (d) => [agentLink(d.agent_id), " is given work again"],
  "agent.health": (d) => [agentLink(d.agent_id), ` is ${label(d.level)}`],
  "leader.elected": (d) => [agentLink(d.agent_id), " leads"],
  "leader.vacated": (d) => [agentLink(d.agent_id ?? d.previous_agent_id), " no longer leads"],
  "failover.started": (d) => [failoverLink(d.id, "Failover"), " of ", agentLink(d.agent_id), " began"],
  "failover.ended": (d) => [failoverLink(d.id, "Failover"), " of ", agentLink(d.agent_id), ` ended: ${label(d.outcome)}`],
  "drain.started": (d) => [h("a", { href: "#/drains" }, "Drain"), " began"],
  "drain.ended": (d) => [h("a", { href: "#/drains" }, "Drain"), ` ended: ${label(d.outcome)}`],
  "healing.action": (d) => [h("a", { href: "#/healing" }, "Healing"), d.agent_id && [" of ", agentLink(d.agent_id)], `: ${label(d.outcome)}`],
  "scaling.action": (d) => [h("a", { href: "#/scaling" }, "Scaling"), `: ${label(d.outcome)}`],
  "job.deployment": (d) => [h("a", { href: "#/jobs/" + encodeURIComponent(d.id) }, `Deployment of ${d.id}`), `: ${label(d.outcome)}`],
  "schedule.failed": (d) => [`Schedule ${d.id} could not make its task`],
  "lane.paused": (d) => [d.lane ? `Lane ${d.lane}` : "The cluster", " was paused"],
  "lane.resumed": (d) => [d.lane ? `Lane ${d.lane}` : "The cluster", " goes on"],
  "brake.engaged": () => ["The mass-loss brake is engaged"],
  "brake.released": () => ["The mass-loss brake is released"],
  "task.review": (d) => [taskLink(d.task_id), " needs a decision"],
  "task.dead_letter": (d) => [taskLink(d.task_id), " is a dead letter"],
  "task.failed": (d) => [taskLink(d.task_id), " failed"],
  "task.expired": (d) => [taskLink(d.task_id), " expired"],
  "gap": () => ["Some events were missed"],
};

const urgent = /agent\.(lost|suspect|recovered)|leader|failover\.ended|brake|task\.(review|dead_letter)/;

/** note keeps an event, and returns what is to be read out, if anything. */
export function note(type, event) {
  const make = sentences[type];
  if (!make || seen.has(event.id)) return "";
  seen.add(event.id);
  if (seen.size > remembered) seen.delete(seen.values().next().value);
  const data = event.data ?? {};
  const words = h("span", null, make(data));
  list.unshift({ id: event.id, time: event.time ?? new Date().toISOString(), make, data });
  list.length = Math.min(list.length, kept);
  return urgent.test(type) ? words.textContent + (data.cluster ? ` in ${data.cluster}` : "") : "";
}

/** happened lists the newest. */
export function happened() {
  if (!list.length) return h("p.empty", null, "Nothing yet.");
  return h("ul.plain.events", null, list.slice(0, 12).map((e) => h("li", { key: e.id },
    h("span.quiet", null, clockTime(e.time)), " ", h("span", null, e.make(e.data), e.data.cluster && [h("span.quiet", null, " in "), clusterLink(e.data.cluster)], e.data.reason && h("span.quiet", null, ": " + e.data.reason)))));
}
