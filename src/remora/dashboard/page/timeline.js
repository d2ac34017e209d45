// The journal, and the life of each actor in one line.

import { options, skeleton } from "./cluster.js";
import { h, keyed, once, replace, s } from "./dom.js";
import { listen, state } from "./store.js";
import { plural, short, time } from "./words.js";

const SHOWN = 200;
const LIVES = 12;

export function show(main, rest) {
  const filter = h("input", { type: "search", id: "events-filter", placeholder: "Filter: node, actor, cluster or words", "aria-label": "Filter the journal", value: rest?.[0] ?? "" });
  const kind = h("select", { id: "events-kind" });
  const lives = h("section", { id: "lives" });
  const list = h("ol", { id: "events", class: "events" });
  const empty = h("div", {});
  const draw = once(() => {
    if (!state.ready) return replace(empty, skeleton(4));
    const kinds = [...new Set(state.events.map((entry) => entry.kind))].sort();
    options(kind, [["", "everything"], ...kinds.map((each) => [each, each])], kind.value);
    const wanted = filter.value.trim().toLowerCase();
    const found = state.events.filter((entry) => (!kind.value || entry.kind === kind.value) && (!wanted || text(entry).includes(wanted)));
    replace(empty, !found.length && h("div", { class: "empty" }, h("h2", {}, "Nothing to tell"), h("p", {}, wanted || kind.value ? "No entry matches." : "The journal begins when something happens.")));
    drawLives(lives, found);
    keyed(list, found.slice(-SHOWN).reverse(), (entry) => entry.number, item);
  });
  filter.addEventListener("input", draw);
  kind.addEventListener("change", draw);
  replace(
    main,
    h("h1", { class: "out" }, "Time line"),
    h("div", { class: "toolbar" }, h("span", { class: "control" }, h("label", { for: "events-kind" }, "Show"), kind), filter),
    empty,
    lives,
    list,
  );
  return listen((told) => (told.all || told.events || !state.ready) && draw());
}

function text(entry) {
  return [entry.kind, entry.subject, entry.text, ...Object.values(entry.by ?? {})].join(" ").toLowerCase();
}

function item(entry) {
  const by = entry.by;
  return h(
    "li",
    { class: `event kind-${/^[a-z]+$/.test(entry.kind) ? entry.kind : "other"}` },
    h("time", { datetime: entry.at, title: entry.at }, time(entry.at)),
    h("span", { class: "chip" }, entry.kind),
    entry.subject && h("span", { class: "subject", title: entry.subject }, entry.kind === "node" || entry.kind === "taint" || entry.kind === "label" ? h("a", { href: `#cluster/${encodeURIComponent(entry.subject)}` }, short(entry.subject)) : short(entry.subject)),
    h("span", { class: "said" }, entry.text, by && h("span", { class: "by" }, ` — ${[by.who, by.through && `by ${by.through}`, by.from && `from ${by.from}`].filter(Boolean).join(" ")}${by.reason ? `: “${by.reason}”` : ""}`)),
  );
}

/** The actors that these entries tell of, each with its whole life on one line. */
function drawLives(element, entries) {
  const lives = new Map();
  for (const entry of entries) {
    if (entry.kind !== "lease" || !entry.subject) continue;
    if (!lives.has(entry.subject)) lives.set(entry.subject, []);
    lives.get(entry.subject).push(entry);
  }
  const shown = [...lives].slice(-LIVES).reverse();
  if (!shown.length) return replace(element);
  const begin = Math.min(...shown.map(([, life]) => Date.parse(life[0].at)));
  const end = Math.max(state.now * 1000, ...shown.map(([, life]) => Date.parse(life.at(-1).at)));
  const x = (at) => 1 + (98 * (Date.parse(at) - begin)) / Math.max(end - begin, 1);
  replace(
    element,
    h("h2", {}, `Lives of ${plural(lives.size, "actor")}`),
    shown.map(([actor, life]) =>
      h(
        "div",
        { class: "life" },
        h("code", { title: actor }, short(actor)),
        s(
          "svg",
          { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": life.map((entry) => `${time(entry.at)} ${entry.text}`).join("; ") },
          s("line", { x1: x(life[0].at), x2: 99, y1: 5, y2: 5 }),
          life.map((entry) => s("rect", { x: x(entry.at) - 0.35, y: 1.5, width: 0.7, height: 7 }, s("title", {}, `${time(entry.at)} ${entry.text}`))),
        ),
        h("span", { class: "soft" }, life.map((entry) => entry.text).join(" → ")),
      ),
    ),
  );
}
