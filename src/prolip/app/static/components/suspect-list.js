// Labels that may be wrong: the model, asked about a picture that it was not taught with, says another class.
import { actions, imageUrl, store } from "../store.js";
import { h, percent, reconcile, style } from "../ui.js";
import { openPictures } from "./picture-dialog.js";

style(`
suspect-list { display: block; }
suspect-list .suspects { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(330px, 100%), 1fr)); gap: 10px; }
suspect-list .suspect { display: grid; grid-template-columns: 84px minmax(0, 1fr); gap: 12px; align-items: center; padding: 10px; }
suspect-list .suspect .row { margin-top: 8px; }
suspect-list p { overflow-wrap: anywhere; }
`);

const SHOWN = 9;

class SuspectList extends HTMLElement {
  connectedCallback() {
    this.heading = h("h3");
    this.list = h("div", { class: "suspects" });
    this.append(this.heading, this.list);
    store.addEventListener("update", () => this.update());
  }

  update() {
    const { suspects = [], answers = {} } = store.figures;
    const open = suspects.filter((id) => {
      const row = store.images.get(id);
      return row && row.label !== null && !row.checked && answers[id] && answers[id][0] !== row.label;
    });
    this.hidden = !open.length;
    this.heading.textContent = `Is the label right? (${open.length})`;
    reconcile(this.list, open.slice(0, SHOWN), (id) => this.make(id), (element, id) => this.describe(element, id, answers[id]));
  }

  make(id) {
    const look = h("button", { type: "button", class: "tile", onclick: () => openPictures(() => "Is the label right?", () => [id], id) }, h("img", { src: imageUrl(id), alt: "", draggable: "false" }));
    const move = h("button", { type: "button", class: "primary", "data-move": "", onclick: () => actions.label([id], store.figures.answers[id][0]) });
    const keep = h("button", { type: "button", onclick: () => actions.label([id], store.images.get(id).label) });
    return h("div", { class: "panel suspect" }, look, h("div", {}, h("p", { class: "small" }), h("div", { class: "row" }, move, keep)));
  }

  describe(element, id, [answer, probability, own]) {
    const row = store.images.get(id);
    const [label, other] = [store.name(row.label), store.name(answer)];
    const [look, text] = element.children;
    look.setAttribute("aria-label", `Look at ${row.name}`);
    text.firstChild.textContent = `Labelled ${label} (${percent(own)}), looks like ${other} (${percent(probability)}).`;
    const [move, keep] = text.lastChild.children;
    move.textContent = `Move to ${other}`;
    keep.textContent = `It is ${label}`;
  }
}
customElements.define("suspect-list", SuspectList);
