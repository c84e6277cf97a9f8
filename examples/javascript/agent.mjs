#!/usr/bin/env node
// An agent that needs only Node 20.3 or newer. It handles echo, which returns its payload, and sleep.
//
// HUB=http://127.0.0.1:8080 CLUSTER=default ID=js-1 node agent.mjs     (docs/AGENT-PROTOCOL.md describes the messages)
// MAINSTAY_JOIN_TOKEN has the token to register with, where the hub wants one.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

const handlers = {
  echo: (payload) => payload,
  sleep: (payload, signal) => sleep(1000 * payload.seconds, "slept", { signal }),
};
const { HUB, CLUSTER, ID, MAINSTAY_JOIN_TOKEN: join = "" } = process.env;
const me = { agent_id: ID, instance_id: randomUUID(), cluster: CLUSTER, max_tasks: 4, task_types: Object.keys(handlers) };
const running = new Map(); // by task and attempt
const stop = new AbortController();
let session = "", registered = false, sequence = 0, answered = 0, lease = "", renewed = 0, leaseEnds = Infinity;

const list = () => [...running.values()].map((a) => a.listed);
const units = { h: 3.6e6, m: 6e4, s: 1e3, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 };
const milliseconds = (duration) => [...duration.matchAll(/([\d.]+)(ms|us|µs|ns|h|m|s)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);

/** Exact is a number of JSON that a number of JavaScript is not digit for digit, as 9007199254740993 or 1.10. It counts as
the number next to it, and keeps its digits where a handler only passes it on. BigInt(n.source) is a whole one. */
class Exact extends Number {
  constructor(source) {
    super(source);
    this.source = source;
  }
}
const mark = `number ${randomUUID()} `, numbers = /"[^"\\]*(?:\\.[^"\\]*)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const decode = (text) => JSON.parse(text.replace(numbers, (token) => (token[0] === '"' || String(Number(token)) === token ? token : `"${mark}${token}"`)),
  (_, value) => (typeof value === "string" && value.startsWith(mark) ? new Exact(value.slice(mark.length)) : value));
const encode = (value) => JSON.stringify(value, (_, item) => {
  if (typeof item === "number" && !Number.isFinite(item)) throw new TypeError(`${item} is no JSON`);
  return typeof item === "bigint" ? mark + item : item instanceof Exact ? mark + item.source : item;
})?.replace(new RegExp(`"${mark}([^"]*)"`, "g"), "$1");

/** ask returns the status and the answer; status 0 means that no hub answered. */
async function ask(path, body, { method = "POST", token = session, signal = AbortSignal.timeout(30000) } = {}) {
  try {
    const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
    const response = await fetch(`${HUB}/api/v1/agents/${path}`, { method, headers, body: body && encode(body), signal });
    const text = await response.text();
    return [response.status, text ? decode(text) : {}];
  } catch {
    return [0, {}];
  }
}

/** fail makes a result of one that failed; final: to run it again would end the same way. */
function fail(result, why, final) {
  Object.assign(result, { outcome: "failed", error: why.slice(0, 8000), output: undefined, ...(final && { non_retryable: true }) });
}

async function work(key, attempt) {
  const { task } = attempt, result = { token: task.token, attempt: task.attempt, started_at: new Date() };
  let returned = false;
  try {
    const output = await handlers[task.type](task.payload, attempt.controller.signal);
    returned = true;
    encode(output); // what is no JSON, as NaN, fails here
    Object.assign(result, attempt.why === "lease" ? { outcome: "cancelled" } : { outcome: "completed", output }); // another may have it
  } catch (error) {
    if (attempt.why === "timeout") Object.assign(result, { outcome: "timed_out", error: "it ran too long", error_type: "timeout" });
    else if (attempt.why) result.outcome = "cancelled"; // without a cancel command it hands the work back
    else fail(result, returned ? `what the handler returned is no JSON: ${error}` : error instanceof Error ? String(error) : inspect(error), returned);
  }
  result.ended_at = new Date();
  for (let pause = 100, refused = 0; attempt.why !== "drop" && refused < 5; pause = Math.min(2 * pause, 5000)) {
    const [status, answer] = await ask(`${ID}/tasks/${task.task_id}/result`, result);
    if ([400, 413, 422].includes(status) && result.outcome === "completed") { // too large, as a rule
      fail(result, `the hub refused the result: ${answer.detail}`, true);
      continue;
    }
    if (status >= 200 && status < 500 && ![401, 408, 429].includes(status)) break;
    if (status === 401) refused++; // the session's token: there is a new one soon
    await sleep(pause); // no hub, or it cannot reach Temporal: the result must not be lost
  }
  running.delete(key);
}

/** end asks a handler to stop: cancel, drop, timeout, lease or stop. */
function end(attempt, why) {
  attempt.why ||= why;
  attempt.controller.abort();
}

setInterval(() => {
  for (const a of running.values()) {
    if (performance.now() > a.deadline) end(a, "timeout");
    if (a.task.retry_safety === "fenced" && performance.now() > leaseEnds) end(a, "lease");
  }
}, 100);

async function poll(signal, more) {
  const sent = performance.now(), number = ++sequence;
  const [status, answer] = await ask(`${ID}/poll`, { sequence: number, answered, running: list(), lease, ...more }, { signal });
  if (status === 200) answered = number;
  if (status === 200 && !answer.lease_held) {
    [lease, renewed] = [answer.lease ?? lease, sent];
    leaseEnds = renewed + milliseconds(lease);
  }
  return [status, answer];
}

async function register() {
  const sent = performance.now(), [status, answer] = await ask("register", { ...me, running: list() }, { token: join });
  if (status === 200) {
    [registered, session, lease] = [true, answer.session_token, answer.lease];
    leaseEnds = Math.min(leaseEnds, (renewed ||= sent) + milliseconds(lease)); // registering again renews nothing
  }
  return [status, answer];
}

for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stop.abort());
while (!stop.signal.aborted) {
  const [status, answer] = await (registered ? poll(AbortSignal.any([stop.signal, AbortSignal.timeout(30000)])) : register());
  if (["fenced", "session_revoked"].includes(answer.code)) {
    console.error("this process may not go on:", answer.code);
    process.exit(1); // with all of its work, and without a goodbye
  }
  for (const task of answer.assignments ?? []) {
    const key = `${task.task_id} ${task.attempt}`;
    if (running.has(key)) continue; // it may be delivered twice; the next poll lists it, which accepts it
    const attempt = { task, why: "", controller: new AbortController(), deadline: performance.now() + milliseconds(task.timeout ?? "24h"),
      listed: { task_id: task.task_id, attempt: task.attempt, token: task.token } };
    running.set(key, attempt);
    work(key, attempt);
  }
  for (const command of answer.commands ?? []) {
    const attempt = running.get(`${command.task_id} ${command.attempt}`);
    if (attempt && ["cancel", "drop"].includes(command.type)) end(attempt, command.type);
  }
  if (status === 401 || status === 409) registered = false; // the hub was restarted: register again, running work goes on
  if (status !== 200 && !stop.signal.aborted) await sleep(200);
}
for (const a of running.values()) end(a, "stop"); // hands back what runs
for (let i = 0; running.size && i < 500; i++) await sleep(20);
if (session && !running.size) { // promise that nothing of this agent runs any more
  await poll(AbortSignal.timeout(500), { stopping: true });
  await ask(`${ID}/session`, null, { method: "DELETE" });
}
process.exit();
