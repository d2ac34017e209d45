// What the server told last. One stream for the whole page; whoever draws listens for what has changed.

import { once } from "./dom.js";

export const state = {
  ready: false,
  nodes: new Map(),
  clusters: new Map(),
  waiting: [],
  kindsLeftOut: 0,
  events: [],
  setAside: [],
  machines: null,
  now: 0,
  controller: { state: "unknown", message: "", seconds: 0 },
  connected: false,
  about: { read_only: false, insecure: false, version: "", signs_in: false },
  lines: { times: [], clusters: {} },
};

const MOST_EVENTS = 500;
const KEPT_SECONDS = 900;
const EVERY_SECONDS = 5;

let listeners = new Set();
let dirty = { nodes: new Set(), all: true, marks: true };
let version = 0;

/** Call a listener, at most once a frame, with what has changed: `nodes` (ids), `marks`, `clusters`, `waiting`, `events`. */
export function listen(listener) {
  listeners.add(listener);
  listener({ ...dirty, all: true });
  return () => listeners.delete(listener);
}

const tell = once(() => {
  const told = dirty;
  dirty = { nodes: new Set(), all: false, marks: false };
  version += 1;
  for (const listener of listeners) listener(told);
  document.documentElement.dataset.updates = String(version);
});

export function changed(what) {
  dirty[what] = true;
  tell();
}

/** What each virtual cluster has and uses of each node by itself, without what it gave to its children. */
export function partsByNode() {
  if (parts.version === version && parts.of) return parts.of;
  const of = new Map();
  const own = new Map();
  const place = (clusterId, nodeId) => {
    const key = `${nodeId}\n${clusterId}`;
    if (!own.has(key)) own.set(key, { clusterId, nodeId, has: {}, used: {} });
    return own.get(key);
  };
  for (const cluster of state.clusters.values()) {
    for (const vnode of cluster.nodes ?? []) {
      const mine = place(cluster.cluster_id, vnode.node_id);
      const above = cluster.parent ? place(cluster.parent, vnode.node_id) : null;
      for (const [name, total] of Object.entries(vnode.total)) {
        mine.has[name] = (mine.has[name] ?? 0) + total;
        mine.used[name] = (mine.used[name] ?? 0) + (vnode.used[name] ?? 0);
        if (above) {
          above.has[name] = (above.has[name] ?? 0) - total;
          above.used[name] = (above.used[name] ?? 0) - total;
        }
      }
    }
  }
  for (const part of own.values()) {
    if (!of.has(part.nodeId)) of.set(part.nodeId, []);
    of.get(part.nodeId).push(part);
  }
  for (const list of of.values()) list.sort((one, other) => (one.clusterId < other.clusterId ? -1 : 1));
  parts.version = version;
  parts.of = of;
  return of;
}
const parts = { version: -1, of: null };

let source = null;

export async function connect() {
  open();
  try {
    const [about, lines] = await Promise.all([get("/about"), get("/history")]);
    state.about = about;
    state.lines = lines;
    changed("clusters");
    changed("about");
  } catch {
    // The stream says what is wrong.
  }
}

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (answer.status === 401 || answer.status === 403) location.assign("/sign-in");
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

function open() {
  source?.close();
  source = new EventSource("/stream");
  source.addEventListener("open", () => {
    state.connected = true;
    changed("state");
  });
  source.addEventListener("snapshot", (event) => take(JSON.parse(event.data), true));
  source.addEventListener("changes", (event) => take(JSON.parse(event.data), false));
  source.addEventListener("state", (event) => {
    state.controller = JSON.parse(event.data);
    changed("state");
  });
  source.addEventListener("error", () => {
    state.connected = false;
    changed("state");
    if (source.readyState === EventSource.CLOSED) {
      // A browser gives up on some answers; we do not.
      setTimeout(() => {
        fetch("/about").then((answer) => (answer.status === 401 || answer.status === 403 ? location.assign("/sign-in") : open()), open);
      }, 1000);
    }
  });
}

function take(told, whole) {
  state.ready = true;
  state.now = told.now ?? state.now;
  if (whole) {
    const before = state.nodes;
    state.nodes = new Map(told.nodes.map((row) => [row.node_id, row]));
    for (const id of [...before.keys(), ...state.nodes.keys()]) dirty.nodes.add(id);
    dirty.marks = true;
    state.clusters = new Map(told.virtual_clusters.map((row) => [row.cluster_id, row]));
    state.events = told.events.slice(-MOST_EVENTS);
    dirty.clusters = dirty.events = dirty.waiting = true;
  } else {
    for (const row of told.nodes?.changed ?? []) {
      const before = state.nodes.get(row.node_id);
      if (!before || !same(before.labels, row.labels) || !same(before.taints, row.taints)) dirty.marks = true;
      state.nodes.set(row.node_id, row);
      dirty.nodes.add(row.node_id);
    }
    for (const id of told.nodes?.gone ?? []) {
      state.nodes.delete(id);
      dirty.nodes.add(id);
      dirty.marks = true;
    }
    for (const row of told.virtual_clusters?.changed ?? []) {
      for (const each of [state.clusters.get(row.cluster_id), row]) for (const vnode of each?.nodes ?? []) dirty.nodes.add(vnode.node_id);
      state.clusters.set(row.cluster_id, row);
      dirty.clusters = true;
    }
    for (const id of told.virtual_clusters?.gone ?? []) {
      for (const vnode of state.clusters.get(id)?.nodes ?? []) dirty.nodes.add(vnode.node_id);
      state.clusters.delete(id);
      dirty.clusters = true;
    }
    if (told.events) {
      state.events = [...state.events, ...told.events].slice(-MOST_EVENTS);
      dirty.events = true;
    }
  }
  if (told.waiting) {
    state.waiting = told.waiting;
    dirty.waiting = true;
  }
  if (told.kinds_left_out !== undefined) state.kindsLeftOut = told.kinds_left_out;
  if (told.set_aside) state.setAside = told.set_aside;
  if ("machines" in told) state.machines = told.machines;
  remember();
  tell();
}

/** Add how the clusters are now to the lines of the last 15 minutes. */
function remember() {
  const lines = state.lines;
  const last = lines.times.at(-1) ?? 0;
  if (state.now - last < EVERY_SECONDS) return;
  lines.times.push(state.now);
  const length = lines.times.length;
  const kinds = ["used", "min", "total", "max"];
  for (const cluster of state.clusters.values()) {
    const mine = (lines.clusters[cluster.cluster_id] ??= {});
    for (const name of namesOf(cluster)) {
      mine[name] ??= Object.fromEntries(kinds.map((kind) => [kind, []]));
      for (const kind of kinds) {
        const line = mine[name][kind];
        while (line.length < length - 1) line.push(null);
        line.push(cluster[kind]?.[name] ?? (kind === "max" ? null : 0));
      }
    }
  }
  while (lines.times.length && state.now - lines.times[0] > KEPT_SECONDS) {
    lines.times.shift();
    for (const resources of Object.values(lines.clusters)) {
      for (const each of Object.values(resources)) for (const line of Object.values(each)) line.shift();
    }
  }
}

export function namesOf(cluster) {
  return [...new Set([...Object.keys(cluster.used ?? {}), ...Object.keys(cluster.total ?? {}), ...Object.keys(cluster.min ?? {}), ...Object.keys(cluster.max ?? {})])];
}

function same(one, other) {
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => one[key] === other[key]);
}
