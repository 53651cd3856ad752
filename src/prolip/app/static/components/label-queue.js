// Images without a class, those most worth a label first, or those that a search found. Keys 1 to 9 label them.
import { chooser, dropTarget, upload } from "../files.js";
import { actions, change, store } from "../store.js";
import { button, groupBy, h, percent, plural, reconcile, showAll, style } from "../ui.js";
import { newClassOf } from "./class-grid.js";
import { openImages } from "./image-dialog.js";
import { describeTile, tile } from "./image-tile.js";
import { Selection } from "./selection.js";

style(`
label-queue { display: grid; gap: 12px; }
label-queue .panel { display: grid; gap: 12px; }
label-queue .over { border-color: var(--accent); background: var(--tint); }
label-queue .tiles { grid-template-columns: repeat(auto-fill, minmax(min(132px, 30%), 1fr)); gap: 10px; }
label-queue .tile { aspect-ratio: auto; }
label-queue .tile img { aspect-ratio: 1; height: auto; }
label-queue .prediction {
  display: flex; justify-content: space-between; gap: 6px; font-size: .78rem; padding: 4px 6px;
  background: var(--surface); text-align: left;
}
label-queue .prediction span:first-child { overflow-wrap: anywhere; }
label-queue .prediction .number { white-space: nowrap; }
label-queue .prediction span:empty { display: none; }
label-queue .keys {
  position: sticky; bottom: 0; max-height: 30vh; overflow: auto; padding: 6px 0; background: var(--surface);
}
label-queue .keys button kbd { margin-right: 2px; }
label-queue .keys .primary { order: -1; }
label-queue .keys span { overflow-wrap: anywhere; text-align: left; }
label-queue .machine { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin: 0; }
`);

const SHOWN = 30;
const STEADY = 6; // images at the head that do not move while the user labels
const SURE = 0.9;

class LabelQueue extends HTMLElement {
  connectedCallback() {
    this.about = h("p", { class: "muted small", role: "status" });
    this.words = h("input", {
      type: "search",
      maxlength: "300",
      "aria-label": "Search images without a class",
      placeholder: "Search these images by words",
    });
    this.clear = button("Show all", () => this.showFound(null));
    this.search = h(
      "form",
      {
        class: "row",
        role: "search",
        onsubmit: (event) => (event.preventDefault(), this.find({ words: this.words.value })),
      },
      h("div", { class: "grow" }, this.words),
      h("button", { type: "submit" }, "Search"),
      this.clear,
    );
    this.all = button("", () => this.selection.all());
    this.look = button("Enlarge", () => this.enlarge(this.selection.current()));
    this.like = button("More like this", () => this.find({ like: this.selection.selected() }));
    this.grid = h("div", {
      class: "tiles",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": "Images without a class",
      id: "queue-tiles",
    });
    this.keys = h("div", { class: "row keys", role: "group", "aria-label": "These are" });
    this.sure = button("", () => this.acceptPredictions());
    this.out = button("Remove", () => actions.remove(this.selection.selected()));
    this.fresh = button("New class …", () => newClassOf(this.selection.selected()));
    this.more = showAll(() => this.update());
    this.machine = h("p", { class: "machine small" });
    this.selection = new Selection(this.grid, () => {
      this.used = true;
      this.update();
    });
    const panel = h(
      "div",
      { class: "panel" },
      this.search,
      this.about,
      this.grid,
      this.more,
      this.keys,
      this.machine,
      h(
        "div",
        { class: "row" },
        chooser("Add photos …", (files) => upload(files, null)),
        chooser("Add a folder …", (files) => upload(files, null), { folder: true }),
        this.all,
        this.fresh,
        this.look,
        this.like,
        this.sure,
        this.out,
      ),
    );
    const drop = (files) => {
      document.activeElement?.blur(); // so that the next key is a label
      upload(files, null);
    };
    dropTarget(panel, drop, (images) => actions.label(images, null));
    this.append(panel);
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("find", async ({ detail }) => {
      await this.find(detail);
      this.closest("section").scrollIntoView();
      this.grid.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
    });
    store.addEventListener("update", () => this.update());
  }

  // Search by words, by images, or by both; `label` is the class that is searched for, if it is known.
  async find({ words = "", like = [], label = this.found?.label }) {
    this.about.textContent = "Searching …";
    const found = await change("api/search", { words, like });
    if (!found) return this.update();
    const examples = like.filter((id) => store.images.get(id)?.label === null);
    const rest = found.images.filter((id) => !examples.includes(id));
    const title = words ? `“${words}”` : like.length > 1 ? "these images" : store.images.get(like[0])?.name;
    this.words.value = words;
    this.showFound({ title, label, images: [...examples, ...rest] }, examples);
  }

  // Show the images that a search found, its examples selected; null shows all.
  showFound(found, selected = []) {
    this.found = found;
    this.selection.many = Boolean(found);
    this.selection.set(selected);
    if (!found) this.words.value = "";
    this.update();
  }

  enlarge(id) {
    const shown = this.shown;
    openImages(
      () => "Images without a class",
      () => shown.filter((each) => store.images.get(each)?.label === null),
      id,
    );
  }

