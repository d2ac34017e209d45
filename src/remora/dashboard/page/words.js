// Numbers, times and amounts as people read them, and the colours of virtual clusters.

const BYTES = new Set(["memory", "object_store_memory"]);
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Colours that people with any kind of colour vision tell apart (after Okabe and Ito), each with a pattern beside. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#aa4499", "#b38600", "#4aa3df", "#882255", "#6b7f3a"];
const given = new Map();

export function colourOf(clusterId) {
  if (!clusterId || clusterId === "root") return "var(--outside)";
  if (!given.has(clusterId)) {
    const number = Number(/(\d+)$/.exec(clusterId)?.[1] ?? given.size + 1);
    given.set(clusterId, COLOURS[(number - 1 + COLOURS.length) % COLOURS.length]);
  }
  return given.get(clusterId);
}

export function amount(value, name = "") {
  if (value === null || value === undefined) return "no limit";
  if (BYTES.has(name)) {
    let step = 0;
    while (value >= 1024 && step < UNITS.length - 1) {
      value /= 1024;
      step += 1;
    }
    return `${trim(value)} ${UNITS[step]}`;
  }
  return trim(value);
}

function trim(value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
}

export function amounts(resources) {
  const parts = Object.entries(resources ?? {}).map(([name, value]) => `${amount(value, name)} ${name}`);
  return parts.join(", ") || "nothing";
}

export function short(id) {
  return id.length > 14 ? id.slice(0, 8) : id;
}

export function time(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** Resources as they are shown: CPU and GPU first, memory last. */
export function inOrder(names) {
  const rank = (name) => ({ CPU: 0, GPU: 1 })[name] ?? (BYTES.has(name) ? 9 : 5);
  return [...names].sort((one, other) => rank(one) - rank(other) || (one < other ? -1 : 1));
}
