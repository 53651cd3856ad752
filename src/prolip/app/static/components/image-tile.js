// An image of the project as a button, described by its file name, its class, and what may be wrong with it.
import { imageUrl, store } from "../store.js";
import { button, h } from "../ui.js";

export function tile(id, onclick, role) {
  const image = h("img", {
    src: imageUrl(id),
    alt: "",
    loading: "lazy",
    decoding: "async",
    draggable: "false",
  });
  return button(image, onclick, { class: "tile", role });
}

export function describeTile(element, id) {
  const row = store.images.get(id);
  if (!row) return;
  const suggestion = store.suggestion(id);
  const words = [row.name, row.label === null ? "no class" : store.name(row.label)];
  if (suggestion) words.push(`probably ${store.name(suggestion)}`);
  if (store.bad[id]) words.push(`cannot be read: ${store.bad[id]}`);
  element.classList.toggle("wrong", Boolean(suggestion));
  element.classList.toggle("unreadable", Boolean(store.bad[id]));
  element.setAttribute("aria-label", words.join(", "));
  element.title = words.join("\n");
}