  // What a search found, or the server's order with images that were added since; without those labelled since.
  order() {
    const open = new Set(store.members(null));
    if (this.found) return this.found.images.filter((id) => open.has(id));
    const head = (this.used ? (this.shown ?? []) : []).filter((id) => open.has(id)).slice(0, STEADY);
    head.forEach((id) => open.delete(id));
    const known = (store.slow.queue ?? []).filter((id) => open.delete(id));
    return [...head, ...known, ...open];
  }

  update() {
    if (this.found && !store.unlabelled) return this.showFound(null);
    const all = this.order();
    const shown = (this.shown = this.more.of(all, SHOWN));
    if (!this.used && !this.found && shown.length) this.selection.set([shown[0]]);
    const about = this.found
      ? `Images without a class, the nearest to ${this.found.title} first. Click the right ones, then their class.`
      : all.length
        ? `${plural(all.length, "image")} without a class, the most useful first. Press a number to label.`
        : "Drop a folder of unlabelled images here: the most useful come first, and a key labels each.";
    if (this.about.textContent !== about) this.about.textContent = about;
    const focused = this.grid.contains(document.activeElement); // before its tile may be removed
    reconcile(
      this.grid,
      shown,
      (id) => this.tile(id),
      (element, id) => this.describe(element, id),
    );
    this.selection.update(shown, focused);
    this.drawKeys();
    const sure = this.surePredictions();
    this.search.hidden = !store.unlabelled;
    this.clear.hidden = this.all.hidden = !this.found;
    this.all.textContent = `Select all ${shown.length}`;
    this.sure.hidden = !sure.length || Boolean(this.found);
    this.sure.textContent = `Label ${plural(sure.length, "sure prediction")} (${percent(SURE)} or more)`;
    for (const part of [this.keys, this.out, this.look, this.like, this.fresh]) part.hidden = !all.length;
    this.drawMachine();
    const count = this.selection.selected().length;
    this.out.disabled = this.like.disabled = this.fresh.disabled = !count;
    this.like.textContent = count > 1 ? "More like these" : "More like this";
  }

  tile(id) {
    const element = tile(id, (event) => this.selection.click(id, event), "option");
    element.append(h("span", { class: "prediction muted" }));
    element.addEventListener("dblclick", () => this.enlarge(id));
    return element;
  }

  describe(element, id) {
    const predicted = store.figures.predictions?.[id];
    describeTile(element, id);
    const name = !predicted ? "…" : predicted[2] ? "none of these" : store.name(predicted[0]);
    const probability = predicted && !predicted[2] ? percent(predicted[1]) : "";
    element.lastChild.replaceChildren(h("span", {}, name), h("span", { class: "number" }, probability));
    if (!predicted) return;
    element.setAttribute(
      "aria-label",
      `${element.getAttribute("aria-label")}, predicted: ${name} ${probability}`,
    );
  }

  drawKeys() {
    const count = this.selection.selected().length;
    reconcile(
      this.keys,
      store.classIds(),
      (id) => button([h("kbd", { "aria-hidden": "true" }), h("span")], () => this.label(id)),
      (key, id) => {
        const place = store.classIds().indexOf(id) + 1;
        key.firstChild.textContent = place;
        key.firstChild.hidden = place > 9;
        key.lastChild.textContent = count > 1 ? `All ${count} are ${store.name(id)}` : store.name(id);
        key.classList.toggle("primary", this.found?.label === id);
        key.disabled = !count;
      },
    );
  }

  label(id) {
    const images = this.selection.selected();
    if (!images.length) return;
    this.used = true;
    actions.label(images, id);
  }

  surePredictions() {
    return Object.entries(store.figures.predictions ?? {}).filter(
      ([id, [, probability, none]]) => store.images.get(id)?.label === null && probability >= SURE && !none,
    );
  }

  async acceptPredictions() {
    const predicted = new Map(this.surePredictions());
    await this.labelEach([...predicted.keys()], (id) => predicted.get(id)[0], actions.acceptPredictions);
  }

  // Label images class by class; all of it is undone together.
  async labelEach(images, labelOf, make) {
    const group = String(Math.random());
    for (const [label, members] of groupBy(images, labelOf)) await make(members, label, group);
  }

  // Labels that the model gave: one click lists, confirms or removes them.
  drawMachine() {
    const images = store.byMachine();
    this.machine.hidden = !images.length;
    if (this.machine.dataset.count === String(images.length)) return;
    this.machine.dataset.count = images.length;
    this.machine.replaceChildren(
      `${plural(images.length, "label")} by the model: not used for training until you confirm them.`,
      button("Look at them", () =>
        openImages(
          () => "Labelled by the model",
          () => store.byMachine(),
        ),
      ),
      button("They are right", () =>
        this.labelEach(store.byMachine(), (id) => store.images.get(id).label, actions.label),
      ),
      button("Remove these labels", () => actions.label(store.byMachine(), null)),
    );
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !/^[1-9]$/.test(event.key)) return;
    if (event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]")) return;
    const id = store.classIds()[event.key - 1];
    if (id && this.selection.selected().length) {
      event.preventDefault();
      this.label(id);
    }
  }
}
customElements.define("label-queue", LabelQueue);
