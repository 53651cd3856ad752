// Pictures without a class, those most worth a label first: keys 1 to 9, shift chooses several, undo.
import { chosen, dropTarget, upload } from "../files.js";
import { actions, imageUrl, store } from "../store.js";
import { chooser, h, percent, plural, reconcile, style } from "../ui.js";
import { describeTile } from "./image-tile.js";
import { Selection } from "./selection.js";

style(`
label-queue { display: grid; gap: 12px; }
label-queue .panel { display: grid; gap: 12px; }
label-queue .over { border-color: var(--accent); background: var(--tint); }
label-queue .tiles { grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: 10px; }
label-queue .tile { aspect-ratio: auto; }
label-queue .tile img { aspect-ratio: 1; height: auto; }
label-queue .guess { display: block; font-size: .78rem; padding: 4px 6px; text-align: left; background: var(--surface); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
label-queue .keys button kbd { margin-right: 2px; }
label-queue .keys button { max-width: 220px; }
label-queue .keys span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
`);

const SHOWN = 24;
const STEADY = 6; // pictures at the head that stay where they are while one labels: a key means what was looked at
const SURE = 0.9;

class LabelQueue extends HTMLElement {
  connectedCallback() {
    this.about = h("p", { class: "muted small" });
    this.grid = h("div", { class: "tiles", role: "listbox", "aria-multiselectable": "true", "aria-label": "Pictures without a class", id: "queue-tiles" });
    this.keys = h("div", { class: "row keys", role: "group", "aria-label": "These are" });
    this.sure = h("button", { type: "button", onclick: () => this.takeGuesses() });
    this.out = h("button", { type: "button", onclick: () => actions.remove(this.selection.chosen()) }, "Take out");
    this.selection = new Selection(this.grid, () => {
      this.used = true;
      this.update();
    });
    const panel = h("div", { class: "panel" }, this.about, this.grid, this.keys,
      h("div", { class: "row" },
        chooser("Add photos …", (files) => upload(files, null)),
        chooser("Add a folder …", (files) => upload(chosen(files).map(({ file }) => file), null), { folder: true }),
        this.sure, this.out));
    dropTarget(panel, (files) => {
      document.activeElement?.blur(); // so that the next key is a label
      upload(files.map(({ file }) => file), null);
    });
    this.append(panel);
    document.addEventListener("keydown", (event) => this.key(event));
    store.addEventListener("update", () => this.update());
  }

  // In the order of the server, without what was labelled since, and with what came since.
  order() {
    const open = new Set(store.members(null));
    const head = (this.used ? this.shown ?? [] : []).filter((id) => open.has(id)).slice(0, STEADY);
    head.forEach((id) => open.delete(id));
    const known = (store.slow.queue ?? []).filter((id) => open.delete(id));
    return [...head, ...known, ...open];
  }

  update() {
    const all = this.order();
    const shown = (this.shown = all.slice(0, SHOWN));
    if (!this.used && shown.length) this.selection.set([shown[0]]);
    this.about.textContent = all.length
      ? `${plural(all.length, "picture")} without a class. Press a number, or choose several with shift first. Those that would teach most come first.`
      : "Drop a folder of pictures without labels here: those that would teach most come first, and a key labels each.";
    const focused = this.grid.contains(document.activeElement); // asked before its tile may go
    reconcile(this.grid, shown, (id) => this.tile(id), (element, id) => this.describe(element, id));
    this.selection.keep(shown, focused);
    this.drawKeys();
    const sure = this.sureGuesses();
    this.sure.hidden = !sure.length;
    this.sure.textContent = `Label ${plural(sure.length, "sure guess", "sure guesses")} (${percent(SURE)} and more)`;
    this.keys.hidden = this.out.hidden = !all.length;
  }

  tile(id) {
    const image = h("img", { src: imageUrl(id), alt: "", loading: "lazy", draggable: "false" });
    return h("button", { type: "button", class: "tile", role: "option", onclick: (event) => this.selection.click(id, event) }, image, h("span", { class: "guess muted" }));
  }

  describe(element, id) {
    const guess = store.figures.predictions?.[id];
    describeTile(element, id);
    const words = !guess ? "" : guess[2] ? "none of these?" : `${store.name(guess[0])}, ${percent(guess[1])}`;
    element.lastChild.textContent = words || "…";
    if (words) element.setAttribute("aria-label", `${element.getAttribute("aria-label")}, guess: ${words}`);
  }

  drawKeys() {
    const count = this.selection.chosen().length;
    reconcile(this.keys, store.classIds(),
      (id) => h("button", { type: "button", onclick: () => this.label(id) }, h("kbd", { "aria-hidden": "true" }), h("span")),
      (button, id) => {
        const place = store.classIds().indexOf(id) + 1;
        button.firstChild.textContent = place;
        button.firstChild.hidden = place > 9;
        button.lastChild.textContent = count > 1 ? `All ${count} are ${store.name(id)}` : store.name(id);
      });
  }

  label(id) {
    const images = this.selection.chosen();
    if (!images.length) return;
    this.used = true;
    actions.label(images, id);
  }

  sureGuesses() {
    return Object.entries(store.figures.predictions ?? {}).filter(([id, [, probability, none]]) => store.images.get(id)?.label === null && probability >= SURE && !none);
  }

  async takeGuesses() {
    const groups = Map.groupBy ? Map.groupBy(this.sureGuesses(), ([, [label]]) => label) : new Map();
    for (const [label, images] of groups) await actions.label(images.map(([id]) => id), label);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !/^[1-9]$/.test(event.key)) return;
    if (event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]")) return;
    const id = store.classIds()[event.key - 1];
    if (id && this.selection.chosen().length) {
      event.preventDefault();
      this.label(id);
    }
  }
}
customElements.define("label-queue", LabelQueue);
