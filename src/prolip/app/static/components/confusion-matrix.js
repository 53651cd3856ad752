// Rows are labels, columns what the model says about pictures that it was not taught with; a number shows its pictures.
import { store } from "../store.js";
import { h, percent, style } from "../ui.js";
import { openImages } from "./image-dialog.js";

style(`
confusion-matrix { display: block; }
confusion-matrix .scroll { overflow-x: auto; padding: 3px; }
confusion-matrix table { border-collapse: separate; border-spacing: 3px; font-size: .86rem; }
confusion-matrix th { font-weight: 500; color: var(--muted); max-width: 84px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; padding: 2px 4px; }
confusion-matrix th[scope="col"] { max-width: 52px; font-size: .76rem; }
confusion-matrix th[scope="row"] { text-align: right; color: var(--text); }
confusion-matrix td { padding: 0; min-width: 40px; width: 52px; height: 38px; text-align: center; border-radius: 6px; background: var(--sunken); color: var(--muted); }
confusion-matrix td button { width: 100%; min-height: 38px; justify-content: center; padding: 0; border-radius: 6px; border-color: transparent; font-weight: 650; background: color-mix(in srgb, var(--shade) calc(14% + 36% * var(--share)), var(--surface)); }
confusion-matrix thead td { background: none; }
confusion-matrix td.right button { --shade: var(--good); }
confusion-matrix td.wrong button { --shade: var(--bad); }
`);

class ConfusionMatrix extends HTMLElement {
  connectedCallback() {
    this.table = h("table", { "aria-label": "What is taken for what" });
    this.note = h("p", { class: "muted small" });
    this.append(h("div", { class: "panel" }, this.note, h("div", { class: "scroll", tabindex: "-1" }, this.table)));
    store.addEventListener("update", () => this.update());
  }

  // Which pictures of one class are taken for another, as things stand.
  pictures(label, answer) {
    return Object.entries(store.figures.held_out ?? {}).filter(([id, [said]]) => said === answer && store.images.get(id)?.label === label).map(([id]) => id);
  }

  update() {
    const ids = store.classIds().filter((id) => store.figures.classes[id]?.accuracy !== undefined);
    const judged = Object.keys(store.figures.held_out ?? {}).length;
    this.table.hidden = !judged;
    this.note.textContent = judged ? "Rows: your label. Columns: the answer about pictures held out. A number shows its pictures." : "With two pictures of each class, this shows which are mixed up.";
    const names = JSON.stringify(ids.map((id) => store.name(id)));
    if (!judged || (this.figures === store.figures && this.names === names)) return;
    Object.assign(this, { figures: store.figures, names });
    const head = h("tr", {}, h("td"), ids.map((id) => h("th", { scope: "col", title: store.name(id) }, store.name(id))));
    this.table.replaceChildren(h("thead", {}, head), h("tbody", {}, ids.map((label) => this.line(label, ids))));
  }

  line(label, ids) {
    const counts = ids.map((answer) => this.pictures(label, answer).length);
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    const cells = ids.map((answer, k) => {
      if (!counts[k]) return h("td", {}, "·");
      const title = () => (label === answer ? `${store.name(label)}, taken for it` : `${store.name(label)}, taken for ${store.name(answer)}`);
      const button = h("button", { type: "button", "aria-label": `${counts[k]} of ${total}: ${title()} (${percent(counts[k] / total)})`, onclick: () => openImages(title, () => this.pictures(label, answer)) }, String(counts[k]));
      button.style.setProperty("--share", counts[k] / total);
      return h("td", { class: label === answer ? "right" : "wrong" }, button);
    });
    return h("tr", {}, h("th", { scope: "row", title: store.name(label) }, store.name(label)), cells);
  }
}
customElements.define("confusion-matrix", ConfusionMatrix);
