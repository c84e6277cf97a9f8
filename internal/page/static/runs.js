// Jobs and their runs: the lists, and one run with its steps as a graph, its attempts over time, and what people decide.

import { h } from "./dom.js";
import { query, seg } from "./address.js";
import { get, post } from "./api.js";
import { lists, single } from "./reads.js";
import { ago, count, num, span } from "./format.js";
import { graph } from "./graph.js";
import { badge, tone, section, table, facts, attemptRow, timeline, agentLink, clusterLink, taskLink, runLink, arrayLink, filters, button, pager, temporalLink, json } from "./parts.js";
import { ask, because, jsonOf, reason } from "./actions.js";
import { decide } from "./tasks.js";
import { deploymentBadge } from "./services.js";

const statuses = ["running", "pausing", "paused", "blocked", "completed", "partial", "failed", "cancelled"];
const instances = (j) => j.type !== "batch"; // not steps
const jobLink = (j) => (instances(j) ? h("a", { href: "#/jobs/" + seg(j.name) }, j.name) : ofJob(j.name));
const ofJob = (name) => h("a", { href: "#/runs" + query({ job: name }), title: "Show the runs of this job" }, name);
const took = (x) => x.started_at && (x.ended_at ? span(Date.parse(x.ended_at) - Date.parse(x.started_at)) : [ago(x.started_at, "for"), " so far"]);
const ofSteps = (type, d) => type.startsWith("task.") && d.task_id?.includes("~");

export const runs = {
  title: "Runs",
  every: 5000,
  everyTask: true,
  partial: (d) => d.next_page_token,
  wants: (type, d, p) => ofSteps(type, d) && !p.page,
  load: (p, signal, { first }) => get(lists.runs(p, first)[0], signal),
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Runs"), p.job && h("a", { href: "#/jobs/" + seg(p.job) }, "Job " + p.job), h("span.quiet", { role: "status" }, (!app.brief || !d.next_page_token) && `${count(d.runs.length, "run")} on this page, newest first`)),
    filters("runs", p, [["status", "Status", statuses], ["job", "Job"], ["cluster", "Cluster", app.clusterNames()], ["tenant", "Tenant"]]),
    table("Runs", [
      ["Run", (r) => runLink(r.id)], ["Status", (r) => badge(r.status)], ["Job", (r) => ofJob(r.job)], ["Version", (r) => r.job_version, "num"], ["Cluster", (r) => clusterLink(r.cluster)],
      ["Started", (r) => ago(r.started_at)], ["Took", took, "num"]],
    d.runs, { key: (r) => r.id, empty: Object.keys(p).length ? "No run matches." : "No job has run yet. Try: mainstay job run FILE" }),
    !app.brief && pager("runs", p, d),
  ],
};

/** deploys shows a deployment that has not succeeded. */
const deploys = (j) => (j.deployment === "waiting" ? deploymentBadge(j.deployment) : ["running", "failed"].includes(j.deployment) && badge(j.deployment, "deployment " + j.deployment));

export const jobs = {
  title: "Jobs",
  every: 10000,
  everyTask: true,
  wants: ofSteps,
  async load(p, signal) {
    const [d, newest] = await Promise.all(lists.jobs(p).map((path) => get(path, signal)));
    const last = new Map((newest?.runs ?? []).toReversed().map((r) => [r.job, r]));
    return { ...d, last, all: !newest?.next_page_token };
  },
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Jobs"), h("span.quiet", { role: "status" }, count(d.jobs.length, "job") + (d.next_page_token ? " on this page" : ""))),
    filters("jobs", p, [["cluster", "Cluster", app.clusterNames()], ["tenant", "Tenant"], ["troubled", "With trouble", ["true"]]]),
    p.troubled ? table("Jobs with trouble", [
      ["Job", jobLink], ["Healthy", (j) => badge(j.trouble.healthy ? j.trouble.why ? "degraded" : "healthy" : "critical", `${num(j.trouble.healthy)} of ${num(j.trouble.wanted)}`)], ["State", deploys], ["Since", (j) => ago(j.trouble.since ?? j.trouble.failed?.ended_at)],
      ["Why", (j) => [j.trouble.why, j.trouble.failed && h("div", null, `Version ${j.trouble.failed.version} could not be deployed: ${j.trouble.failed.reason}`)], "wide"], ["Cluster", (j) => clusterLink(j.cluster)]],
    d.jobs, { key: (j) => j.name, empty: d.next_page_token ? "None on this page." : "No job lacks instances, and no deployment has failed." }) : table("Jobs", [
      ["Job", jobLink], ["Type", (j) => j.type], ["State", (j) => [j.stopped ? badge("stopped") : j.paused && badge("paused"), !j.stopped && deploys(j)]],
      ["Last run, instances", (j) => instances(j) ? h("span.quiet", null, j.count ? count(j.count, "instance") : "on each agent") : lastRun(d.last.get(j.name)) ?? h("span.quiet", null, d.all ? "none" : "not among the newest 200 runs")], ["Version", (j) => j.version, "num"], ["Steps", (j) => (instances(j) ? "" : num(j.steps)), "num"],
      ["Schedules", (j) => j.schedules, "num"], ["Cluster", (j) => clusterLink(j.cluster)], ["Since", (j) => ago(j.created_at)]],
    d.jobs, { key: (j) => j.name, empty: Object.keys(p).length ? "No job matches." : "There are no jobs yet. Make one: mainstay job apply FILE" }),
    pager("jobs", p, d),
  ],
};

