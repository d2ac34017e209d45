// Resources as bars: what each virtual cluster uses and keeps, what all others use, and what is free.

import { h, say } from "./dom.js";
import { amount, colourOf, inOrder } from "./words.js";

/** Return the parts of one resource of a node: [cluster id, used, kept idle]. Work in no virtual cluster comes last. */
export function partsOf(row, parts, name) {
  const found = [];
  for (const part of parts ?? []) {
    const has = Math.max(part.has[name] ?? 0, 0);
    const used = Math.max(part.used[name] ?? 0, 0);
    if (has > 0 || used > 0) found.push([part.clusterId, used, Math.max(has - used, 0)]);
  }
  const outside = row.outside[name] ?? 0;
  if (outside > 0) found.push(["", outside, 0]);
  return found;
}

export function makeBars() {
  return h("div", { class: "bars" });
}

/** Bring the bars of a node up to date; what has not changed is not touched. */
export function updateBars(element, row, parts) {
  const names = inOrder(Object.keys(row.total).filter((name) => row.total[name] > 0));
  const known = (element._bars ??= new Map());
  for (const [name, bar] of known) {
    if (!names.includes(name)) {
      bar.root.remove();
      known.delete(name);
    }
  }
  for (const name of names) {
    if (!known.has(name)) known.set(name, makeBar(element, name));
    updateBar(known.get(name), row, partsOf(row, parts, name), name);
  }
}

function makeBar(element, name) {
  const value = h("span", { class: "bar-value" });
  const track = h("div", { class: "track", "aria-hidden": "true" });
  const root = h("div", { class: "bar" }, h("span", { class: "bar-name" }, name), track, value);
  element.append(root);
  return { root, track, value, segments: [] };
}

function updateBar(bar, row, parts, name) {
  const total = row.total[name];
  say(bar.value, `${amount(row.used[name] ?? 0, name)} / ${amount(total, name)}`);
  const wanted = [];
  for (const [clusterId, used, idle] of parts) {
    if (used > 0) wanted.push([clusterId, used, "used"]);
    if (idle > 0) wanted.push([clusterId, idle, "idle"]);
  }
  while (bar.segments.length > wanted.length) bar.segments.pop().remove();
  while (bar.segments.length < wanted.length) {
    const made = h("i", {});
    bar.segments.push(made);
    bar.track.append(made);
  }
  wanted.forEach(([clusterId, units, kind], index) => {
    const segment = bar.segments[index];
    const width = `${Math.min((units / total) * 100, 100).toFixed(2)}%`;
    const colour = colourOf(clusterId);
    if (segment._width !== width) segment.style.width = segment._width = width;
    if (segment._colour !== colour) segment.style.setProperty("--c", (segment._colour = colour));
    if (segment.className !== kind) segment.className = kind;
  });
}
