// Arrays: the list, and one array with its counts, the elements that need somebody, and what a person can do.

import { h } from "./dom.js";
import { query, seg } from "./address.js";
import { get, post } from "./api.js";
import { lists, single } from "./reads.js";
import { ago, count, num, span } from "./format.js";
import { badge, section, table, facts, bar, clusterLink, arrayLink, filters, button, pager, temporalLink } from "./parts.js";
import { ask, because, changed, reason, say, words } from "./actions.js";

const statuses = ["running", "paused", "blocked", "completed", "partial", "failed", "cancelled"];
const took = (a) => a.created_at && (a.closed_at ? span(Date.parse(a.closed_at) - Date.parse(a.created_at)) : [ago(a.created_at, "for"), " so far"]);
const mine = (type, d, p) => type.startsWith("task.") && d.task_id?.startsWith((p.id ?? "") + "~.");

export const arrays = {
  title: "Arrays",
  every: 5000,
  partial: (d) => d.next_page_token,
  wants: () => false,
  load: (p, signal, { first }) => get(lists.arrays(p, first)[0], signal),
  render: (d, p, app) => [
    h("header.row", null, h("h1", { tabindex: "-1" }, "Arrays"), h("span.quiet", { role: "status" }, (!app.brief || !d.next_page_token) && `${count(d.arrays.length, "array")} on this page, newest first`)),
    filters("arrays", p, [["status", "Status", statuses], ["type", "Type"], ["cluster", "Cluster", app.clusterNames()], ["tenant", "Tenant"]]),
    table("Arrays", [
      ["Array", (a) => arrayLink(a.id)], ["Status", (a) => badge(a.status)], ["Type", (a) => a.type], ["Elements", (a) => num(a.elements), "num"], ["Cluster", (a) => clusterLink(a.cluster)],
      ["Submitted", (a) => ago(a.created_at)], ["Took", took, "num"]],
    d.arrays, { key: (a) => a.id, empty: Object.keys(p).length ? "No array matches." : "No array was submitted yet. Try: mainstay array submit --count 1000 -- ./simulate.sh" }),
    !app.brief && pager("arrays", p, d),
  ],
};

const path = (a, word) => `/arrays/${seg(a.id)}/${word}`;

const onArray = {
  resume: ["Resume…", (a) => ask({ title: "Resume this array?", text: "What waits is delivered again.", confirm: "Resume the array", fields: [reason()], act: (v) => post(path(a, "resume"), because(v)), done: "The array goes on." })],
  retry: ["Run dead letters again…", (a) => ask({ title: `Run ${count(a.counts.dead_letter, "dead letter")} again?`, text: "Each gets a fresh set of attempts.", confirm: "Run again", fields: [reason()], act: (v) => post(path(a, "retry"), because(v)), done: "They run again." })],
  pause: ["Pause…", (a) => ask({ title: "Pause this array?", text: "Nothing new begins; bundles under way finish.", confirm: "Pause the array", fields: [reason()], act: (v) => post(path(a, "pause"), because(v)), done: "The array is paused." })],
  cancel: ["Cancel…", (a) => ask({ title: "Cancel this array?", text: "Bundles under way stop at their present element, and nothing more begins.", confirm: "Cancel the array", danger: true, fields: [reason()], act: (v) => post(path(a, "cancel"), because(v)), done: "The array is being cancelled." })],
};

/** can are the actions that the array's state allows. */
function can(a) {
  if (!["running", "paused", "blocked"].includes(a.status)) return [];
  return [a.status === "paused" ? "resume" : a.status === "running" && "pause", a.counts.dead_letter > 0 && "retry", "cancel"].filter(Boolean);
}

/** again runs one element again; it needs no dialog. */
async function again(a, element, from) {
  from.setAttribute("disabled", "");
  try {
    await post(path(a, "retry"), { elements: [element] });
    say(`Element ${element} runs again.`);
    changed();
  } catch (error) {
    say(words(error), "bad");
  } finally {
    from.removeAttribute("disabled");
  }
}

export const array = {
  title: (p) => "Array " + p.id,
  every: 2000,
  everyTask: true,
  wants: mine,
  async load(p, signal) {
    const [a, ...found] = await Promise.all(single.arrays(p).map((one) => get(one, signal)));
    return { ...a, troubled: found.flatMap((page) => page.elements), more: found.some((page) => page.next_page_token) };
  },
  render(a) {
    const n = a.counts, ended = n.total - n.queued - n.running, open = can(a).length > 0;
    return [
      h("nav.crumbs", { "aria-label": "Where this is" }, clusterLink(a.cluster), " / ", h("a", { href: "#/arrays" + query({ cluster: a.cluster }) }, "Arrays")),
      h("header.row", null, h("h1.mono", { tabindex: "-1" }, a.id), badge(a.status)),
      a.why && h("p.why", null, a.why),
      h("div.actions", null, Object.keys(onArray).filter((word) => can(a).includes(word)).map((word) => button(onArray[word][0], () => onArray[word][1](a), { key: word, kind: word === "cancel" ? "danger" : word === "resume" ? "primary" : "" })),
        temporalLink(a.workflow_id, a.run_id)),
      facts(["Elements", [bar(n.total ? ended / n.total : 0), ` ${num(ended)} of ${num(n.total)} have ended`]],
        ...[["Completed", n.completed], ["Running", n.running], ["Queued", n.queued], ["Dead letters", n.dead_letter], ["In review", n.review], ["Failed", n.failed], ["Cancelled", n.cancelled]].filter(([, x]) => x > 0).map(([name, x]) => [name, num(x)]),
        ["Type", a.type], ["Cluster", clusterLink(a.cluster)], ["Tenant", a.tenant], ["Submitted", ago(a.created_at)], ["Kept until", open && a.until && ago(a.until)], ["Took", took(a)]),
      a.troubled.length > 0 && section("Elements that did not complete", { aside: a.more && h("span.quiet", null, "the first of each kind") }, table("Elements", [
        ["Element", (e) => h("span.mono", { title: e.task_id }, num(e.element))], ["Status", (e) => badge(e.status)], ["Why", (e) => e.why, "wide"],
        ["", (e) => open && button("Run again", (event) => again(a, e.element, event.currentTarget), { "aria-label": `Run element ${e.element} again` })]],
      a.troubled, { key: (e) => e.element })),
    ];
  },
};
