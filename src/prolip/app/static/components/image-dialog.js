// Images of a class, of a cell of the confusion matrix, or of a group: look at, select, move or remove them.
import { actions, largeUrl, store } from "../store.js";
import { h, percent, plural, reconcile, style } from "../ui.js";
import { Selection } from "./selection.js";
import { describeTile, tile } from "./image-tile.js";

style(`
image-dialog dialog {
  border: 1px solid var(--line); border-radius: 14px; background: var(--surface); color: var(--text);
  width: min(980px, calc(100vw - 24px)); max-height: calc(100vh - 32px); padding: 0;
}
image-dialog dialog::backdrop { background: #000a; }
image-dialog .head, image-dialog .foot {
  display: flex; flex-wrap: wrap; gap: 8px; align-items: center; padding: 12px 16px;
}
image-dialog h2 { margin: 0; flex: 1 1 auto; overflow-wrap: anywhere; }
image-dialog .body {
  display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 14px; padding: 0 16px;
}
image-dialog .scroll { overflow: auto; max-height: 58vh; padding: 4px; }
image-dialog .large { margin: 0; }
image-dialog .large img {
  width: 100%; max-height: 50vh; object-fit: contain; background: var(--sunken); border-radius: 10px;
}
image-dialog figcaption { font-size: .9rem; padding-top: 6px; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  image-dialog .body { grid-template-columns: 1fr; }
  image-dialog .large { order: -1; }
  image-dialog .large img { max-height: 30vh; }
  image-dialog .scroll { max-height: 34vh; }
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
    this.move = h("select", {
      id: "move-to",
      "aria-label": "Move the selected images to",
      onchange: () => this.moveTo(),
    });
    this.count = h("span", { class: "small muted grow", role: "status" });
    const remove = h(
      "button",
      { type: "button", onclick: () => actions.remove(this.selection.selected()) },
      "Remove",
    );
    const close = h("button", { type: "button", onclick: () => this.dialog.close() }, "Close");
    this.dialog = h(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      h("div", { class: "head" }, this.heading, close),
      h(
        "div",
        { class: "body" },
        h("div", { class: "scroll" }, this.grid),
        h("figure", { class: "large" }, this.image, this.caption),
      ),
      h("div", { class: "foot" }, this.count, this.move, remove),
    );
    this.selection = new Selection(this.grid, () => this.update());
    this.append(this.dialog);
    store.addEventListener("update", () => this.dialog.open && this.update());
  }

  open(title, images, first) {
    Object.assign(this, { titled: title, listed: images });
    this.selection.set(first ? [first] : images().slice(0, 1));
    this.update();
    this.dialog.showModal();
    this.grid.querySelector("[tabindex='0']")?.focus();
  }

  moveTo() {
    const label = this.move.value;
    this.move.value = "";
    if (label) actions.label(this.selection.selected(), label === "none" ? null : label);
  }

  update() {
    const images = this.listed().filter((id) => store.images.has(id));
    if (!images.length) return this.dialog.close();
    this.heading.textContent = `${this.titled()} (${images.length})`;
    const focused = this.grid.contains(document.activeElement);
    reconcile(
      this.grid,
      images,
      (id) => tile(id, (event) => this.selection.click(id, event), "option"),
      describeTile,
    );
    this.selection.update(images, focused);
    const chosen = this.selection.selected();
    this.count.textContent = `${plural(chosen.length, "image")} selected; Shift or Ctrl selects several`;
    const classes = store.classIds().map((id) => h("option", { value: id }, store.name(id)));
    this.move.replaceChildren(
      h("option", { value: "" }, "Move to …"),
      ...classes,
      h("option", { value: "none" }, "no class"),
    );
    this.showLarge(this.selection.current());
  }

  showLarge(id) {
    const row = store.images.get(id);
    if (!row) return;
    if (this.image.dataset.key !== id)
      Object.assign(this.image, { src: largeUrl(id), alt: row.name }).dataset.key = id;
    const predicted = store.figures.held_out?.[id];
    const lines = [row.name, row.label === null ? "no class" : `labelled ${store.name(row.label)}`];
    if (predicted) lines.push(`held-out prediction: ${store.name(predicted[0])}, ${percent(predicted[1])}`);
    if (store.bad[id]) lines.push(`cannot be read: ${store.bad[id]}`);
    this.caption.textContent = lines.join(" · ");
  }
}
customElements.define("image-dialog", ImageDialog);

// Show images: functions that return a title and the ids as the project changes, and which to select first.
export function openImages(title, images, first = null) {
  document.querySelector("image-dialog").open(title, images, first);
}
