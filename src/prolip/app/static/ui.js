// Helpers for components: their style, lists and messages.
import { button, h } from "./lib/dom.js";
export * from "./lib/dom.js";

// Add the style of a component, which stands in the component's file.
export function style(css) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

// Make the children of `parent` those of `keys`, in order; elements of known keys stay, with their focus.
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

// Show a short message, which screen readers read too; `canUndo` puts a button beside it.
export function toast(message, kind = "", canUndo = false) {
  document.dispatchEvent(new CustomEvent("toast", { detail: { message, kind, canUndo } }));
}

// Ask for the name of a new class; null if it is cancelled.
export function askForName(title) {
  const input = h("input", { type: "text", maxlength: "100", required: true, "aria-label": title });
  const cancel = button("Cancel", () => dialog.close());
  const form = h(
    "form",
    { method: "dialog", class: "ask" },
    h("h2", {}, title),
    input,
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit", class: "primary", value: "ok" }, "Add class"),
      cancel,
    ),
  );
  const dialog = h("dialog", { "aria-label": title }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) =>
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "ok" ? input.value : null);
    }),
  );
}

// Images that are dragged from one part of the page to another.
export const DRAGGED = "application/x-prolip-images";

// A button that shows all of a list of which only the first are shown.
export function showAll(redraw) {
  const element = button("", () => {
    element.all = !element.all;
    redraw();
  });
  element.of = (keys, shown) => {
    element.hidden = keys.length <= shown;
    element.textContent = element.all ? "Show fewer" : `Show all ${keys.length}`;
    return element.all ? keys : keys.slice(0, shown);
  };
  return element;
}

// Show the images without a class that are nearest to words or to an image, in the label queue.
export function findImages(detail) {
  document.dispatchEvent(new CustomEvent("find", { detail }));
}

// Items in groups by a key, as a Map (Map.groupBy is newer than the browsers that we support).
export function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}
