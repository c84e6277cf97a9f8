// What a person can do: each asks in a dialog, calls the API, and says what came of it.

import { h } from "./dom.js";
import { seg } from "./address.js";
import { post, call, Problem } from "./api.js";
import { decode } from "./exact.js";
import { count, num } from "./format.js";

let afterwards = () => {};

/** whenChanged calls back after something was done. */
export function whenChanged(callback) {
  afterwards = callback;
}

/** changed says that something was done. */
export const changed = () => afterwards();

/** say shows a message for a while, and has it read out. */
export function say(text, kind = "ok") {
  const box = document.getElementById("toasts");
  const toast = h("p.toast.t-" + kind, null, text);
  box.append(toast);
  setTimeout(() => toast.remove(), kind === "bad" ? 12000 : 5000);
}

/** words says what went wrong. */
export function words(error) {
  if (!(error instanceof Problem)) return "Something went wrong on this page: " + error.message;
  return [error.message, ...error.fields.map((f) => `${f.location}: ${f.message}`)].join(" ");
}

/** ask opens a dialog. fields are {name, label, kind: text|area|select|check, options, required, hint}. */
export function ask({ title, text, fields = [], confirm, danger, act, done }) {
  const problem = h("p.problem", { role: "alert", hidden: true });
  const submit = h("button" + (danger ? ".danger" : ".primary"), { type: "submit" }, confirm);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", on: { close() { dialog.remove(); } } });
  const form = h("form", { on: { async submit(e) {
    e.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    submit.disabled = true;
    problem.hidden = true;
    try {
      const answer = await act(values);
      dialog.close();
      say(typeof done === "function" ? done(answer, values) : done);
      changed();
    } catch (error) {
      problem.textContent = words(error);
      problem.hidden = false;
      (form.querySelector("input,textarea,select") ?? submit).focus();
    } finally {
      submit.disabled = false;
    }
  } } },
  h("h2", { id: "dialog-title" }, title), text && h("p", null, text), fields.map(field), problem,
  h("footer", null, h("button", { type: "button", on: { click() { dialog.close(); } } }, confirm.startsWith("Cancel") ? "Back" : "Cancel"), submit));
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector("[autofocus]") ?? form.querySelector("input,textarea,select") ?? submit).focus();
}

function field(f) {
  const props = { name: f.name, required: f.required, maxlength: f.max ?? 512, id: "f-" + f.name };
  let control;
  if (f.kind === "select") control = h("select", { name: f.name, id: props.id }, f.options.map(([value, text]) => h("option", { value }, text)));
  else if (f.kind === "check") return h("label.check", null, h("input", { type: "checkbox", name: f.name }), f.label);
  else if (f.kind === "area") control = h("textarea", { ...props, rows: 4, spellcheck: "false", maxlength: null }, f.value ?? "");
  else control = h("input", { ...props, type: "text", autocomplete: "off", value: f.value ?? null, placeholder: f.hint });
  return h("label", { for: props.id }, h("span", null, f.label), control);
}

export const reason = (required) => ({ name: "reason", label: required ? "Reason" : "Reason (optional)", required, hint: "kept in the history" });
export const because = (v) => (v.reason ? { reason: v.reason } : {});

/** jsonOf reads what was typed as JSON; nothing was: undefined. */
export function jsonOf(text, what) {
  try {
    return text?.trim() ? decode(text) : undefined;
  } catch {
    throw new Problem(422, { detail: `The ${what} is not JSON. A text needs quotes around it.` });
  }
}

const taskPath = (id, word) => `/tasks/${seg(id)}/${word}`;

/** retryTask needs no dialog: it does what the button says, and no more. */
export async function retryTask(id, from) {
  from?.setAttribute("disabled", "");
  try {
    await post(taskPath(id, "retry"));
    say(`Task ${id} is delivered again.`);
    changed();
  } catch (error) {
    say(words(error), "bad");
  } finally {
    from?.removeAttribute("disabled");
  }
}

export const discardTask = (id) => ask({
  title: "Discard this dead letter?", text: `Task ${id} ends as failed at once. It cannot be retried afterwards.`, danger: true, confirm: "Discard",
  fields: [reason(true)], act: (v) => post(taskPath(id, "discard"), because(v)), done: `Task ${id} is discarded.`,
});

export const cancelTask = (id) => ask({
  title: "Cancel this task?", text: `Task ${id}: an agent that runs it is told to stop, and it ends as cancelled.`, danger: true, confirm: "Cancel the task",
  fields: [reason()], act: (v) => post(taskPath(id, "cancel"), because(v)), done: `Task ${id} is cancelled.`,
});

const levels = [["critical", "critical (1)"], ["high", "high (2)"], ["normal", "normal (3)"], ["low", "low (4)"], ["background", "background (5)"]];
export const prioritize = (id) => ask({
  title: "Change the priority", text: `It holds for what waits and for later attempts of task ${id}.`, confirm: "Change",
  fields: [{ name: "priority", label: "Priority", kind: "select", options: levels }, reason()],
  act: (v) => post(taskPath(id, "priority"), { priority: v.priority, ...because(v) }), done: (_, v) => `Task ${id} has priority ${v.priority}.`,
});

