// A job, with its instances: what runs where and how well, how its versions take each other's place, and what a person can do.

import { h } from "./dom.js";
import { query, seg } from "./address.js";
import { get, post } from "./api.js";
import { single } from "./reads.js";
import { ago, count, num } from "./format.js";
import { badge, label, section, table, facts, bar, tried, agentLink, clusterLink, taskLink, button, temporalLink } from "./parts.js";
import { ask, because, reason } from "./actions.js";
import { decide } from "./tasks.js";

const path = (j, ...more) => ["/jobs", ...[j.name, ...more].map(seg)].join("/");

const simple = (word, title, text, confirm, done, more) => (j) => ask({ title, text, confirm, fields: [reason()], act: (v) => post(path(j, word), because(v)), done, ...more });

const onJob = {
  promote: ["Promote…", simple("promote", "Promote the canaries?", "All other instances follow.", "Promote", "The others follow.")],
  fail: ["Fail the deployment…", simple("fail", "Fail this deployment?", "What is new is stopped, and the old instances stay.", "Fail it", "The deployment has failed.", { danger: true })],
  revert: ["Revert…", (j) => ask({ title: `Revert ${j.name} to version ${j.reverts_to}?`, text: `All instances get version ${j.reverts_to}, at once and without canaries.`, confirm: "Revert", danger: true, act: () => post(path(j, "revert"), { version: j.reverts_to }), done: "The version before is being put in force." })],
  scale: ["Scale…", (j) => ask({ title: "How many instances?", text: "Until a definition with another count is applied.", confirm: "Scale", fields: [{ name: "count", label: "Instances", required: true, value: j.count }],
    act: (v) => post(path(j, "scale"), { count: Number(v.count) }), done: (_, v) => `It is to have ${count(Number(v.count), "instance")}.` })],
  resume: ["Resume…", simple("resume", "Resume this job?", "What it starts by itself starts again.", "Resume the job", "The job goes on.")],
  pause: ["Pause…", simple("pause", "Pause this job?", "What runs goes on, and nothing is started.", "Pause the job", "The job is paused.")],
  stop: ["Stop…", simple("stop", "Stop all instances?", "They start again when the job is resumed.", "Stop them", "The instances are being stopped.", { danger: true })],
};

function can(j, r) {
  const active = r && ["running", "waiting"].includes(r.status), halted = j.stopped || j.paused;
  return [r?.status === "waiting" && "promote", active && "fail", j.type !== "batch" && j.reverts_to && "revert", halted ? "resume" : j.type === "service" && "scale", !halted && "pause", j.type !== "batch" && !j.stopped && "stop"].filter(Boolean);
}

const restart = (j, i) => ask({ title: `Restart instance ${i.name}?`, text: "Its task is stopped, and another takes its place.", confirm: "Restart", fields: [reason()],
  act: (v) => post(path(j, "instances", i.name, "restart"), because(v)), done: `Instance ${i.name} is being restarted.` });

const counts = (r) => r.counts?.map((c) => `${num(c.healthy)} of ${num(c.instances)} healthy with version ${c.version}`).join(", ");

/** deploymentBadge is a deployment's status; one that waits needs a person. */
export const deploymentBadge = (status) => (status === "waiting" ? badge("review", "waits for promotion") : badge(status));

/** notRunning reports whether an instance should run and does not: it waits for an agent, a time or a person. */
const notRunning = (j, i) => !i.stopping && (i.ended ? j.type !== "sysbatch" : i.status !== "running");

const follows = { restarting: "restarts on its agent", rescheduling: "goes to another agent", waiting_for_agent: "waits for its agent", blocked: "no agent takes it", review: "a person decides", exhausted: "nothing by itself" };

const canary = (i) => i.canary && [" ", h("span.label", null, "canary")];

/** next is what follows for an instance that does not run. */
const next = (i) => badge(i.ended ? "starting" : i.status === "queued" ? "queued" : i.status, i.ended ? "is started anew" : i.status === "queued" ? "waits for an agent" : follows[i.recovery_status] ?? label(i.status));

/** soFar is what was tried: with each that counts the wait before the next one grows. */
function soFar(i) {
  return [i.ends > 0 && `ended ${i.ends === 1 ? "once" : `${num(i.ends)} times in a row`}`, tried(i.policy_state)].filter(Boolean).join(", ");
}

const waiting = (j, list) => list.length > 0 && section("Not running", { aside: h("span.quiet", null, "why, and what follows") }, table("Instances that do not run", [
  ["Instance", (i) => [taskLink(i.task_id, i.name), canary(i)], "named"], ["What follows", next], ["When", (i) => i.next_at && ago(i.next_at)], ["So far", soFar], ["Why", (i) => i.why, "wide"], ["", (i) => i.recovery_status === "review" ? decide({ id: i.task_id }) : i.status === "blocked" && taskLink(i.task_id, "Decide")]],
list, { key: (i) => i.task_id }));

