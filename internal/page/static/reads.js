// What views read of the API: paths below /api/v1/agents, by the view's parameters. They are apart from the views because
// early.js asks for them before the views are there. Of a long list the first read brings only what fits a screen.

import { query, seg } from "./address.js";

const pageSize = 50;
const screen = 20;
const pageOf = (p, first) => ({ cluster: p.cluster, tenant: p.tenant, page_size: first ? screen : pageSize, page_token: p.page });

/** spans are the times, in milliseconds, that a list of tasks can look back. */
export const spans = { "15 min": 9e5, "1 h": 36e5, "12 h": 432e5, "1 day": 864e5, "1 week": 6048e5 };

/** lists are the reads of views without an id, by the view's name. */
export const lists = {
  "": () => ["/overview"],
  clusters: () => ["/clusters"],
  agents: (p, first) => ["" + query({ cluster: p.cluster, status: p.status, zone: p.zone, group: p.group, capability: p.capability, page_size: first && screen })],
  tasks: (p, first) => ["/tasks" + query({ ...pageOf(p, first), status: p.status, type: p.type, agent: p.agent, label: p.label, text: p.text, submitted_after: spans[p.since] && new Date(Date.now() - spans[p.since]).toISOString() })],
  runs: (p, first) => ["/runs" + query({ ...pageOf(p, first), status: p.status, job: p.job })],
  arrays: (p, first) => ["/arrays" + query({ ...pageOf(p, first), status: p.status, type: p.type })],
  jobs: (p) => p.troubled ? ["/jobs" + query({ ...pageOf(p), troubled: true, page_size: 200 })] : ["/jobs" + query(pageOf(p)), "/runs" + query({ cluster: p.cluster, tenant: p.tenant, page_size: 200 })],
  queue: (p, first) => [(p.cluster ? `/clusters/${seg(p.cluster)}/queue` : "/queue") + query({ page_token: p.page }), "/tasks/queue" + query({ cluster: p.cluster, tenant: p.tenant, page_size: first ? screen / 2 : screen })],
  failovers: (p) => ["/failovers" + query({ cluster: p.cluster, agent: p.agent, status: p.status, page_size: pageSize, page_token: p.page })],
  drains: (p) => ["/drains" + query({ cluster: p.cluster, page_size: 30, page_token: p.page })],
  healing: (p) => ["/healing/status", "/healing/actions" + query({ cluster: p.cluster, agent: p.agent, type: p.type, status: p.status, page_size: 30, page_token: p.page })],
  scaling: (p) => ["/clusters", "/scalings" + query({ cluster: p.cluster, page_size: 30, page_token: p.page })],
  "dead-letters": (p) => ["/tasks/queue/dead-letter" + query(pageOf(p))],
  reviews: (p) => ["/tasks" + query({ ...pageOf(p), status: "review" })],
};

/** single are the reads of views of one thing. */
export const single = {
  clusters: ({ id }) => [`/clusters/${seg(id)}`, `/clusters/${seg(id)}/members`, `/clusters/${seg(id)}/queue`, "/failovers" + query({ cluster: id, page_size: 8 }),
    "/healing/actions" + query({ cluster: id, page_size: 3 }), `/clusters/${seg(id)}/scaling`],
  agents: ({ id }) => [`/${seg(id)}`, `/${seg(id)}/health`, "/failovers" + query({ agent: id, page_size: 10 }), "/healing/actions" + query({ agent: id, page_size: 5 })],
  tasks: ({ id }) => [`/tasks/${seg(id)}?include=payload&include=history`],
  arrays: ({ id }) => [`/arrays/${seg(id)}`, ...["review", "dead_letter", "failed"].map((status) => `/arrays/${seg(id)}/elements` + query({ status, page_size: pageSize }))],
  jobs: ({ id }) => [`/jobs/${seg(id)}`, `/jobs/${seg(id)}/instances`],
  runs: ({ id }) => [`/runs/${seg(id)}?include=plan`],
  failovers: ({ id }) => [`/failovers/${seg(id)}`],
};
