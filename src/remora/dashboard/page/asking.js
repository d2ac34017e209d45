// Asking the REST API, and changing something with it: each change has an idempotency key, a reason, and somebody's name.

import { h } from "./dom.js";

/** Return the answer; throw an Error whose message a person understands. */
export async function ask(method, path, { body, reason = "", key = null } = {}) {
  const headers = { Accept: "application/json", "X-Remora-Page": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const name = localStorage.getItem("remora-name");
  if (name) headers["X-Remora-User"] = name.replace(/[^\x20-\x7e]/g, "?").slice(0, 100);
  const url = reason ? `${path}?reason=${encodeURIComponent(reason)}` : path;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("the dashboard does not answer: it was stopped, or the network is gone");
  }
  if (answer.ok) return answer.json();
  if (answer.status === 401) location.assign("/sign-in");
  const problem = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
  throw new Error(problem.detail);
}

export const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Say something for a moment at the edge of the page. */
export function toast(text, kind = "good") {
  const made = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), kind === "bad" ? 9000 : 4000);
}

/** Show a dialog with a form. `fields` are elements, `run` gets the reason and returns what is said when it went well.
 *  `preview`, where given, returns a promise of what the change would do. */
export function dialog({ title, text = "", fields = [], action, run, preview = null, danger = false }) {
  const opener = document.activeElement;
  const key = newKey();
  const reason = h("input", { id: "reason", maxlength: 500, autocomplete: "off", placeholder: "for the journal" });
  const problem = h("p", { class: "problem", role: "alert" });
  const outcome = h("p", { class: "preview", "aria-live": "polite" });
  const submit = h("button", { class: danger ? "danger" : "primary", type: "submit" }, action);
  const cancel = h("button", { type: "button", on: { click: () => box.close() } }, "Cancel");
  let asked = 0;
  const look = async () => {
    if (!preview) return;
    const mine = ++asked;
    try {
      const said = await preview();
      if (mine === asked) outcome.textContent = said ?? "";
    } catch (error) {
      if (mine === asked) outcome.textContent = error.message;
    }
  };
  const form = h(
    "form",
    {
      method: "dialog",
      on: {
        input: look,
        submit: async (event) => {
          event.preventDefault();
          problem.textContent = "";
          submit.disabled = true;
          submit.setAttribute("aria-busy", "true");
          try {
            toast(await run({ reason: reason.value, key }));
            box.close();
          } catch (error) {
            problem.textContent = error.message;
          } finally {
            submit.disabled = false;
            submit.removeAttribute("aria-busy");
          }
        },
      },
    },
    h("h2", { id: "dialog-title" }, title),
    text && h("p", {}, text),
    fields,
    outcome,
    h("label", { for: "reason" }, "Reason (optional)"),
    reason,
    problem,
    h("div", { class: "actions" }, cancel, submit),
  );
  const box = h("dialog", { "aria-labelledby": "dialog-title", class: "dialog" }, form);
  box.addEventListener("close", () => {
    box.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(box);
  box.showModal();
  look();
  return box;
}

/** A labelled input. */
export function field(label, properties = {}) {
  const id = `field-${label.toLowerCase().replace(/\W+/g, "-")}`;
  const input = h("input", { id, autocomplete: "off", spellcheck: "false", ...properties });
  return { input, elements: [h("label", { for: id }, label), input] };
}