const decisions = {
  rerun: ["Run $id again?", "It was not done, or doing it twice is harmless: it is delivered again.", "Run again"],
  accept: ["Take the late result of $id?", "Its agent brought it after the task went to review. The task ends with it.", "Take it"],
  completed: ["Mark $id as done?", "You found that it was done. The task completes with the result that you give.", "It was done"],
  failed: ["Give $id up?", "The task ends as failed.", "Give up"],
};

/** review decides about a task that may or may not have been done. */
export const review = (id, decision) => ask({
  title: decisions[decision][0].replace("$id", id), text: decisions[decision][1], confirm: decisions[decision][2], danger: decision === "failed",
  fields: [decision === "completed" && { name: "result", label: "Result, as JSON (optional)", kind: "area" }, reason()].filter(Boolean),
  act: (v) => post(taskPath(id, "review"), { decision, ...because(v), result: jsonOf(v.result, "result") }),
  done: `Task ${id}: decided.`,
});

/** bulk acts on all tasks of a list: first a dry run says how many. */
export async function bulk(action, filter, words_, extra = {}) {
  let found;
  try {
    found = await post("/tasks/bulk", { action, filter, all: !Object.keys(filter).length, reason: "counted from the fleet page", dry_run: true, ...extra });
  } catch (error) {
    say(words(error), "bad");
    return;
  }
  const many = (found.at_most ? "up to " : "") + count(found.expected, "task");
  ask({
    title: `${words_} ${many}?`, text: `Each is asked once; those that have changed in the meantime are skipped.`, confirm: `${words_} ${many}`, danger: action !== "retry",
    fields: [reason(true)], act: (v) => post("/tasks/bulk", { action, filter, all: !Object.keys(filter).length, reason: v.reason, ...extra }),
    done: (b) => `Begun: bulk operation ${b.id} on ${num(b.expected)} tasks.`,
  });
}

export const pause = (cluster, lane) => ask({
  title: lane ? `Pause lane ${lane}?` : `Pause cluster ${cluster}?`, confirm: "Pause",
  text: `Nothing more is taken from ${lane ? "it" : "any of its lanes"}; what runs goes on. What waits still expires.`,
  fields: [reason()], act: (v) => post(`/clusters/${seg(cluster)}/pause`, { ...(lane && { lane }), ...because(v) }), done: `${lane ? "Lane " + lane : "Cluster " + cluster} is paused.`,
});

export const resume = (cluster, lane) => ask({
  title: lane ? `Resume lane ${lane}?` : `Resume cluster ${cluster}?`, text: "What waits is taken again.", confirm: "Resume",
  act: () => post(`/clusters/${seg(cluster)}/resume`, lane ? { lane } : {}), done: `${lane ? "Lane " + lane : "Cluster " + cluster} goes on.`,
});

export const releaseBrake = (cluster) => ask({
  title: "Release the brake?", danger: true, confirm: "Release",
  text: `Say so only if the agents of cluster ${cluster} that vanished are really gone: their failovers begin at once.`,
  fields: [reason()], act: (v) => post(`/clusters/${seg(cluster)}/brake/release`, because(v)), done: "The brake is released.",
});

export const drain = (agent) => ask({
  title: `Drain agent ${agent}?`, confirm: "Drain",
  text: "It is given nothing new, may finish what it has until the deadline, and ends in maintenance. What is left then runs elsewhere, or goes to review.",
  fields: [{ name: "deadline", label: "Deadline", value: "5m" }, reason()],
  act: (v) => post(`/${seg(agent)}/drain`, { ...(v.deadline && { deadline: v.deadline }), ...because(v) }), done: `Agent ${agent} is being drained.`,
});

export const cancelDrain = (id) => ask({
  title: "Cancel this drain?", text: "Agents that are not done are given work again; those that are done stay in maintenance.", confirm: "Cancel the drain",
  act: () => post(`/drains/${seg(id)}/cancel`), done: "The drain is cancelled.",
});

export const maintenance = (agent, enabled) => ask({
  title: enabled ? `Put agent ${agent} into maintenance?` : `End the maintenance of agent ${agent}?`, confirm: enabled ? "Put into maintenance" : "End maintenance",
  text: enabled ? "It is given nothing new; what it runs goes on. It stays so when it restarts." : "It is given work again.",
  fields: enabled ? [reason()] : [], act: (v) => post(`/${seg(agent)}/maintenance`, { enabled, ...because(v) }),
  done: enabled ? `Agent ${agent} is in maintenance.` : `Agent ${agent} is given work again.`,
});

export const forget = (agent) => ask({
  title: `Forget agent ${agent}?`, danger: true, confirm: "Forget it",
  text: "It is no longer listed. Should it come back, it joins anew.",
  act: () => call("DELETE", `/api/v1/agents/${seg(agent)}`), done: `Agent ${agent} is forgotten.`,
});

export const failover = (agent) => ask({
  title: `Move the work of agent ${agent} away?`, danger: true, confirm: "Move it",
  text: "Its work and roles go to another agent, as if it were lost. It stays online.",
  fields: [{ name: "target_agent_id", label: "To agent (optional)", hint: "the cluster's strategy selects" }, reason()],
  act: (v) => post(`/${seg(agent)}/failover`, { ...(v.target_agent_id && { target_agent_id: v.target_agent_id }), ...because(v) }),
  done: (a) => `Failover ${a.failover_id} has begun.`,
});

export const signOut = () => call("DELETE", "/api/v1/session");
