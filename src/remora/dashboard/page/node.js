// One node in depth: what runs there, its tokens in words, and its labels and taints, which can be changed after a look at what
// that would do.

import { ask, dialog, field, path } from "./asking.js";
import { makeBars, updateBars } from "./bars.js";
import { h, replace } from "./dom.js";
import { listen, partsByNode, state } from "./store.js";
import { plural, short } from "./words.js";

let open = null;

/** Open the panel of a node. */
export function openNode(nodeId) {
  if (open?.nodeId === nodeId) return;
  open?.close();
  open = new Panel(nodeId);
}

class Panel {
  constructor(nodeId) {
    this.nodeId = nodeId;
    this.depth = null;
    this.asked = 0;
    this.opener = document.activeElement;
    this.bars = makeBars();
    this.body = h("div", { class: "panel-body" });
    this.title = h("h2", { id: "panel-title" }, `Node ${short(nodeId)}`);
    this.element = h(
      "dialog",
      { class: "panel", "aria-labelledby": "panel-title" },
      h("header", {}, this.title, h("button", { type: "button", class: "tool", "aria-label": "Close", on: { click: () => this.close() } }, "✕")),
      this.body,
    );
    this.element.addEventListener("close", () => this.end());
    this.element.addEventListener("click", (event) => event.target === this.element && this.close());
    document.body.append(this.element);
    this.element.showModal();
    this.stop = listen((told) => {
      if (told.all || told.nodes.has(nodeId)) this.look();
    });
    if (location.hash !== `#cluster/${nodeId}`) history.replaceState(null, "", `#cluster/${encodeURIComponent(nodeId)}`);
  }

  close() {
    this.element.close();
  }

  end() {
    this.stop();
    this.element.remove();
    if (open === this) open = null;
    history.replaceState(null, "", "#cluster");
    if (this.opener?.isConnected) this.opener.focus();
  }

  async look() {
    this.draw();
    const mine = ++this.asked;
    try {
      const depth = await ask("GET", path("nodes", this.nodeId));
      if (mine !== this.asked) return;
      this.depth = depth;
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    }
    this.draw();
  }

  draw() {
    const row = state.nodes.get(this.nodeId) ?? this.depth;
    if (!row) {
      replace(this.body, h("p", { class: "empty" }, this.problem || (state.ready ? "This node has left the cluster." : "")));
      return;
    }
    updateBars(this.bars, row, partsByNode().get(this.nodeId));
    const changeable = !state.about.read_only;
    replace(
      this.body,
      h("p", { class: "soft" }, `${row.address}${row.head ? " · head" : ""} · `, h("code", {}, this.nodeId)),
      this.bars,
      this.marks("Taints", row.taints, "taint", changeable),
      this.marks("Labels", row.labels, "label", changeable),
      h("h3", {}, "What runs here"),
      this.running(),
      h("h3", {}, "Tokens, in words"),
      this.tokens(),
    );
  }

  marks(title, pairs, kind, changeable) {
    const fixed = (key) => kind === "label" && key.startsWith("ray.io/");
    const rows = Object.entries(pairs).map(([key, value]) =>
      h(
        "span",
        { class: `chip ${kind}` },
        value ? `${key}=${value}` : key,
        changeable && !fixed(key) && h("button", { type: "button", "aria-label": `Remove the ${kind} ${key}`, on: { click: () => changeMarks(this.nodeId, kind, key, value) } }, "✕"),
      ),
    );
    return [
      h("h3", {}, title, changeable && h("button", { type: "button", class: "small", on: { click: () => addMark(this.nodeId, kind) } }, kind === "taint" ? "Add a taint" : "Add a label")),
      h("div", { class: "chips" }, rows.length ? rows : h("span", { class: "soft" }, "none")),
    ];
  }

  running() {
    if (!this.depth) return h("p", { class: "soft late" }, this.problem || "…");
    if (!this.depth.running.length) return h("p", { class: "soft" }, "Nothing that is attached. What other jobs run is in the bars.");
    return h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["What", "", "In", "Asks for"].map((each) => h("th", { scope: "col" }, each)))),
      h(
        "tbody",
        {},
        this.depth.running.map((row) =>
          h(
            "tr",
            {},
            h("td", {}, plural(row.count, row.kind)),
            h("td", {}, row.name || (row.id ? short(row.id) : row.what), row.labels && h("span", { class: "chip" }, row.labels)),
            h("td", {}, row.cluster_id),
            h("td", {}, row.resources),
          ),
        ),
      ),
    );
  }

  tokens() {
    if (!this.depth) return null;
    if (!this.depth.tokens.length) return h("p", { class: "soft" }, "No token stands here yet: nothing attached was submitted.");
    return h(
      "ul",
      { class: "tokens" },
      this.depth.tokens.map((row) => h("li", { title: row.token }, row.text, row.fenced && h("span", { class: "chip taint" }, "fenced"))),
    );
  }
}

async function previewOf(nodeId, change) {
  return (await ask("POST", path("nodes", "preview", nodeId), { body: change })).text;
}

/** Ask for a label or a taint to add. */
export function addMark(nodeId, kind, key = "", value = "") {
  const first = field("Key", { required: true, value: key, placeholder: kind === "taint" ? "maintenance" : "zone" });
  const second = field("Value", { value: value || (kind === "taint" ? "true" : ""), placeholder: "true" });
  const change = () => ({ [first.input.value.trim()]: second.input.value.trim() });
  dialog({
    title: kind === "taint" ? `Taint ${short(nodeId)}` : `Label ${short(nodeId)}`,
    text: kind === "taint" ? "Nothing that does not tolerate it starts there any more; what runs finishes." : "What waits for such a label starts.",
    fields: [...first.elements, ...second.elements],
    action: kind === "taint" ? "Add the taint" : "Add the label",
    preview: async () => (first.input.value.trim() ? previewOf(nodeId, { [`${kind}s`]: change() }) : ""),
    run: async ({ reason, key: once }) => {
      await ask("POST", path("nodes", `${kind}s`, nodeId), { body: change(), reason, key: once });
      return kind === "taint" ? "Tainted" : "Labelled";
    },
  });
}

/** Ask whether a label or a taint is to be removed. */
export function changeMarks(nodeId, kind, key, value) {
  dialog({
    title: `Remove the ${kind} ${key}`,
    text: `From the node ${short(nodeId)}.`,
    action: "Remove",
    danger: true,
    preview: () => previewOf(nodeId, { [`${kind}s`]: { [key]: null } }),
    run: async ({ reason, key: once }) => {
      await ask("DELETE", path("nodes", `${kind}s`, nodeId), { body: { [key]: value }, reason, key: once });
      return `Removed ${key}`;
    },
  });
}