const lastRun = (r) => r && [badge(r.status), " ", h("a", { href: "#/runs/" + seg(r.id), "aria-label": `Last run of ${r.job}` }, ago(r.started_at)), r.ended_at && h("span.quiet", null, ", took ", took(r))];

// What a person can do. The API says what is possible now.

const runPath = (r, ...more) => ["/runs", ...[r.id, ...more].map(seg)].join("/");

const onRun = {
  resume: (r) => ask({ title: "Resume this run?", text: "What was stopped goes on.", confirm: "Resume the run", fields: [reason()],
    act: (v) => post(runPath(r, "resume"), because(v)), done: "The run goes on." }),
  retry: (r) => ask({ title: "Run it again?", text: "A new run begins. It takes over what has succeeded, and runs the rest.", confirm: "Run again",
    fields: [{ name: "from", label: "What runs again", kind: "select", options: [["", "what has not succeeded"], ...r.steps.map((e) => [e.step, `also ${e.step} and all after it`])] }, reason()],
    act: (v) => post(runPath(r, "retry"), { ...(v.from && { from: v.from }), ...because(v) }),
    done(next) {
      location.hash = "#/runs/" + seg(next.id);
      return `This run repeats ${r.id}.`;
    } }),
  pause: (r) => ask({ title: "Pause this run?", text: "Nothing new begins.", confirm: "Pause the run",
    fields: [{ name: "mode", label: "Tasks under way", kind: "select", options: [["stop", "stop, and go on after the pause"], ["finish", "finish"]] }, reason()],
    act: (v) => post(runPath(r, "pause"), { mode: v.mode, ...because(v) }), done: "The run is being paused." }),
  cancel: (r) => ask({ title: "Cancel this run?", text: "Its tasks are told to stop, and nothing more begins.", confirm: "Cancel the run", danger: true, fields: [reason()],
    act: (v) => post(runPath(r, "cancel"), because(v)), done: "The run is being cancelled." }),
};
const runWords = { resume: "Resume…", retry: "Run again…", pause: "Pause…", cancel: "Cancel…" };

const onStep = {
  approve: ["Approve", "Steps after $step will start."], reject: ["Reject", "The step fails."],
  retry: ["Run again", "It gets a fresh set of attempts, and what comes after it waits for it."],
  skip: ["Skip", "What comes after it goes on without it."], complete: ["It was done", "It counts as completed, because it was done by other means."], fail: ["Give up", "The step fails."],
};
const output = { name: "output", label: "Output, as JSON (optional)", kind: "area" };

const about = (step, action) => onStep[action][1].replace("$step", step);

/** decideStep asks for one of some actions, and why. */
const decideStep = (r, step, ...actions) => ask({
  title: actions.length > 1 ? `Decide about step ${step}` : `${onStep[actions[0]][0]}: step ${step}`, text: actions.length > 1 ? "" : about(step, actions[0]),
  confirm: actions.length > 1 ? "Decide" : onStep[actions[0]][0], danger: ["reject", "fail"].includes(actions.join()),
  fields: [actions.length > 1 && { name: "action", label: "What", kind: "select", options: actions.map((a) => [a, `${onStep[a][0]}: ${about(step, a)}`]) },
    actions.join() === "complete" && output, reason()].filter(Boolean),
  act: (v) => post(runPath(r, "steps", step, v.action ?? actions[0]), { ...because(v), output: jsonOf(v.output, "output") }), done: `Step ${step}: decided.`,
});

