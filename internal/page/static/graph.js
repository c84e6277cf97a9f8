// The steps of a run as a graph: levels side by side, or below one another on a phone; lines from each step to those
// that come after it.

import { h, svg } from "./dom.js";

const wide = { along: 126, across: 62, gap: 26, bend: 8, spacing: 12 };
const phone = { along: 62, across: 110, gap: 34, bend: 6, spacing: 6 };
const narrow = matchMedia("(max-width: 45rem)");
const letter = 8; // px

/** place gives each step of a plan its place. A line over several levels gets a place in each, so that it passes no step. */
function place(plan, size) {
  const level = new Map(plan.map((s) => [s.step, s.level])), all = new Map(), levels = [];
  for (const { step, level: own, after = [] } of plan) {
    const from = after.map((last) => {
      for (let l = level.get(last) + 1, first = last; l < own; l++) {
        const key = `${first} ${l}`;
        if (!all.has(key)) all.set(key, { key, level: l, from: [last], size: size.bend });
        last = key;
      }
      return last;
    });
    all.set(step, { key: step, step, level: own, from, size: size.across });
  }
  for (const p of all.values()) (levels[p.level] ??= []).push(p);
  for (const places of levels) {
    for (const p of places) p.pull = p.from.reduce((sum, key) => sum + all.get(key).at, 0) / (p.from.length || 1);
    places.sort((a, b) => a.pull - b.pull); // fewer lines cross
    const whole = places.reduce((sum, p) => sum + p.size + size.spacing, -size.spacing);
    let at = -whole / 2;
    for (const p of places) {
      p.at = at + p.size / 2;
      at += p.size + size.spacing;
    }
  }
  return all;
}

/** graph draws a plan: node(step) is what stands for a step, through(step) whether those after it may begin. */
export function graph(title, plan, node, through) {
  const down = narrow.matches, size = { ...(down ? phone : wide) }, side = down ? "across" : "along";
  size[side] = Math.max(size[side], 24 + letter * Math.max(...plan.map((s) => s.step.length)));
  const all = [...place(plan, size).values()], by = new Map(all.map((p) => [p.key, p]));
  const low = Math.min(...all.map((p) => p.at - p.size / 2)), high = Math.max(...all.map((p) => p.at + p.size / 2));
  const depth = (Math.max(...all.map((p) => p.level)) + 1) * (size.along + size.gap) - size.gap;
  const xy = (along, across) => (down ? `${across - low + 2},${along + 2}` : `${along + 2},${across - low + 2}`);
  const start = (p) => p.level * (size.along + size.gap);
  const line = (p, key) => {
    const q = by.get(key), out = start(q) + size.along, into = start(p), half = (out + into) / 2;
    return `M${xy(out, q.at)}C${xy(half, q.at)} ${xy(half, p.at)} ${xy(into, p.at)}` + (p.step ? "" : `L${xy(into + size.along, p.at)}`);
  };
  const box = [depth, high - low].map((n) => n + 4), [width, height] = down ? box.reverse() : box;
  const nodeBox = down ? { width: size.across, height: size.along } : { width: size.along, height: size.across };
  return h("div.scroll.graph", { role: "region", "aria-label": title, tabindex: "0" },
    svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title },
      all.map((p) => p.from.map((key) => svg("path", { class: through(key.split(" ")[0]) ? "line" : "line ahead", d: line(p, key) }))),
      all.filter((p) => p.step).map((p) => {
        const [x, y] = xy(start(p), p.at - p.size / 2).split(",");
        return svg("foreignObject", { key: p.key, x, y, ...nodeBox }, node(p.step));
      })));
}
