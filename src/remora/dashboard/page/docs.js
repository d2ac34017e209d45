// The REST API as its OpenAPI describes it, with a form to try each call. Needs nothing but this server.

import { add, h, replace } from "./dom.js";

document.documentElement.dataset.theme = localStorage.getItem("remora-theme") ?? "auto";
replace(
  document.getElementById("header"),
  h("a", { class: "brand", href: "/" }, h("img", { src: "/page/icon.svg", alt: "", width: 26, height: 26 }), h("span", {}, "Remora")),
  h("nav", { "aria-label": "Pages" }, h("a", { href: "/" }, "Page"), h("a", { href: "/docs", "aria-current": "page" }, "REST API"), h("a", { href: "/openapi.json" }, "openapi.json")),
);

const spec = await (await fetch("/openapi.json")).json();
const sections = new Map();
for (const [path, methods] of Object.entries(spec.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const tag = operation.tags?.[0] ?? "other";
    if (!sections.has(tag)) sections.set(tag, []);
    sections.get(tag).push({ path, method, operation });
  }
}
replace(
  document.getElementById("main"),
  h("h1", {}, `${spec.info.title} ${spec.info.version}: REST API`),
  spec.info.description.split("\n\n").map((each) => h("p", {}, each)),
  [...sections].map(([tag, operations]) => h("section", {}, h("h2", {}, tag), operations.map(show))),
);

function show({ path, method, operation }) {
  const schema = operation.requestBody?.content?.["application/json"]?.schema;
  return h(
    "details",
    { class: "operation" },
    h("summary", {}, h("code", { class: `method ${method}` }, method.toUpperCase()), h("code", {}, path), h("span", {}, operation.summary)),
    h("p", {}, operation.description),
    operation.parameters?.length > 0 &&
      h(
        "table",
        { class: "rows" },
        h("thead", {}, h("tr", {}, ["Name", "In", "What"].map((each) => h("th", { scope: "col" }, each)))),
        h("tbody", {}, operation.parameters.map((each) => h("tr", {}, h("td", {}, h("code", {}, each.name)), h("td", {}, each.in), h("td", {}, each.description ?? "")))),
      ),
    schema && [h("h3", {}, "Body"), h("pre", {}, JSON.stringify(resolve(schema), null, 2))],
    h("h3", {}, "Answers"),
    h("ul", {}, Object.entries(operation.responses).map(([status, answer]) => h("li", {}, h("code", {}, status), ` ${answer.description}`))),
    path === "/stream" ? null : trial(path, method, operation, schema),
  );
}

function resolve(schema, depth = 0) {
  if (schema?.$ref && depth < 5) return resolve(spec.components.schemas[schema.$ref.split("/").at(-1)], depth + 1);
  return schema;
}

function trial(path, method, operation, schema) {
  const inputs = (operation.parameters ?? []).map((each) => [each, h("input", { id: `${method}${path}${each.name}`, autocomplete: "off", required: each.required })]);
  const example = resolve(schema)?.examples?.[0] ?? {};
  const body = schema && h("textarea", { id: `${method}${path}-body`, rows: 3, spellcheck: "false" }, JSON.stringify(example));
  const result = h("pre", { "aria-live": "polite", tabindex: 0, hidden: true });
  const run = async (event) => {
    event.preventDefault();
    let url = path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [each, input] of inputs) {
      if (!input.value) continue;
      if (each.in === "path") url = url.replace(`{${each.name}}`, encodeURIComponent(input.value));
      else if (each.in === "query") query.set(each.name, input.value);
      else headers[each.name] = input.value;
    }
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(query.size ? `${url}?${query}` : url, { method: method.toUpperCase(), headers, body: body?.value });
    const text = await answer.text();
    let shown = text;
    try {
      shown = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // It is no JSON: shown as it is.
    }
    result.hidden = false;
    result.textContent = `${answer.status}\n${shown.slice(0, 20000)}`;
  };
  const form = h("form", { class: "trial", on: { submit: run } });
  for (const [each, input] of inputs) add(form, [h("label", { for: input.id }, each.name), input]);
  if (body) add(form, [h("label", { for: body.id }, "Body"), body]);
  add(form, [h("button", { type: "submit" }, "Try it"), result]);
  return form;
}