/** stepButtons are direct where a person is needed, and one button for all else. */
function stepButtons(r, e) {
  const can = r.step_actions?.[e.step] ?? [];
  if (e.status === "blocked" && !can.length) return waiting(e).map((w) => (e.elements ? taskLink(w.task_id, "Decide") : decide({ id: w.task_id })));
  if (!["blocked", "failed"].includes(e.status)) return can.length > 0 && button("Decide…", () => decideStep(r, e.step, ...can), { "aria-label": `Decide about ${e.step}` });
  return can.length > 0 && h("span.actions", null, can.map((a) => button(onStep[a][0] + "…", () => decideStep(r, e.step, a),
    { kind: a === "approve" ? "primary" : ["reject", "fail"].includes(a) ? "danger" : "", "aria-label": `${onStep[a][0]}: ${e.step}` })));
}

// One run.

/** look is a status for badges: that a step is skipped is no warning. */
const look = (status) => (status === "skipped" ? "passed" : status);
/** waiting are the tasks of a blocked step that wait for a person: those of elements, or its own. */
function waiting(e) {
  const elements = e.elements?.filter((w) => w.status === "blocked") ?? [];
  return elements.length ? elements : [e];
}
/** tasksOf are those of a step: with tools its own, and a call of a tool each. */
const tasksOf = (e) => (e.counts ? e.elements ?? [e] : [e, ...(e.elements ?? [])]);
/** begun are the attempts that an agent has or had: a delivery that came back is none. */
const begun = (w) => (w.attempts ?? []).filter((a) => a.agent_id && a.outcome !== "returned");
const agentsOf = (e) => [...new Set(tasksOf(e).map((w) => w.attempts?.at(-1)?.agent_id).filter(Boolean))];
const share = (e) => e.counts && `${e.counts.done} of ${e.counts.total} done${e.counts.failed ? `, ${e.counts.failed} failed` : ""}`;

function node(r, e, optional) {
  const agents = agentsOf(e);
  return h("button.node.t-" + tone(look(e.status)) + (optional ? ".optional" : ""), { type: "button", title: e.why || "Show the step", on: { click() { document.getElementById("step-" + e.step)?.focus(); } } },
    h("b.mono", null, e.step), badge(look(e.status)), h("span.quiet", null, share(e) ?? (agents[0] || (e.approval ? "approval" : optional ? "optional" : ""))));
}

/** workColumns show steps, or elements of one. */
const workColumns = (r) => [
  ["Status", (w) => [badge(look(w.status)), w.counts && h("div.quiet", null, share(w))]],
  ["Agent", (w) => { const all = agentsOf(w); return all.length > 2 ? count(all.length, "agent") : all.map((id, i) => [i > 0 && ", ", agentLink(id)]); }],
  ["Attempts", (w) => tasksOf(w).reduce((n, x) => n + begun(x).length, 0) || "", "num"],
  ["Took", took, "num"],
  ["Why, output", (w) => [w.why, w.next_at && !w.ended_at && [w.why ? "; goes on " : "goes on ", ago(w.next_at)], takenOver(r, w),
    w.output !== undefined && h("details", { key: "output" }, h("summary", null, "Output"), json(w.output))], "wide"],
];

/** takenOver says that a step was done by the run that this one repeats. */
function takenOver(r, w) {
  const by = w.task_id?.split("~")[0];
  return by && by !== r.id && [w.why && " ", "Done by ", earlier(by), "."];
}

/** elementsOf are the elements of a step, for the table. */
function elementsOf(r, e) {
  return h("details", { key: e.step }, h("summary", null, h("b.mono", null, e.step), `: ${share(e) ?? count(e.elements.length, "element")}`),
    table(`Elements of ${e.step}`, [["Element", (w) => [w.task_id ? taskLink(w.task_id, String(w.index)) : String(w.index), w.tool && ` ${w.tool}`]], ...workColumns(r), ["", (w) => w.status === "blocked" && decide({ id: w.task_id })]],
      e.elements.map((w, index) => ({ ...w, index })), { key: (w) => w.index }));
}

const barsShown = 200;

/** bars are the attempts of this run over time. */
function bars(r) {
  const rows = r.steps.flatMap((e) => tasksOf(e).flatMap((w) => takenOver(r, w) ? [] : begun(w).map((a) => ({
    ...attemptRow(a, [taskLink(w.task_id, w.task_id.split("~")[1]), begun(w).length > 1 && ` ${a.number}.`, " ", agentLink(a.agent_id)], a.started_at ?? r.started_at),
    key: `${w.task_id} ${a.number}`, more: a.reason }))));
  if (!rows.length) return h("p.empty", null, "No agent has begun anything yet.");
  const last = rows.some((row) => !row.to) ? undefined : rows.map((row) => row.to).sort().at(-1);
  return [timeline("Attempts", rows.slice(0, barsShown), r.started_at, last), rows.length > barsShown && h("p.quiet", null, `and ${num(rows.length - barsShown)} more`)];
}

