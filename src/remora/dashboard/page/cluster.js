// Every node: four or fewer large, some as cards, hundreds as a heat map. Grouped by any label, or by taint.

import { makeBars, updateBars } from "./bars.js";
import { h, keyed, once, replace, roving, say } from "./dom.js";
import { openNode } from "./node.js";
import { listen, partsByNode, state } from "./store.js";
import { colourOf, inOrder, plural, short, time } from "./words.js";

const LARGE = 4;
const CARDS = 60;
const LABELS_SHOWN = 4;

let view = null;

export function show(main, rest) {
  view = new View(main);
  go(rest);
  return () => view.close();
}

export function go([nodeId]) {
  if (nodeId) openNode(nodeId);
}

class View {
  constructor(main) {
    this.tiles = new Map();
    this.groupBy = localStorage.getItem("remora-group") ?? "";
    this.resource = localStorage.getItem("remora-resource") ?? "";
    this.groupSelect = h("select", { id: "group-by", on: { change: () => this.choose("groupBy", "remora-group", this.groupSelect.value) } });
    this.resourceSelect = h("select", { id: "heat-by", on: { change: () => this.choose("resource", "remora-resource", this.resourceSelect.value) } });
    this.filter = h("input", { type: "search", id: "filter", placeholder: "Filter: id, label or taint", "aria-label": "Filter nodes", on: { input: once(() => this.arrange()) } });
    this.legend = h("div", { class: "legend", "aria-label": "Colours" });
    this.heat = h("span", { class: "control" }, h("label", { for: "heat-by" }, "Colour by"), this.resourceSelect);
    this.groups = h("div", { id: "nodes" });
    this.empty = h("div", {});
    this.glance = h("div", { id: "glance" });
    replace(
      main,
      h("h1", { class: "out" }, "Cluster"),
      h("div", { class: "toolbar" }, h("span", { class: "control" }, h("label", { for: "group-by" }, "Group by"), this.groupSelect), this.heat, this.filter, this.legend),
      this.empty,
      this.groups,
      this.glance,
    );
    roving(this.groups, ".node");
    this.groups.addEventListener("click", (event) => {
      const tile = event.target.closest(".node");
      if (tile) openNode(tile.dataset.id);
    });
    this.stop = listen((told) => this.update(told));
  }

  close() {
    this.stop();
  }

  choose(name, key, value) {
    this[name] = value;
    localStorage.setItem(key, value);
    this.arrange();
  }

  update(told) {
    if (told.all || told.waiting || told.events || told.clusters) this.drawGlance();
    if (told.all || told.marks || this.size !== this.sizeNow() || !this.arranged) {
      this.arrange();
      return;
    }
    const parts = partsByNode();
    for (const id of told.nodes) {
      const tile = this.tiles.get(id);
      const row = state.nodes.get(id);
      if (tile && row) this.draw(tile, row, parts);
      else if (!tile !== !row) return this.arrange();
    }
    if (told.clusters) this.drawLegend();
  }

  /** What waits and what happened last, in a few lines. */
  drawGlance() {
    if (!state.ready) return;
    const queued = [...state.clusters.values()].filter((row) => row.position);
    const waits = [...state.waiting.map((row) => [row.count, row.reason]), ...queued.map((row) => [1, `${row.cluster_id}: ${row.reason}`])];
    const line = ([count, reason]) => h("li", {}, h("strong", {}, `${count.toLocaleString("en")} × `), reason);
    const lately = state.events.slice(-5).reverse();
    replace(
      this.glance,
      h("section", {}, h("h2", {}, h("a", { href: "#waiting" }, "What waits")), h("ul", {}, waits.length ? waits.slice(0, 5).map(line) : h("li", { class: "soft" }, "Nothing waits."))),
      h(
        "section",
        {},
        h("h2", {}, h("a", { href: "#timeline" }, "What happened last")),
        h("ul", {}, lately.map((entry) => h("li", {}, h("span", { class: "soft" }, `${time(entry.at)} `), `${entry.kind} ${short(entry.subject)} ${entry.text}`))),
      ),
    );
  }

