// The confusion matrix of held-out predictions; a cell shows its images.
import { ConfusionMatrix, cellTitle } from "../lib/matrix.js";
import { store } from "../store.js";
import { h } from "../ui.js";
import { openImages } from "./image-dialog.js";

class ConfusionMatrixElement extends HTMLElement {
  connectedCallback() {
    this.matrix = new ConfusionMatrix((row, column) => this.open(this.ids[row], this.ids[column]));
    this.note = h("p", { class: "muted small" });
    this.append(h("div", { class: "panel" }, this.note, this.matrix.element));
    store.addEventListener("update", () => this.update());
  }

  // Images of one class that are predicted as another.
  images(label, predicted) {
    const held_out = Object.entries(store.figures.held_out ?? {});
    const found = held_out.filter(
      ([id, [best]]) => best === predicted && store.images.get(id)?.label === label,
    );
    return found.map(([id]) => id);
  }

  open(label, predicted) {
    const names = [store.name(label), store.name(predicted)];
    openImages(
      () => cellTitle(names, 0, Number(label !== predicted)),
      () => this.images(label, predicted),
    );
  }

  update() {
    const held_out = Object.entries(store.figures.held_out ?? {});
    this.matrix.element.hidden = !held_out.length;
    this.note.textContent = held_out.length
      ? "Rows are your labels, columns held-out predictions. A number shows its images."
      : "With two images of each class, this shows which classes are confused.";
    this.ids = store.classIds().filter((id) => store.figures.classes[id]);
    const names = this.ids.map((id) => store.name(id));
    if (!held_out.length || (this.figures === store.figures && this.names === names.join("\n"))) return;
    Object.assign(this, { figures: store.figures, names: names.join("\n") });
    const place = new Map(this.ids.map((id, k) => [id, k]));
    const counts = new Map();
    for (const [id, [predicted]] of held_out) {
      const [row, column] = [place.get(store.images.get(id)?.label), place.get(predicted)];
      if (row === undefined || column === undefined) continue;
      counts.set(`${row},${column}`, (counts.get(`${row},${column}`) ?? 0) + 1);
    }
    this.matrix.draw(names, counts);
  }
}
customElements.define("confusion-matrix", ConfusionMatrixElement);
