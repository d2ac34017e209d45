// The last 15 minutes of a virtual cluster: used, reserved, borrowed and the most that it may have, drawn in SVG.

import { s } from "./dom.js";
import { amount, colourOf } from "./words.js";

const WIDTH = 320;
const HEIGHT = 72;
const SECONDS = 900;

/** Return the drawing of one resource of one cluster. */
export function chart(clusterId, name, lines, now, limit) {
  const times = lines.times;
  const mine = lines.clusters[clusterId]?.[name];
  const colour = colourOf(clusterId);
  const most = Math.max(limit ?? 0, ...["used", "total", "min"].flatMap((kind) => (mine?.[kind] ?? []).map((value) => value ?? 0)), 1e-9);
  const x = (at) => (WIDTH * (1 - (now - at) / SECONDS)).toFixed(1);
  const y = (value) => (HEIGHT - 4 - (value / (most * 1.08)) * (HEIGHT - 10)).toFixed(1);
  const points = (kind) => times.map((at, index) => [at, mine?.[kind]?.[index] ?? null]).filter(([at, value]) => value !== null && now - at <= SECONDS);
  const last = (kind) => points(kind).at(-1)?.[1] ?? 0;
  const said = `${name} of ${clusterId} over the last 15 minutes: ${amount(last("used"), name)} used, ${amount(last("min"), name)} reserved, ${amount(last("total"), name)} had, at most ${amount(limit, name)}`;
  return s(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": said, preserveAspectRatio: "none", style: { "--c": colour } },
    s("title", {}, said),
    [5, 10].map((minutes) => s("line", { x1: x(now - minutes * 60), x2: x(now - minutes * 60), y1: 0, y2: HEIGHT, class: "grid" })),
    s("path", { d: area(points("total"), x, y, now), class: "had" }),
    s("path", { d: area(points("used"), x, y, now), class: "use" }),
    s("path", { d: steps(points("min"), x, y, now), class: "reserved" }),
    limit !== undefined && limit !== null && s("path", { d: `M0 ${y(limit)}H${WIDTH}`, class: "most" }),
  );
}

function steps(points, x, y, now) {
  if (!points.length) return "";
  return `M${x(points[0][0])} ${y(points[0][1])}${points.slice(1).map(([at, value]) => `H${x(at)}V${y(value)}`).join("")}H${x(now)}`;
}

function area(points, x, y, now) {
  if (!points.length) return "";
  return `${steps(points, x, y, now)}V${HEIGHT}H${x(points[0][0])}Z`;
}