  sizeNow() {
    const count = state.nodes.size;
    return count <= LARGE ? "large" : count <= CARDS ? "card" : "heat";
  }

  /** Put every node into its group, anew. */
  arrange() {
    this.arranged = state.ready;
    this.size = this.sizeNow();
    this.heat.hidden = this.size !== "heat";
    this.offer();
    this.drawLegend();
    const wanted = this.filter.value.trim().toLowerCase();
    const rows = [...state.nodes.values()].filter((row) => !wanted || textOf(row).includes(wanted));
    replace(this.empty, this.emptiness(rows.length, wanted));
    const groups = new Map();
    for (const row of rows) {
      const name = this.groupOf(row);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    const ordered = [...groups].sort(([one], [other]) => (one < other ? -1 : 1));
    const parts = partsByNode();
    const seen = new Set();
    keyed(
      this.groups,
      ordered,
      ([name]) => `${this.size}\n${name}`,
      ([name]) => {
        const title = h("h2", {});
        const tiles = h("div", { class: `tiles ${this.size}`, role: "group", "aria-label": name || "All nodes" });
        const made = h("section", { class: "node-group" }, title, tiles);
        made._title = title;
        made._tiles = tiles;
        return made;
      },
      (section, [name, inside]) => {
        section._title.hidden = !name;
        say(section._title, name ? `${name} · ${plural(inside.length, "node")}` : "");
        keyed(
          section._tiles,
          inside,
          (row) => row.node_id,
          (row) => this.make(row),
          (tile, row) => {
            this.tiles.set(row.node_id, tile);
            seen.add(row.node_id);
            this.draw(tile, row, parts);
          },
        );
      },
    );
    for (const id of this.tiles.keys()) if (!seen.has(id)) this.tiles.delete(id);
    const first = this.groups.querySelector(".node");
    if (first && !this.groups.querySelector('.node[tabindex="0"]')) first.tabIndex = 0;
  }

  emptiness(count, wanted) {
    if (!state.ready) return skeleton(this.size === "heat" ? 4 : 4);
    if (count) return null;
    if (wanted) return h("p", { class: "empty" }, `No node matches “${wanted}”.`);
    return h("div", { class: "empty" }, h("h2", {}, "No nodes yet"), h("p", {}, "Nodes appear here as soon as they join: ", h("code", {}, "ray start --address=HEAD:6379")));
  }

  groupOf(row) {
    if (!this.groupBy) return "";
    if (this.groupBy === "taint:") {
      const taints = Object.entries(row.taints).map(([key, value]) => `${key}=${value}`);
      return taints.length ? `tainted ${taints.join(", ")}` : "no taint";
    }
    const value = row.labels[this.groupBy];
    return value === undefined ? `without ${this.groupBy}` : `${this.groupBy}=${value}`;
  }

  /** Bring what can be chosen up to date. */
  offer() {
    const keys = new Set();
    const resources = new Set();
    for (const row of state.nodes.values()) {
      for (const key of Object.keys(row.labels)) keys.add(key);
      for (const name of Object.keys(row.total)) resources.add(name);
    }
    if (this.groupBy && this.groupBy !== "taint:" && !keys.has(this.groupBy) && state.ready) this.groupBy = "";
    options(this.groupSelect, [["", "nothing"], ["taint:", "taint"], ...[...keys].sort().map((key) => [key, key])], this.groupBy);
    const names = inOrder(resources);
    if (!names.includes(this.resource)) this.resource = names[0] ?? "";
    options(this.resourceSelect, names.map((name) => [name, name]), this.resource);
  }

  drawLegend() {
    const shown = [...state.clusters.values()].filter((row) => row.cluster_id !== "root" && Object.keys(row.total).length);
    const entry = (name, colour, kind) => h("span", { class: "key" }, h("i", { class: kind, style: { "--c": colour } }), name);
    if (this.size === "heat") {
      replace(this.legend, h("span", { class: "key" }, "idle"), h("i", { class: "ramp" }), h("span", { class: "key" }, "full"), h("span", { class: "key" }, h("i", { class: "tainted-key" }), "tainted"));
      return;
    }
    replace(
      this.legend,
      shown.slice(0, 8).map((row) => entry(row.cluster_id, colourOf(row.cluster_id), "used")),
      shown.length > 8 && h("span", { class: "key" }, `and ${shown.length - 8} more`),
      entry("others", "var(--outside)", "used"),
      shown.length > 0 && entry("kept, idle", "var(--muted)", "idle"),
    );
  }

  make(row) {
    const tile = h("button", { class: "node", type: "button", tabindex: -1, data: { id: row.node_id } });
    if (this.size === "heat") return tile;
    tile._name = h("strong", {}, short(row.node_id));
    tile._address = h("span", { class: "soft" });
    tile._taints = h("span", { class: "chips" });
    tile._labels = h("span", { class: "chips" });
    tile._bars = makeBars();
    tile.append(h("span", { class: "node-head" }, tile._name, tile._address), tile._taints, tile._bars, tile._labels);
    return tile;
  }

  draw(tile, row, parts) {
    const load = loadOf(row, this.resource);
    const said = `Node ${short(row.node_id)}, ${Math.round(load * 100)} percent of ${this.resource} used${taintsSaid(row)}`;
    if (tile._said !== said) tile.setAttribute("aria-label", (tile._said = said));
    tile.classList.toggle("tainted", Object.keys(row.taints).length > 0);
    if (this.size === "heat") {
      const shade = (Math.round(load * 20) / 20).toFixed(2);
      if (tile._shade !== shade) tile.style.setProperty("--load", (tile._shade = shade));
      return;
    }
    say(tile._address, row.head ? `${row.address} · head` : row.address);
    updateBars(tile._bars, row, parts.get(row.node_id));
    const marks = JSON.stringify([row.taints, row.labels]);
    if (tile._marks === marks) return;
    tile._marks = marks;
    replace(tile._taints, Object.entries(row.taints).map(([key, value]) => h("span", { class: "chip taint" }, value ? `${key}=${value}` : key)));
    const labels = Object.entries(row.labels);
    const most = this.size === "large" ? 12 : LABELS_SHOWN;
    replace(
      tile._labels,
      labels.slice(0, most).map(([key, value]) => h("span", { class: "chip" }, `${key}=${value}`)),
      labels.length > most && h("span", { class: "chip" }, `+${labels.length - most}`),
    );
  }
}

function taintsSaid(row) {
  const keys = Object.keys(row.taints);
  return keys.length ? `, tainted ${keys.join(", ")}` : "";
}

function loadOf(row, name) {
  const total = row.total[name] ?? 0;
  return total ? Math.min((row.used[name] ?? 0) / total, 1) : 0;
}

function textOf(row) {
  const pairs = [...Object.entries(row.labels), ...Object.entries(row.taints)].map(([key, value]) => `${key}=${value}`);
  return [row.node_id, row.address, ...pairs].join(" ").toLowerCase();
}

export function options(select, wanted, value) {
  const text = JSON.stringify(wanted);
  if (select._wanted !== text) {
    select._wanted = text;
    replace(select, wanted.map(([each, title]) => h("option", { value: each }, title)));
  }
  select.value = value;
}

/** What is shown while nothing was heard yet: no spinner, and after a third of a second only. */
export function skeleton(count) {
  if (state.controller.state === "away") return h("div", { class: "empty" }, h("h2", {}, "No controller answers yet"), h("p", {}, state.controller.message));
  return h("div", { class: "tiles card late", role: "status", "aria-label": "Waiting for the controller" }, Array.from({ length: count }, () => h("div", { class: "node ghost" })));
}

