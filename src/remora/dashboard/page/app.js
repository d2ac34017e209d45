// The frame: which view is shown, how the cluster is, and whether anybody answers.

import * as cluster from "./cluster.js";
import { h, replace, say } from "./dom.js";
import { connect, listen, state } from "./store.js";
import * as timeline from "./timeline.js";
import * as tree from "./tree.js";
import * as waiting from "./waiting.js";

const VIEWS = {
  cluster: ["Cluster", cluster],
  clusters: ["Virtual clusters", tree],
  waiting: ["Waiting", waiting],
  timeline: ["Time line", timeline],
};

const main = document.getElementById("main");
const notice = document.getElementById("notice");
let shown = "";
let leave = null;

const badges = Object.fromEntries(Object.keys(VIEWS).map((name) => [name, h("span", { class: "badge" })]));
const links = Object.fromEntries(
  Object.entries(VIEWS).map(([name, [title]]) => [name, h("a", { href: `#${name}` }, title, badges[name])]),
);
const pill = h("span", { class: "pill", id: "pill" });
const numbers = h("div", { class: "numbers", id: "numbers" });

replace(
  document.getElementById("header"),
  h("a", { class: "brand", href: "#cluster", "aria-label": "Remora, the cluster" }, h("img", { src: "/page/icon.svg", alt: "", width: 26, height: 26 }), h("span", {}, "Remora")),
  h("nav", { "aria-label": "Views" }, Object.values(links)),
  numbers,
  h("div", { class: "tools" }, pill, themeButton(), nameButton(), h("a", { class: "tool", href: "/docs", title: "The REST API" }, "API")),
);

function route() {
  const [name, ...rest] = decodeURIComponent(location.hash.slice(1)).split("/");
  const view = VIEWS[name] ? name : "cluster";
  if (view !== shown) {
    leave?.();
    main.replaceChildren();
    shown = view;
    document.title = `${VIEWS[view][0]} · Remora`;
    for (const [each, link] of Object.entries(links)) {
      if (each === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    leave = VIEWS[view][1].show(main, rest);
  } else {
    VIEWS[view][1].go?.(rest);
  }
}

function themeButton() {
  const order = ["auto", "light", "dark"];
  const button = h("button", { class: "tool", type: "button" });
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme === "auto" ? "as the system has them" : theme}`);
    button.title = button.getAttribute("aria-label");
  };
  apply(localStorage.getItem("remora-theme") ?? "auto");
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(document.documentElement.dataset.theme) + 1) % order.length];
    localStorage.setItem("remora-theme", next);
    apply(next);
  });
  return button;
}

function nameButton() {
  const button = h("button", { class: "tool", type: "button", title: "Your name, for the journal" });
  const apply = () => {
    const name = localStorage.getItem("remora-name");
    button.textContent = name || "Who are you?";
  };
  button.addEventListener("click", async () => {
    const { dialog, field } = await import("./asking.js");
    const name = field("Your name", { value: localStorage.getItem("remora-name") ?? "", maxlength: 60 });
    dialog({
      title: "Who are you?",
      text: "The journal says who changed something. Nobody checks this name.",
      fields: name.elements,
      action: "Remember",
      run: async () => {
        localStorage.setItem("remora-name", name.input.value.trim());
        apply();
        return "Remembered in this browser";
      },
    });
  });
  apply();
  return button;
}

function sums() {
  const totals = {};
  const used = {};
  for (const row of state.nodes.values()) {
    for (const name of ["CPU", "GPU"]) {
      totals[name] = (totals[name] ?? 0) + (row.total[name] ?? 0);
      used[name] = (used[name] ?? 0) + (row.used[name] ?? 0);
    }
  }
  return { totals, used };
}

function header() {
  const { totals, used } = sums();
  const waits = state.waiting.reduce((sum, row) => sum + row.count, 0);
  const queued = [...state.clusters.values()].filter((row) => row.position).length;
  const inside = [...state.clusters.values()].filter((row) => row.cluster_id !== "root").length;
  say(badges.cluster, state.ready ? state.nodes.size.toLocaleString("en") : "");
  say(badges.clusters, state.ready ? String(inside) : "");
  say(badges.waiting, state.ready ? (waits + queued).toLocaleString("en") : "");
  badges.waiting.classList.toggle("some", waits + queued > 0);
  replace(
    numbers,
    ["CPU", "GPU"]
      .filter((name) => totals[name])
      .map((name) =>
        h(
          "div",
          { class: "number" },
          h("span", {}, name),
          h("meter", { min: 0, max: totals[name], value: used[name], "aria-label": `${name} used` }),
          h("strong", {}, `${Math.round((100 * used[name]) / totals[name])} %`),
        ),
      ),
  );
}

function status() {
  const away = state.controller.state === "away";
  const [text, kind] = !state.connected
    ? ["no connection", "bad"]
    : away
      ? ["controller away", "bad"]
      : state.ready
        ? ["live", "good"]
        : ["connecting", "soft"];
  say(pill, text);
  pill.className = `pill ${kind}`;
  const said = [];
  if (!state.connected && state.ready) said.push(h("p", { class: "note bad" }, "The dashboard does not answer. What you see is old; it goes on by itself when it is back."));
  else if (away) {
    said.push(
      h(
        "p",
        { class: "note bad", id: "away" },
        h("strong", {}, "Controller away. "),
        state.controller.message,
        state.ready ? ". What runs goes on, Ray needs no controller for it; what you see is as it was last. This page goes on by itself." : ".",
        " ",
        !state.about.read_only && state.controller.message.startsWith("there is no controller") && h("button", { type: "button", class: "small", on: { click: startController } }, "Start it"),
      ),
    );
  }
  if (state.about.insecure) said.push(h("p", { class: "note warn", id: "insecure" }, "Started with --insecure: everybody who reaches this address may change the cluster."));
  if (state.about.read_only) said.push(h("p", { class: "note", id: "read-only" }, "Read only: this page changes nothing."));
  for (const each of state.setAside.slice(0, 3)) {
    said.push(h("p", { class: "note warn" }, h("strong", {}, `The ${each.kind} ${each.id} is set aside: `), each.error));
  }
  if (state.machines?.problems?.length) said.push(h("p", { class: "note warn" }, state.machines.problems.join("; ")));
  replace(notice, said);
  document.documentElement.classList.toggle("stale", state.ready && (away || !state.connected));
}

async function startController() {
  const { ask, toast } = await import("./asking.js");
  ask("POST", "/controller").then(() => toast("The controller is being started"), (error) => toast(error.message, "bad"));
}

addEventListener("hashchange", route);
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = { 1: "cluster", 2: "clusters", 3: "waiting", 4: "timeline" }[event.key];
  if (view) location.hash = view;
});

route();
listen((told) => {
  if (told.all || told.nodes.size || told.clusters || told.waiting) header();
  if (told.all || told.state || told.about || told.nodes.size) status();
});
connect();

