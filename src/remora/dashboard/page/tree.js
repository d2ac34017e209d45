// The tree of virtual clusters with their last 15 minutes, and the queue of those that wait for their minimum.

import { ask, dialog, field, path } from "./asking.js";
import { chart } from "./chart.js";
import { skeleton } from "./cluster.js";
import { h, replace } from "./dom.js";
import { listen, namesOf, state } from "./store.js";
import { amount, amounts, colourOf, inOrder, time } from "./words.js";

export function show(main) {
  const body = h("div", { id: "tree" });
  replace(main, h("h1", { class: "out" }, "Virtual clusters"), body);
  let drawn = 0;
  const draw = () => {
    drawn = state.now;
    const focus = document.activeElement?.dataset?.key;
    replace(body, view());
    if (focus) body.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  };
  return listen((told) => {
    if (told.all || told.clusters || told.about || !state.ready || state.now - drawn > 5) draw();
  });
}

function view() {
  if (!state.ready) return skeleton(4);
  const rows = [...state.clusters.values()];
  const queued = rows.filter((row) => row.position).sort((one, other) => (one.parent ?? "").localeCompare(other.parent ?? "") || one.position - other.position);
  const inside = rows.filter((row) => row.cluster_id !== "root");
  const root = state.clusters.get("root");
  return [
    legend(),
    root && card(root, 0),
    below(null, 1),
    !inside.length &&
      h("div", { class: "empty" }, h("h2", {}, "No virtual clusters"), h("p", {}, "A job makes one with ", h("code", {}, "with VirtualCluster(...)"), " or ", h("code", {}, "remora run --virtual-cluster"), ".")),
    h("h2", { id: "queue" }, "Queue"),
    queued.length ? queue(queued) : h("p", { class: "soft" }, "Nothing waits for its minimum."),
  ];
}

function legend() {
  const entry = (kind, text) => h("span", { class: "key" }, h("i", { class: `line ${kind}` }), text);
  return h("div", { class: "legend wide" }, entry("use", "used"), entry("had", "has"), entry("reserved", "reserved (minimum)"), entry("most", "at most"), h("span", { class: "soft" }, "the last 15 minutes"));
}

function below(parent, depth) {
  return [...state.clusters.values()]
    .filter((row) => row.parent === parent && row.cluster_id !== "root" && !row.position)
    .sort((one, other) => one.cluster_id.localeCompare(other.cluster_id, "en", { numeric: true }))
    .map((row) => [card(row, depth), below(row.cluster_id, depth + 1)]);
}

function card(row, depth) {
  const isRoot = row.cluster_id === "root";
  const names = inOrder(namesOf(row)).filter((name) => (row.total[name] ?? 0) || (row.max[name] ?? 0) || (row.min?.[name] ?? 0));
  const lowering = Object.keys(row.lowering ?? {}).length > 0;
  return h(
    "section",
    { class: `vc depth-${Math.min(depth, 6)}`, style: { "--c": colourOf(row.cluster_id) } },
    h(
      "header",
      {},
      h("i", { class: "dot" }),
      h("h2", {}, isRoot ? "The whole cluster" : row.cluster_id),
      !isRoot && h("span", { class: `chip state-${row.state}` }, row.state.toLowerCase()),
      row.job_id && h("span", { class: "soft" }, `job ${row.submission_id || row.job_id}`),
      lowering && h("span", { class: "chip taint" }, `coming down to ${amounts(row.lowering)}`),
      !isRoot &&
        !state.about.read_only &&
        row.state !== "CLOSED" &&
        h(
          "span",
          { class: "actions" },
          h("button", { type: "button", class: "small", data: { key: `resize ${row.cluster_id}` }, on: { click: () => resize(row) } }, "Resize", h("span", { class: "out" }, ` ${row.cluster_id}`)),
          h("button", { type: "button", class: "small", data: { key: `close ${row.cluster_id}` }, on: { click: () => close(row) } }, "Close", h("span", { class: "out" }, ` ${row.cluster_id}`)),
        ),
    ),
    h("div", { class: "vc-resources" }, names.map((name) => resource(row, name))),
  );
}

