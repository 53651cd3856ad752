// An image of the project as a button, described by its file name, its class, and what may be wrong with it. It
// can be dragged to another class, with all that are selected beside it.
import { imageUrl, store } from "../store.js";
import { DRAGGED, button, h } from "../ui.js";

export function tile(id, onclick, role) {
  const image = h("img", {
    src: imageUrl(id),
    alt: "",
    loading: "lazy",
    decoding: "async",
    draggable: "false",
  });
  return button(image, onclick, {
    class: "tile",
    role,
    draggable: "true",
    ondragstart: (event) => {
      const selected = [...event.currentTarget.parentElement.querySelectorAll("[aria-selected=true]")];
      const ids = selected.map((element) => element.dataset.key);
      event.dataTransfer.setData(DRAGGED, JSON.stringify(ids.includes(id) ? ids : [id]));
      event.dataTransfer.effectAllowed = "move";
    },
  });
}

export function describeTile(element, id) {
  const row = store.images.get(id);
  if (!row) return;
  const suggestion = store.suggestion(id);
  const mistake = store.mistake(id);
  const words = [row.name, row.label === null ? "no class" : store.name(row.label)];
  if (row.test) words.push("only for testing");
  if (row.machine) words.push("labelled by the model");
  if (mistake) words.push(`misclassified as ${store.name(mistake)}`);
  if (suggestion) words.push(`probably ${store.name(suggestion)}`);
  if (store.bad[id]) words.push(`cannot be read: ${store.bad[id]}`);
  element.classList.toggle("unreadable", Boolean(store.bad[id]));
  element.dataset.mark = row.test ? "test" : row.machine ? "by model" : "";
  const doubt = suggestion ? "? " : "";
  element.dataset.mistake = mistake || suggestion ? `${doubt}→ ${store.name(suggestion ?? mistake)}` : "";
  element.setAttribute("aria-label", words.join(", "));
  element.title = words.join("\n");
}
