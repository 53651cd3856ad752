// Helpers for components: their style, lists and messages.
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

// Show a short message, which screen readers read too.
export function toast(message, kind = "") {
  document.dispatchEvent(new CustomEvent("toast", { detail: { message, kind } }));
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
