// Everything that waits, grouped by reason, with what stands in the way on which node, and the smallest changes that would help.

import { ask, path, toast } from "./asking.js";
import { skeleton } from "./cluster.js";
import { h, replace } from "./dom.js";
import { addMark, changeMarks } from "./node.js";
import { listen, state } from "./store.js";
import { resize } from "./tree.js";
import { amounts, plural, short } from "./words.js";

const NODES_SHOWN = 12;

export function show(main) {
  const search = h("input", { type: "search", id: "explain", placeholder: "Id or name of a task, actor, group or job", "aria-label": "Explain one" });
  const found = h("div", { id: "explained" });
  const form = h("form", { class: "toolbar", on: { submit: (event) => explain(event, search.value.trim(), found) } }, search, h("button", { type: "submit" }, "Explain"));
  const body = h("div", { id: "waiting" });
  replace(main, h("h1", { class: "out" }, "Waiting"), form, found, body);
  let drawn = "";
  return listen((told) => {
    if (state.ready && !(told.all || told.waiting || told.clusters || told.about)) return;
    const open = new Set([...body.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    const now = JSON.stringify([state.ready, state.waiting, state.kindsLeftOut, queued().map((row) => [row.cluster_id, row.reason]), state.about.read_only, state.ready || state.controller.state]);
    if (now === drawn) return;
    drawn = now;
    replace(body, view(open));
  });
}

function queued() {
  return [...state.clusters.values()].filter((row) => row.position);
}

function view(open) {
  if (!state.ready) return skeleton(4);
  const groups = new Map();
  for (const row of state.waiting) {
    if (!groups.has(row.reason)) groups.set(row.reason, []);
    groups.get(row.reason).push(row);
  }
  const sorted = [...groups].sort(([, one], [, other]) => total(other) - total(one));
  const clusters = queued();
  if (!sorted.length && !clusters.length) return h("div", { class: "empty" }, h("h2", {}, "Nothing waits"), h("p", {}, "Whatever was submitted runs, or has ended."));
  return [
    clusters.length > 0 &&
      h("section", { class: "reason" }, h("header", {}, h("span", { class: "count" }, String(clusters.length)), h("h2", {}, clusters.length === 1 ? "A virtual cluster waits for its minimum" : "Virtual clusters wait for their minimum")), h("ul", {}, clusters.map((row) => h("li", {}, h("a", { href: "#clusters" }, row.cluster_id), `: ${row.reason}`)))),
    sorted.map(([reason, rows]) => group(reason, rows, open)),
    state.kindsLeftOut > 0 && h("p", { class: "soft" }, `${plural(state.kindsLeftOut, "more kind")} of work wait; these are the most numerous.`),
  ];
}

const total = (rows) => rows.reduce((sum, row) => sum + row.count, 0);

function group(reason, rows, open) {
  return h(
    "section",
    { class: "reason" },
    h("header", {}, h("span", { class: "count" }, total(rows).toLocaleString("en")), h("h2", {}, reason || "Why is not known")),
    rows.map((row) => kind(row, open)),
  );
}

function kind(row, open) {
  const asks = row.resources.map(amounts).join(" | ");
  const key = JSON.stringify([row.resources, row.wants, row.reason]);
  return h(
    "div",
    { class: "kind" },
    h("p", {}, h("strong", {}, `${row.count.toLocaleString("en")} × ${row.kind || "work"}`), ` asking for ${asks}`, row.wants && row.wants !== "everything" && h("span", { class: "chip" }, row.wants)),
    row.suggestions.length > 0 && h("ul", { class: "suggestions" }, row.suggestions.map((text, index) => h("li", {}, text, " ", buttons(row, row.changes?.[index] ?? [])))),
    row.refusals.length > 0 &&
      h("details", { data: { key }, open: open.has(key) }, h("summary", {}, "Node by node"), table(row.refusals)),
  );
}

/** What of a suggestion an operator can do. */
function buttons(row, changes) {
  if (state.about.read_only) return null;
  return changes.map((change) => {
    if (change.action === "raise_max" && state.clusters.has(change.cluster_id)) {
      const apply = () => resize(state.clusters.get(change.cluster_id), { [change.resource]: change.amount });
      return h("button", { type: "button", class: "small", on: { click: apply } }, `Resize ${change.cluster_id}`);
    }
    if (change.action === "tolerate") {
      const nodes = row.refusals.filter((each) => each.rule === "taints" && each.text.includes(change.key)).flatMap((each) => each.nodes);
      const node = nodes.find((id) => state.nodes.get(id)?.taints[change.key] !== undefined);
      if (!node) return null;
      const apply = () => changeMarks(node, "taint", change.key, state.nodes.get(node).taints[change.key]);
      return h("button", { type: "button", class: "small", on: { click: apply } }, `Remove ${change.key} from ${short(node)}`);
    }
    if (change.action === "drop_selector") {
      const wanted = /^([^=\s!]+)=([^,\s]+)$/.exec((row.wants ?? "").split(", ")[0] ?? "");
      const node = row.refusals.find((each) => each.rule === "labels")?.nodes[0];
      if (!wanted || !node || wanted[1].startsWith("ray.io/")) return null;
      return h("button", { type: "button", class: "small", on: { click: () => addMark(node, "label", wanted[1], wanted[2]) } }, `Label ${short(node)}`);
    }
    return null;
  });
}

function table(refusals) {
  const rows = refusals.flatMap((each) => each.nodes.slice(0, NODES_SHOWN).map((id) => [id, each.each || each.text]));
  const left = refusals.reduce((sum, each) => sum + Math.max(each.count - NODES_SHOWN, 0), 0);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Node"), h("th", { scope: "col" }, "Why not"))),
      h("tbody", {}, rows.map(([id, why]) => h("tr", {}, h("td", {}, h("a", { href: `#cluster/${encodeURIComponent(id)}` }, short(id))), h("td", {}, why)))),
    ),
    left > 0 && h("p", { class: "soft" }, `and ${plural(left, "more node")}`),
  );
}

async function explain(event, what, found) {
  event.preventDefault();
  if (!what) return;
  try {
    const rows = await ask("GET", path("explain", what));
    replace(
      found,
      rows.slice(0, 20).map((row) =>
        h(
          "section",
          { class: "reason" },
          h("header", {}, h("span", { class: "chip" }, row.state), h("h2", {}, `${row.kind} ${row.name || short(row.id)}`)),
          h("p", {}, row.reason),
          row.suggestions.length > 0 && h("ul", {}, row.suggestions.map((each) => h("li", {}, each))),
          row.refusals.length > 0 && table(row.refusals),
        ),
      ),
    );
  } catch (error) {
    replace(found);
    toast(error.message, "bad");
  }
}