const earlier = (id) => h("a", { href: "#/runs/" + seg(id), title: id }, "an earlier run");
const whoStarted = (o) => (o.retry_of ? [", again after ", earlier(o.retry_of)] : o.schedule ? ", by the job's schedule" : "");
const plans = new Map(); // of the run that is shown: it never changes

export const run = {
  title: (p) => "Run " + p.id,
  every: 5000,
  everyTask: true,
  wants: (type, d, p) => ofSteps(type, d) && d.task_id.startsWith(p.id + "~"),
  async load(p, signal) {
    const r = await get(plans.has(p.id) ? runPath(p) : single.runs(p)[0], signal);
    if (r.plan) {
      plans.clear();
      plans.set(p.id, r.plan);
    }
    return r;
  },
  render(r, p) {
    const plan = plans.get(p.id) ?? [], by = new Map(r.steps.map((e) => [e.step, e])), optional = new Set(plan.filter((s) => s.optional).map((s) => s.step));
    const through = (step) => ["completed", "partial", "skipped"].includes(by.get(step)?.status), known = plan.length > 0 && plan.every((s) => by.has(s.step));
    const spread = r.steps.filter((e) => e.elements);
    return [
      h("nav.crumbs", { "aria-label": "Where this is" }, clusterLink(r.cluster), " / ", ofJob(r.job)),
      h("header.row", null, h("h1.mono", { tabindex: "-1" }, r.id), badge(r.status)),
      r.cancel && !r.ended_at && h("p.why", null, "It is being cancelled", r.cancel.by && ` by ${r.cancel.by}`, `: ${r.cancel.reason}. Its agents stop its tasks first.`),
      r.paused && !r.ended_at && h("p.why", null, r.status === "paused" ? "Paused for " : "Being paused for ", ago(r.paused.at, "for"), r.paused.by && ` by ${r.paused.by}`, r.paused.reason && `: ${r.paused.reason}`),
      r.why && r.status !== "paused" && h("p.why", null, r.why),
      h("div.actions", null, Object.keys(onRun).filter((a) => r.actions?.includes(a)).map((a) => button(runWords[a], () => onRun[a](r), { key: a, kind: a === "cancel" ? "danger" : a === "resume" ? "primary" : "" })),
        temporalLink(r.workflow_id, r.workflow_run_id)),
      facts(["Job", [ofJob(r.job), r.job_version && `, version ${r.job_version}`]], ["Cluster", clusterLink(r.cluster)], ["Tenant", r.tenant], ["Started", [ago(r.started_at), r.origin.by && ` by ${r.origin.by}`, whoStarted(r.origin)]],
        ["Deadline", !r.ended_at && r.deadline_at && ago(r.deadline_at)], ["Ended", r.ended_at && ago(r.ended_at)], ["Took", took(r)]),
      known && section("Steps", { aside: h("span.quiet", null, "a line leads from a step to each that comes after it") },
        graph("Steps by level", plan, (step) => node(r, by.get(step), optional.has(step)), through)),
      r.steps.length > 0 && section("Step by step", null, table("Steps", [
        ["Step", (e) => h("span.mono", { id: "step-" + e.step, tabindex: "-1" }, e.array ? arrayLink(e.array, e.step) : e.task_id && e.begun && !(e.elements && e.counts) ? taskLink(e.task_id, e.step) : e.step)],
        ...workColumns(r), ["", (e) => stepButtons(r, e)]], r.steps, { key: (e) => e.step })),
      spread.length > 0 && section("Elements", null, h("div.stack", null, spread.map((e) => elementsOf(r, e)))),
      r.steps.length > 0 && section("Attempts", null, bars(r)),
      r.decisions?.length > 0 && section("What people decided", { aside: h("span.quiet", null, r.decisions.length > 1 && "oldest first") }, table("Decisions", [
        ["When", (d) => ago(d.at)], ["What", (d) => d.action], ["Step", (d) => d.step && h("span.mono", null, d.step)], ["By", (d) => d.by], ["Why", (d) => d.reason, "wide"]],
      r.decisions, { key: (d) => d.at + d.action + (d.step ?? "") })),
      r.inputs !== undefined && section("Inputs", null, json(r.inputs)),
      r.output !== undefined && section("Output", null, json(r.output)),
    ];
  },
};