function resource(row, name) {
  const used = row.used[name] ?? 0;
  const has = row.total[name] ?? 0;
  const reserved = row.min?.[name] ?? 0;
  const limit = row.max[name];
  const whole = Math.max(limit ?? 0, has, reserved, used, 1e-9);
  const width = (value) => ({ width: `${((100 * value) / whole).toFixed(2)}%` });
  const borrowed = Math.max(has - reserved, 0);
  const isRoot = row.cluster_id === "root";
  return h(
    "div",
    { class: "vc-resource" },
    h("div", { class: "bar-name" }, name),
    h(
      "div",
      { class: "nested", "aria-hidden": "true" },
      h("i", { class: "had", style: width(has) }),
      h("i", { class: "use", style: width(used) }),
      reserved > 0 && h("i", { class: "reserved", style: { left: `${((100 * reserved) / whole).toFixed(2)}%` } }),
    ),
    h(
      "p",
      { class: "figures" },
      h("strong", {}, amount(used, name)),
      ` used of ${amount(has, name)}`,
      !isRoot && ` · ${amount(reserved, name)} reserved · ${amount(borrowed, name)} borrowed · at most ${limit === undefined ? "any" : amount(limit, name)}`,
    ),
    chart(row.cluster_id, name, state.lines, state.now, limit ?? (isRoot ? has : undefined)),
  );
}

function queue(rows) {
  const since = {};
  for (const entry of state.events) if (entry.kind === "cluster" && entry.text.startsWith("queued")) since[entry.subject] = entry.at;
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "queue" },
    h(
      "table",
      { class: "rows" },
      h("thead", {}, h("tr", {}, ["#", "Cluster", "Job", "Priority", "Asks for", "Since", "Why it waits", ""].map((each) => h("th", { scope: "col" }, each || h("span", { class: "out" }, "Change"))))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            h("td", {}, String(row.position)),
            h("th", { scope: "row" }, row.cluster_id, row.parent && h("span", { class: "soft" }, ` in ${row.parent}`)),
            h("td", {}, row.job_id),
            h("td", {}, String(row.priority)),
            h("td", {}, amounts(row.min)),
            h("td", {}, since[row.cluster_id] ? time(since[row.cluster_id]) : ""),
            h("td", { class: "wide" }, row.reason),
            h(
              "td",
              { class: "actions" },
              !state.about.read_only && [
                h("button", { type: "button", class: "small", data: { key: `priority ${row.cluster_id}` }, on: { click: () => prioritize(row) } }, "Priority", h("span", { class: "out" }, ` of ${row.cluster_id}`)),
                h("button", { type: "button", class: "small", data: { key: `withdraw ${row.cluster_id}` }, on: { click: () => withdraw(row) } }, "Withdraw", h("span", { class: "out" }, ` ${row.cluster_id}`)),
              ],
            ),
          ),
        ),
      ),
    ),
  );
}

/** Ask for another maximum of a virtual cluster. `wanted` fills in what is suggested. */
export function resize(row, wanted = {}) {
  const names = inOrder(new Set([...namesOf(row), ...Object.keys(wanted), ...(namesOf(row).length ? [] : ["CPU"])]));
  const fields = names.map((name) => [name, field(`At most, ${name}`, { type: "number", min: 0, step: "any", value: wanted[name] ?? row.max[name] ?? "", placeholder: "no limit" })]);
  dialog({
    title: `Resize ${row.cluster_id}`,
    text: "Of what it has above a lower maximum it gives back what is idle at once, and the rest as its work ends.",
    fields: fields.flatMap(([, each]) => each.elements),
    action: "Resize",
    run: async ({ reason, key }) => {
      const most = {};
      for (const [name, each] of fields) {
        const value = each.input.value === "" ? null : Number(each.input.value);
        if (value !== (row.max[name] ?? null)) most[name] = value;
      }
      if (!Object.keys(most).length) throw new Error("Nothing is different: give another number, or none for no limit.");
      await ask("PATCH", path("clusters", row.cluster_id), { body: { max: most }, reason, key });
      return `Resized ${row.cluster_id}`;
    },
  });
}

function close(row) {
  dialog({
    title: `Close ${row.cluster_id}`,
    text: "Its minimum is given back, and with it the clusters inside. What runs in it finishes.",
    action: "Close it",
    danger: true,
    run: async ({ reason, key }) => {
      await ask("DELETE", path("clusters", row.cluster_id), { reason, key });
      return `Closed ${row.cluster_id}`;
    },
  });
}

function prioritize(row) {
  const priority = field("Priority", { type: "number", step: 1, value: row.priority, required: true });
  dialog({
    title: `Priority of ${row.cluster_id}`,
    text: "More goes first among those with the same parent.",
    fields: priority.elements,
    action: "Change",
    run: async ({ reason, key }) => {
      await ask("PATCH", path("queue", row.cluster_id), { body: { priority: Number(priority.input.value) }, reason, key });
      return `Changed the priority of ${row.cluster_id}`;
    },
  });
}

function withdraw(row) {
  dialog({
    title: `Withdraw ${row.cluster_id}`,
    text: "It leaves the queue. Whoever waits for it hears by whom and why.",
    action: "Withdraw it",
    danger: true,
    run: async ({ reason, key }) => {
      await ask("DELETE", path("queue", row.cluster_id), { reason, key });
      return `Withdrew ${row.cluster_id}`;
    },
  });
}