export const job = {
  title: (p) => "Job " + p.id,
  every: 3000,
  everyTask: true,
  wants: (type, d, p) => type === "job.deployment" ? d.id === p.id : type.startsWith("task.") && d.task_id?.startsWith(p.id + "~~"),
  async load(p, signal) {
    const [j, has] = await Promise.all(single.jobs(p).map((one) => get(one, signal)));
    return { ...j, has };
  },
  render(j) {
    const batch = j.type === "batch", r = j.deployments?.at(-1), current = r?.version >= (j.template ?? 0) ? r : null;
    const said = (i) => (i.stopping ? `it is being stopped: ${i.stopping}` : !notRunning(j, i) && i.why), instances = j.has.instances, passing = new Set(instances.filter((i) => (i.health === "passing" || j.type === "sysbatch" && i.status === "completed") && !i.stopping).map((i) => i.name)).size;
    return [
      h("nav.crumbs", { "aria-label": "Where this is" }, clusterLink(j.cluster), " / ", h("a", { href: "#/jobs" + query({ cluster: j.cluster }) }, "Jobs")),
      h("header.row", null, h("h1", { tabindex: "-1" }, j.name), j.stopped ? badge("stopped") : j.paused ? badge("paused") : !batch && badge(passing >= j.has.wanted ? "healthy" : passing ? "degraded" : "critical", `${num(passing)} of ${num(j.has.wanted)} healthy`)),
      [j.stopped, j.paused].map((d) => d && h("p.why", null, d === j.stopped ? "Stopped for " : "Paused for ", ago(d.at, "for"), d.by && ` by ${d.by}`, d.reason && `: ${d.reason}`)),
      j.has.why && h("p.why", null, `No instance is started now: ${j.has.why}`),
      current && current.status !== "successful" && h("p.why", null, deploymentBadge(current.status), ` Deployment of version ${current.version}: `, [current.reason, counts(current)].filter(Boolean).join("; ")),
      h("div.actions", null, can(j, current).map((a) => button(onJob[a][0], () => onJob[a][1](j), { key: a, kind: ["stop", "fail", "revert"].includes(a) ? "danger" : ["promote", "resume"].includes(a) ? "primary" : "" })),
        batch && h("a.button", { href: "#/runs" + query({ job: j.name }) }, "Show its runs"), temporalLink("job/" + j.name)),
      facts(["Type", j.type], ["Healthy", !batch && [bar(j.has.wanted ? passing / j.has.wanted : 0), ` ${num(passing)} of ${num(j.has.wanted)}`]], ["Version", j.version], ["Cluster", clusterLink(j.cluster)], ["Tenant", j.tenant],
        ["Service", j.definition?.instances?.service?.name], ["Steps", batch && num(Object.keys(j.definition?.steps ?? {}).length)],
        ["Next runs", j.next_times?.slice(0, 3).map((at, i) => [i > 0 && ", ", ago(at)])], ["Events that start it", j.events?.join(", ")], ["Since", ago(j.created_at)]),
      waiting(j, instances.filter((i) => notRunning(j, i))),
      !batch && section("Instances", null, table("Instances", [
        ["Instance", (i) => taskLink(i.task_id, i.name), "named"], ["Status", (i) => [badge(i.status), canary(i)]], ["Health", (i) => i.health && badge(i.health)], ["Version", (i) => i.version, "num"],
        ["Agent", (i) => agentLink(i.agent)], ["Starts", (i) => num(i.attempts ?? 0), "num"], ["Since", (i) => ago(i.since)], instances.some(said) && ["Why", said, "wide"],
        ["", (i) => !i.ended && button("Restart…", () => restart(j, i), { "aria-label": `Restart instance ${i.name}` })]].filter(Boolean),
      instances, { key: (i) => i.task_id, empty: j.stopped ? "The job is stopped." : j.has.why ? "None was started yet." : j.type === "service" ? "There are none." : "No agent is eligible." })),
      j.deployments?.length > 0 && section("Deployments", { aside: h("span.quiet", null, "newest first") }, table("Deployments", [
        ["Version", (d) => [d.version, d.revert && h("span.quiet", null, " revert")], "num.named"], ["Status", (d) => deploymentBadge(d.status)], ["Healthy", counts], ["Began", (d) => ago(d.started_at)], ["Ended", (d) => d.ended_at && ago(d.ended_at)], ["By", (d) => d.by],
        ["Why", (d) => [d.reason, d.task_id && [" ", taskLink(d.task_id, "Look at the instance")], d.reverted_to && `; version ${d.reverted_to} was put in force again`], "wide"]],
      j.deployments.toReversed(), { key: (d) => d.version })),
    ];
  },
};
