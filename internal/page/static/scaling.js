// Scaling: how many agents each cluster is to have, why the number is changed or cannot be, and what was done.

import { h, svg } from "./dom.js";
import { query, seg } from "./address.js";
import { call, get, post, Problem } from "./api.js";
import { lists } from "./reads.js";
import { ago, count, goDuration, now, num, span } from "./format.js";
import { badge, section, table, facts, agentLink, clusterLink, filters, button, temporalLink, temporalSchedule, label, tone } from "./parts.js";
import { ask, because, reason } from "./actions.js";

const most = 20; // clusters that are shown in full

const setting = (c) => c.scaling?.mode || "off";

const number = (text, name) => {
  const n = Number(text);
  if (!/^\d+$/.test(text.trim()) || n > 1000) throw new Problem(422, { detail: `${name} must be a whole number up to 1000.` });
  return n;
};

/** scale asks how many agents a cluster is to have. is has what holds: {cluster, mode, desired, min, max}. */
export const scale = (is) => ask({
  title: `Scale cluster ${is.cluster}`, confirm: "Scale",
  text: is.mode === "off" ? "Scaling is off here: with a wanted number it keeps that from now on (manual)." : is.mode === "auto" ? "The rules go on from the wanted number, within the bounds." : "The cluster keeps this number of agents. Surplus agents are drained, then stopped.",
  fields: [{ name: "desired", label: "Agents wanted", value: String(is.desired) }, { name: "min", label: "At least", value: String(is.min) }, { name: "max", label: "At most", value: String(is.max) }],
  act(v) {
    const body = {};
    for (const [name, text] of [["desired", "The wanted number"], ["min", "The least number"], ["max", "The largest number"]]) {
      const n = number(v[name], text);
      if (n !== is[name] || name === "desired" && v.min === String(is.min) && v.max === String(is.max)) body[name] = n;
    }
    return post(`/clusters/${seg(is.cluster)}/scaling`, body);
  },
  done: (s) => `Cluster ${is.cluster}: ${count(s.target_agents, "agent")} wanted.`,
});

const modes = { auto: "auto: the rules decide, between the bounds", manual: "manual: the wanted number is kept", off: "off: agents are started and stopped by others" };

export const scalingMode = (cluster, before) => ask({
  title: `Scaling of cluster ${cluster}`, confirm: "Change", text: "With off, nothing is started, stopped or replaced any more; agents that run go on.",
  fields: [{ name: "mode", label: "Scaling", kind: "select", options: [before, ..."auto manual off".split(" ").filter((m) => m !== before)].map((m) => [m, modes[m] + (m === before ? " (as now)" : "")]) }],
  act: (v) => call("PATCH", `/clusters/${seg(cluster)}`, { scaling: { mode: v.mode } }), done: (_, v) => `Scaling of cluster ${cluster}: ${v.mode}.`,
});

/** starting is how many agents are on their way. */
const starting = (s) => s.actions.filter((a) => a.change === "up" && a.status === "running").reduce((n, a) => n + a.agents.filter((x) => x.status === "waiting" || x.status === "started").length, 0);

