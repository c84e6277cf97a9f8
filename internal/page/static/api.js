// Calls of the REST API.

import { base, proof } from "./address.js";
import { decode, encode } from "./exact.js";

/** Problem is an answer that refuses, or none at all (status 0). */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The control plane answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.fields = body.errors ?? [];
  }
}

let onUnauthorized = () => {};

/** whenUnauthorized calls back when the API asks who we are. */
export function whenUnauthorized(callback) {
  onUnauthorized = callback;
}

const limit = 20000; // ms that a call may take

/** call sends a request and returns the answer's JSON. path begins below /api/v1/agents, or with /api. */
export async function call(method, path, body, signal) {
  const signals = [AbortSignal.timeout(limit)];
  if (signal) signals.push(signal);
  const request = { method, signal: AbortSignal.any(signals), headers: proof(), credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = encode(body);
  }
  let response;
  const early = method === "GET" ? globalThis.early?.get(path) : null; // see early.js
  if (early) globalThis.early.delete(path);
  try {
    response = await (early ?? fetch(path.startsWith("/api/") ? path : base + path, request));
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: "The control plane does not answer." });
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? decode(text) : null;
  } catch { /* what is not JSON is no answer of ours */ }
  if (response.ok) return answer;
  if (response.status === 401) onUnauthorized();
  throw new Problem(response.status, answer ?? {});
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body = {}) => call("POST", path, body);
