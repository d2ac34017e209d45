// Elements without markup: every text becomes a text node, so that no name of anything is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. Properties: `class`, `on` (listeners), `style` (CSS properties), `data`, and attributes. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Return an element of a drawing. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(element, ...children) {
  const made = document.createDocumentFragment();
  add(made, children);
  element.replaceChildren(made);
}

/** Set a text only where it differs: what does not change costs no layout. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Keep one child for each key, in this order, made and updated by the caller; those that are gone are removed. */
export function keyed(parent, items, key, make, update) {
  const known = parent._keyed ?? (parent._keyed = new Map());
  const wanted = new Set();
  let next = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    wanted.add(id);
    let child = known.get(id);
    if (child === undefined) known.set(id, (child = make(item)));
    update?.(child, item);
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
  for (const [id, child] of known) {
    if (!wanted.has(id)) {
      child.remove();
      known.delete(id);
    }
  }
}

/** Move the focus with the arrow keys among the children of one element; only one of them is in the order of Tab. */
export function roving(container, selector) {
  container.addEventListener("keydown", (event) => {
    const all = [...container.querySelectorAll(selector)];
    const here = all.indexOf(document.activeElement);
    if (here < 0) return;
    const row = perRow(all);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
    const target = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step ? here + step : undefined;
    if (target === undefined || !all[target]) return;
    event.preventDefault();
    for (const each of all) each.tabIndex = -1;
    all[target].tabIndex = 0;
    all[target].focus();
  });
  container.addEventListener("focusin", (event) => {
    if (!event.target.matches?.(selector)) return;
    for (const each of container.querySelectorAll(`${selector}[tabindex="0"]`)) each.tabIndex = -1;
    event.target.tabIndex = 0;
  });
}

function perRow(all) {
  const top = all[0].offsetTop;
  const row = all.findIndex((each) => each.offsetTop !== top);
  return row < 0 ? all.length : row;
}

/** Do something at most once before the next frame. */
export function once(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}
