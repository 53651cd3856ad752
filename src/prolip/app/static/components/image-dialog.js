// Images of a class, of a cell of the confusion matrix, or of a group: look at, select, move or remove them.
import { actions, largeUrl, store } from "../store.js";
import { button, findImages, h, percent, plural, reconcile, style } from "../ui.js";
import { Selection } from "./selection.js";
import { newClassOf } from "./class-grid.js";
import { describeTile, tile } from "./image-tile.js";

style(`
image-dialog dialog { width: min(1400px, calc(100vw - 24px)); }
image-dialog .head, image-dialog .foot {
  display: flex; flex-wrap: wrap; gap: 8px; align-items: center; padding: 12px 16px;
}
image-dialog h2 { margin: 0; flex: 1 1 auto; overflow-wrap: anywhere; }
image-dialog .body {
  display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 14px; padding: 0 16px;
}
image-dialog .scroll { overflow: auto; max-height: 70vh; padding: 4px; }
image-dialog .large { margin: 0; }
image-dialog .large button { all: unset; display: block; width: 100%; cursor: zoom-in; border-radius: 10px; }
image-dialog .large button:focus-visible { outline: 3px solid var(--accent); }
image-dialog .large img {
  display: block; width: 100%; height: 62vh; object-fit: contain; background: var(--sunken);
  border-radius: 10px;
}
image-dialog :is(.single, .whole) .body { grid-template-columns: minmax(0, 1fr); }
image-dialog :is(.single, .whole) .scroll { display: none; }
image-dialog .whole .large img { height: 76vh; }
image-dialog .whole .large button { cursor: zoom-out; }
image-dialog figcaption { font-size: .9rem; padding-top: 6px; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  image-dialog .body { grid-template-columns: 1fr; }
  image-dialog .large { order: -1; }
  image-dialog .large img { height: 38vh; }
  image-dialog .whole .large img { height: 56vh; }
  image-dialog .scroll { max-height: 26vh; }
}
`);

class ImageDialog extends HTMLElement {
  connectedCallback() {
    this.heading = h("h2", { id: "dialog-title" });
    this.grid = h("div", {
      class: "tiles",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-labelledby": "dialog-title",
    });
    this.image = h("img", { alt: "" });
    this.caption = h("figcaption");
    this.zoom = button(this.image, () => this.enlarge());
    this.move = h("select", {
      id: "move-to",
      "aria-label": "Move the selected images to",
      onchange: () => this.moveTo(),
    });
    this.count = h("span", { class: "small muted grow", role: "status" });
    const remove = button("Remove", () => actions.remove(this.selection.selected()));
    this.like = button("More like this", () => this.findAlike());
    const close = button("Close", () => this.dialog.close());
    this.dialog = h(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      h("div", { class: "head" }, this.heading, close),
      h(
        "div",
        { class: "body" },
        h("div", { class: "scroll" }, this.grid),
        h("figure", { class: "large" }, this.zoom, this.caption),
      ),
      h("div", { class: "foot" }, this.count, this.like, this.move, remove),
    );
    this.selection = new Selection(this.grid, () => this.update());
    this.append(this.dialog);
    store.addEventListener("update", () => this.dialog.open && this.update());
  }

  open(title, images, first) {
    Object.assign(this, { titled: title, listed: images });
    this.selection.set(first ? [first] : images().slice(0, 1));
    this.enlarge(false);
    this.update();
    this.dialog.showModal();
    this.grid.querySelector("[tabindex='0']")?.focus();
  }

  // Show the image alone, as large as the window allows, or the others beside it again.
  enlarge(whole = !this.dialog.classList.contains("whole")) {
    this.dialog.classList.toggle("whole", whole);
    this.zoom.setAttribute("aria-label", whole ? "Show the other images" : "Enlarge");
  }

  findAlike() {
    this.dialog.close();
    findImages({ like: this.selection.selected() });
  }

  moveTo() {
    const label = this.move.value;
    this.move.value = "";
    if (label === "new") newClassOf(this.selection.selected());
    else if (label) actions.label(this.selection.selected(), label === "none" ? null : label);
  }

  update() {
    const images = this.listed().filter((id) => store.images.has(id));
    if (!images.length) return this.dialog.close();
    this.heading.textContent = `${this.titled()} (${images.length})`;
    this.dialog.classList.toggle("single", images.length === 1);
    this.like.hidden = !store.unlabelled;
    const focused = this.grid.contains(document.activeElement);
    reconcile(
      this.grid,
      images,
      (id) => tile(id, (event) => this.selection.click(id, event), "option"),
      describeTile,
    );
    this.selection.update(images, focused);
    const chosen = this.selection.selected();
    this.count.textContent =
      images.length > 1 ? `${plural(chosen.length, "image")} selected; Shift or Ctrl selects several` : "";
    const classes = store.classIds().map((id) => h("option", { value: id }, store.name(id)));
    this.move.replaceChildren(
      h("option", { value: "" }, "Move to …"),
      ...classes,
      h("option", { value: "new" }, "a new class …"),
      h("option", { value: "none" }, "no class"),
    );
    this.showLarge(this.selection.current());
  }

  showLarge(id) {
    const row = store.images.get(id);
    if (!row) return;
    if (this.image.dataset.key !== id)
      Object.assign(this.image, { src: largeUrl(id), alt: row.name }).dataset.key = id;
    const { held_out, test } = store.figures;
    const predicted = held_out?.[id] ?? test?.predictions[id];
    const lines = [row.name, row.label === null ? "no class" : `labelled ${store.name(row.label)}`];
    if (row.test) lines.push("only for testing");
    if (row.machine) lines.push("labelled by the model");
    if (predicted)
      lines.push(
        `${row.test ? "" : "held-out "}prediction: ${store.name(predicted[0])}, ${percent(predicted[1])}`,
      );
    if (store.bad[id]) lines.push(`cannot be read: ${store.bad[id]}`);
    this.caption.textContent = lines.join(" · ");
  }
}
customElements.define("image-dialog", ImageDialog);

// Show images: functions that return a title and the ids as the project changes, and which to select first.
export function openImages(title, images, first = null) {
  document.querySelector("image-dialog").open(title, images, first);
}