/** gauge draws agents between their bounds; the numbers stand beside it. */
function gauge(s) {
  const whole = Math.max(Math.min(s.max_agents, Math.max(2 * s.target_agents, 2 * s.current_agents, 10)), s.current_agents, s.target_agents, 1);
  const at = (n) => n / whole * 100, begun = starting(s), there = Math.max(0, s.current_agents - begun);
  return svg("svg", { class: "gauge", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 10" },
    svg("rect", { class: "track", width: 100, height: 10 }),
    there > 0 && svg("rect", { class: "t-" + (s.blocked || s.current_agents < s.target_agents ? "warn" : "ok"), width: at(there), height: 10 }),
    begun > 0 && svg("rect", { class: "t-run open", x: at(there), width: at(begun), height: 10 }),
    [s.min_agents, s.target_agents].filter((n) => n > 0).map((n) => svg("rect", { class: "mark", x: Math.min(99.4, at(n) - 0.3), width: 0.6, height: 10 })));
}

function held(what, b) {
  return h("p.banner.t-" + (what === "start" ? "bad" : "warn"), { key: what }, h("b", null, what === "start" ? "Agents cannot be started: " : "Agents cannot be stopped: "), b.reason,
    h("span.quiet", null, ` · ${b.failures === 1 ? "tried once" : `tried ${num(b.failures)} times`}, since `, ago(b.since, "for"), "; next try ", Date.parse(b.next_at) > now() ? ago(b.next_at) : "under way"));
}

const deeds = { up: ["Started", "Starts", "Could not start"], down: ["Stopped", "Stops", "Could not stop"] };

function deed(a) {
  const [done, doing, failed] = deeds[a.change] ?? ["Changed", "Changes", "Could not change"];
  return a.status === "running" ? doing : a.status === "failed" ? failed : done;
}

/** scalingItem is one action in a list. */
export function scalingItem(a) {
  const ended = a.completed_at && Date.parse(a.completed_at) - Date.parse(a.started_at), shown = (a.agents ?? []).slice(0, 8);
  return h("li", { key: a.id },
    h("p.headline", null, badge(a.status), h("strong", null, deed(a), " ", count(a.agents?.length ?? 0, "agent")), h("span.quiet", null, a.to !== a.from && `${num(a.from)} → ${num(a.to)}, `, "in ", clusterLink(a.cluster), ", ", ago(a.started_at))),
    a.reason && h("p", null, a.reason),
    a.error && h("p.problem", null, a.error),
    shown.length > 0 && h("p", null, shown.map((x, i) => [i > 0 && ", ", x.status === "stopped" || x.status === "failed" ? x.agent_id : agentLink(x.agent_id), h("span.quiet", null, ` ${label(x.status)}`)]), a.agents.length > shown.length && ` and ${a.agents.length - shown.length} more`),
    h("p.links", null, (a.spawner || ended > 0) && h("span.quiet", null, [a.spawner && `spawner ${a.spawner}`, ended > 0 && `took ${span(ended)}`].filter(Boolean).join(" · ")), a.drain_id && h("a", { href: "#/drains" + query({ cluster: a.cluster }), title: a.drain_id }, "its drain"),
      temporalLink("scaling/" + a.id.replace(":", "/"))));
}

const onRollout = {
  promote: ["Promote…", { title: "Promote the canaries?", text: "All other agents are replaced, too.", confirm: "Promote", done: "The others follow." }],
  revert: ["Revert…", { title: "Put the former settings in force?", text: "Agents with the new ones are replaced, at once and without canaries.", confirm: "Revert", danger: true, done: "The former settings are being put in force." }],
};

/** rolloutNow shows how agents with other settings take the place of the former ones. */
function rolloutNow(cluster, r) {
  const waits = r.status === "waiting", can = [waits && "promote", !r.revert && "revert"].filter(Boolean);
  return h("p", null, badge(r.status, waits ? "waiting for a person" : r.status), ` Rollout ${r.number}: ${num(r.healthy)} new and healthy, ${num(r.left)} still to be replaced`, r.reason && `. ${sentence(r.reason)}`, " ",
    can.map((a) => button(onRollout[a][0], () => ask({ ...onRollout[a][1], fields: [reason()], act: (v) => post(`/clusters/${seg(cluster)}/scaling/rollout/${a}`, because(v)) }), { key: a, "aria-label": `${onRollout[a][0]} rollout of ${cluster}` })));
}

const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

/** scalingNow shows how a cluster's number of agents is kept. */
export function scalingNow(s) {
  const begun = starting(s), there = Math.max(0, s.current_agents - begun), d = s.decision, on = s.mode !== "off";
  const bounds = [on && `${num(s.target_agents)} wanted`, s.min_agents > 0 && `at least ${num(s.min_agents)}`, `at most ${num(s.max_agents)}`].filter(Boolean).join(", ");
  return [
    h("p.amount", null, gauge(s), h("span", null, h("b", null, count(there, "agent")), begun > 0 && `, ${num(begun)} starting`, h("span.quiet", null, " · " + bounds))),
    s.blocked && held("start", s.blocked), s.stuck && held("stop", s.stuck),
    on && s.paused && h("p.banner.t-wait", null, "The rules are paused in Temporal; lost agents are replaced all the same. ", temporalSchedule("scaling")),
    on && d && !s.blocked && h("p", null, d.blocked ? badge("blocked") : null, d.blocked && " ", h("span.quiet", null, d.change === "none" ? "Now: " : "Now due: "), d.reason, d.next_at && [h("span.quiet", null, ", until "), ago(d.next_at)]),
    s.rollout && ["running", "waiting", "failed"].includes(s.rollout.status) && rolloutNow(s.cluster, s.rollout),
    s.last_decision && h("p", null, h("span.quiet", null, "Last decision, ", ago(s.last_decision.at), ": "), `${s.last_decision.change === "up" ? "start" : "stop"} ${count(s.last_decision.count, "agent")}: `, s.last_decision.reason),
  ];
}

const known = (s) => ({ cluster: s.cluster, mode: s.mode, desired: s.target_agents, min: s.min_agents, max: s.max_agents });

export const scalingButtons = (s) => h("div.actions", null,
  button("Scale…", () => scale(known(s)), { "aria-label": `Scale cluster ${s.cluster}` }), button("Mode…", () => scalingMode(s.cluster, s.mode), { "aria-label": `Change scaling of cluster ${s.cluster}` }));

function card(s) {
  const problem = s.blocked || s.stuck || s.decision?.blocked;
  return h("article.card.t-" + (s.blocked ? "bad" : problem ? "warn" : "ok"), { key: s.cluster },
    h("header.row", null, h("h2", null, clusterLink(s.cluster)), badge(s.mode), s.blocked && badge("blocked", "cannot start agents"), s.stuck && badge("blocked", "cannot stop agents")),
    scalingNow(s),
    facts(["Waiting", s.queue !== undefined && count(s.queue, "task")], ["Started by spawners", s.spawned_agents > 0 && count(s.spawned_agents, "agent")], ["Last started", ago(s.last_scale_up)], ["Last stopped", ago(s.last_scale_down)],
      ["Next look", ago(s.next_evaluation)], ["Spawners", s.spawners.length ? s.spawners.map((x) => x.name).join(", ") : badge("critical", "none is there")],
      s.mode === "auto" && ["Starts more", `when more than ${s.settings.scale_up.queue_threshold} wait, every ${span(goDuration(s.settings.scale_up.cooldown))} at most`],
      s.mode === "auto" && ["Stops some", `when idle for ${span(goDuration(s.settings.scale_down.idle_timeout))}`]),
    scalingButtons(s));
}

export const scaling = {
  title: "Scaling",
  every: 5000,
  wants: (type) => /^(scaling|cluster|brake|lane)\.|^agent\.(joined|left|lost|replaced|draining|maintenance|in_service)/.test(type),
  async load(p, signal) {
    const [all, actions] = lists.scaling(p), done = get(actions, signal);
    done.catch(() => {}); // awaited below
    const clusters = (await get(all, signal)).clusters.filter((c) => !p.cluster || c.name === p.cluster), on = clusters.filter((c) => setting(c) !== "off");
    const states = await Promise.all(on.slice(0, most).map((c) => get(`/clusters/${seg(c.name)}/scaling`, signal).catch((error) => {
      if (signal.aborted) throw error;
      return { cluster: c.name, failed: error.message };
    })));
    return { states, more: on.slice(most), off: clusters.filter((c) => setting(c) === "off"), ...(await done) };
  },
  render({ states, more, off, scalings, next_page_token: next }, p, app) {
    const urgent = (s) => (s.failed || s.blocked ? 0 : s.stuck || s.decision?.blocked ? 1 : 2);
    return [
      h("header.row", null, h("h1", { tabindex: "-1" }, "Scaling"), h("span.quiet", { role: "status" }, states.length ? `on in ${count(states.length + more.length, "cluster")}` : "off everywhere")),
      filters("scaling", p, [["cluster", "Cluster", app.clusterNames()]]),
      states.length > 0 && h("div.cards.wide", null, states.toSorted((a, b) => urgent(a) - urgent(b)).map((s) => s.failed
        ? h("article.card.t-bad", { key: s.cluster }, h("header.row", null, h("h2", null, clusterLink(s.cluster)), badge("unknown")), h("p", null, s.failed)) : card(s))),
      more.length > 0 && h("p", null, "Also on in: ", more.map((c, i) => [i > 0 && ", ", h("a", { href: "#/scaling" + query({ cluster: c.name }) }, c.name)])),
      section("What was done", { aside: h("span.quiet", null, `${count(scalings.length, "action")}${next ? " and more" : ""}, newest first`) },
        scalings.length ? h("ul.plain.cards.wide", null, scalings.map(scalingItem)) : h("p.empty", null, "No agent was started or stopped yet."),
        (next || p.page) && h("nav.pager", { "aria-label": "Pages" }, p.page && h("a.button", { href: "#/scaling" + query({ ...p, page: "" }) }, "← Newest"), next && h("a.button", { href: "#/scaling" + query({ ...p, page: next }) }, "Older →"))),
      off.length > 0 && section("Where it is off", null, table("Clusters without scaling", [
        ["Cluster", (c) => clusterLink(c.name)], ["Agents", (c) => `${num(c.healthy_agent_count)} online`], ["Wanted", (c) => [c.min_agents > 0 && `at least ${num(c.min_agents)}`, c.desired_agents > 0 && num(c.desired_agents)].filter(Boolean).join(", ")],
        ["", (c) => button("Scale…", () => scale({ cluster: c.name, mode: "off", desired: Math.max(c.desired_agents, c.healthy_agent_count), min: c.min_agents, max: c.max_agents }), { "aria-label": `Scale cluster ${c.name}` })]],
      off, { key: (c) => c.name })),
    ];
  },
};
