// Near-duplicates: copies make the accuracy optimistic, and copies in two classes confuse the model.
import { actions, store } from "../store.js";
import { button, h, plural, reconcile, showAll, style } from "../ui.js";
import { openImages } from "./image-dialog.js";
import { tile } from "./image-tile.js";

style(`
duplicate-list { display: block; margin-top: 14px; }
duplicate-list .groups {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(330px, 100%), 1fr)); gap: 10px;
}
duplicate-list > .row { margin-top: 10px; }
duplicate-list .group { display: grid; gap: 8px; padding: 10px; }
duplicate-list .strip { display: flex; gap: 6px; overflow: hidden; }
duplicate-list .strip .tile { width: 96px; flex: none; }
`);

const SHOWN = 6;
const STRIP = 4;

class DuplicateList extends HTMLElement {
  connectedCallback() {
    this.heading = h("h3");
    this.list = h("div", { class: "groups" });
    this.more = showAll(() => this.update());
    const rest = () => [...this.groups.values()].flatMap((ids) => ids.slice(1));
    this.keep = button("Keep only the first of each", () => actions.remove(rest()));
    this.append(this.heading, this.list, h("div", { class: "row" }, this.more, this.keep));
    store.addEventListener("update", () => this.update());
  }

  update() {
    const groups = new Map();
    for (const group of store.slow.duplicates ?? []) {
      const there = group.filter((id) => store.images.has(id));
      if (there.length > 1) groups.set(there.join(" "), there);
    }
    this.groups = groups;
    this.hidden = !groups.size;
    this.keep.hidden = groups.size < 2;
    this.heading.textContent = `Duplicates (${groups.size})`;
    reconcile(
      this.list,
      this.more.of([...groups.keys()], SHOWN),
      (key) => this.make(groups.get(key)),
      (element, key) => this.describe(element, groups.get(key)),
    );
  }

  make(ids) {
    const open = (id) =>
      openImages(
        () => "Duplicates",
        () => ids,
        id,
      );
    const strip = ids.slice(0, STRIP).map((id) => tile(id, () => open(id)));
    strip.forEach((element, i) =>
      element.setAttribute("aria-label", `Look at ${store.images.get(ids[i]).name}`),
    );
    const remove = button("Keep only the first", () => actions.remove(ids.slice(1)));
    return h(
      "div",
      { class: "panel group" },
      h("div", { class: "strip" }, strip),
      h("p", { class: "small" }),
      h(
        "div",
        { class: "row" },
        remove,
        button("Look", () => open(ids[0])),
      ),
    );
  }

  describe(element, ids) {
    const rows = ids.map((id) => store.images.get(id));
    const name = ({ label }) => (label === null ? "no class" : store.name(label));
    const labels = [...new Set(rows.map(name))];
    const files = rows.slice(0, STRIP).map((row) => `${row.name} is in ${name(row)}`);
    element.children[1].textContent =
      labels.length > 1 ? files.join(", ") : `${plural(ids.length, "image")} in ${labels[0]}`;
    element.children[1].classList.toggle("bad", labels.length > 1);
  }
}
customElements.define("duplicate-list", DuplicateList);
