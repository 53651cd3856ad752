// Label errors: images whose held-out prediction and neighbours agree on another class, as in `prolip check`.
import { actions, store } from "../store.js";
import { button, h, percent, reconcile, showAll, style } from "../ui.js";
import { openImages } from "./image-dialog.js";
import { tile } from "./image-tile.js";

style(`
label-error-list { display: block; }
label-error-list .errors {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(330px, 100%), 1fr)); gap: 10px;
}
label-error-list .error {
  display: grid; grid-template-columns: 128px minmax(0, 1fr); gap: 12px; align-items: center; padding: 10px;
}
label-error-list .error .row { margin-top: 8px; }
label-error-list > button { margin-top: 10px; }
label-error-list p { overflow-wrap: anywhere; }
`);

const SHOWN = 9;

class LabelErrorList extends HTMLElement {
  connectedCallback() {
    this.heading = h("h3");
    this.list = h("div", { class: "errors" });
    this.more = showAll(() => this.update());
    this.append(this.heading, this.list, this.more);
    store.addEventListener("update", () => this.update());
  }

  update() {
    const open = store.labelErrors();
    this.hidden = !open.length;
    this.heading.textContent = `Label errors (${open.length})`;
    reconcile(
      this.list,
      this.more.of(open, SHOWN),
      (id) => this.make(id),
      (element, id) => this.describe(element, id),
    );
  }

  make(id) {
    const look = tile(id, () =>
      openImages(
        () => "Is the label right?",
        () => [id],
        id,
      ),
    );
    const move = button("", () => actions.label([id], store.suggestion(id)), { class: "primary" });
    const confirm = button("", () => actions.label([id], store.images.get(id).label));
    const text = h("div", {}, h("p", { class: "small" }), h("div", { class: "row" }, move, confirm));
    return h("div", { class: "panel error" }, look, text);
  }

  describe(element, id) {
    const row = store.images.get(id);
    const [label, other] = [store.name(row.label), store.name(store.suggestion(id))];
    const [look, text] = element.children;
    const own = store.figures.held_out[id]?.[2];
    look.setAttribute("aria-label", `Look at ${row.name}`);
    const probability = `held-out probability ${percent(own)}`;
    text.firstChild.textContent = `Labelled ${label} (${probability}), probably ${other}.`;
    const [move, confirm] = text.lastChild.children;
    move.textContent = `Move to ${other}`;
    confirm.textContent = `It is ${label}`;
  }
}
customElements.define("label-error-list", LabelErrorList);
