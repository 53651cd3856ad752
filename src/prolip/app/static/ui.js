// Small helpers for components: making elements, keeping lists in step, numbers as people read them.

// h("button", {class: "primary", onclick: f}, "text", child): strings become text, never markup.
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A component's own style, in its own file.
export function style(css) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

// Make the children of `parent` those of `keys`, in order; elements of keys that stay are kept, with their focus.
export function reconcile(parent, keys, make, update = () => {}) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = new Set(keys);
  for (const [key, child] of old) if (!wanted.has(key)) child.remove();
  keys.forEach((key, index) => {
    let child = old.get(key);
    if (!child) {
      child = make(key);
      child.dataset.key = key;
    }
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    update(child, key);
  });
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)}\u00a0%`);
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// A short message, read out by screen readers too.
export function toast(message, kind = "") {
  document.dispatchEvent(new CustomEvent("toast", { detail: { message, kind } }));
}

// A button that opens a file chooser.
export function chooser(label, onfiles, { folder = false, accept = "image/*", className = "" } = {}) {
  const input = h("input", { type: "file", multiple: true, hidden: true, accept: folder ? null : accept });
  if (folder) input.webkitdirectory = true;
  input.addEventListener("change", () => {
    onfiles([...input.files]);
    input.value = "";
  });
  const button = h("button", { type: "button", class: className, onclick: () => input.click() }, label);
  return [button, input];
}
