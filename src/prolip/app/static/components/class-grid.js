// All classes, and a card that makes new ones: by a name, or by dropped folders, each of which becomes a class.
import { chosen, dropTarget, upload } from "../files.js";
import { actions, store } from "../store.js";
import { chooser, h, reconcile, style, toast } from "../ui.js";

style(`
class-grid { display: grid; gap: 14px; }
class-grid .cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(270px, 100%), 1fr)); gap: 14px; align-items: start; }
class-grid .new { display: grid; gap: 10px; border: 2px dashed var(--line); border-radius: var(--radius); padding: 14px; }
class-grid .new.over { border-color: var(--accent); background: var(--tint); }
class-grid .guide { padding: 18px 20px; }
class-grid .guide ol { margin: 6px 0 0; padding-left: 20px; }
class-grid .guide li { margin: 3px 0; }
`);

class ClassGrid extends HTMLElement {
  connectedCallback() {
    this.guide = h("div", { class: "panel guide", hidden: true },
      h("h3", {}, "Teach a model to tell your own pictures apart"),
      h("ol", {},
        h("li", {}, "Make two or more classes: name them below, or drop a folder for each."),
        h("li", {}, "Give each a few pictures. Eight are a good start; every change is learned at once."),
        h("li", {}, "Try it on a picture that it has not seen, and mend what it gets wrong.")),
      h("p", { class: "muted small" }, "Your pictures stay on this machine."));
    this.cards = h("div", { class: "cards" });
    this.name = h("input", { type: "text", id: "new-class", maxlength: "100", placeholder: "Name of a new class", "aria-label": "Name of a new class", autocomplete: "off" });
    const add = h("form", { class: "row", onsubmit: (event) => (event.preventDefault(), this.add()) }, h("div", { class: "grow" }, this.name), h("button", { type: "submit", class: "primary" }, "Add class"));
    const fresh = h("div", { class: "new" }, add,
      h("div", { class: "row small muted" }, h("span", { class: "grow" }, "or drop folders here: each becomes a class"), chooser("Folders …", (files) => this.takeFolders(chosen(files)), { folder: true })));
    dropTarget(fresh, (files) => this.takeFolders(files));
    this.append(this.guide, this.cards, fresh);
    store.addEventListener("update", () => {
      this.guide.hidden = !store.ready || store.classes.size > 0;
      reconcile(this.cards, store.classIds(), (key) => Object.assign(h("class-card", { "data-key": key })), (card) => card.update());
    });
  }

  // The field is free for the next name at once; a name that is refused comes back, unless another is being typed.
  async add() {
    const name = this.name.value;
    this.name.value = "";
    this.name.focus();
    if (!(await actions.addClass(name))) this.name.value ||= name;
  }

  // A folder of pictures is a class; a folder of folders is several.
  async takeFolders(files) {
    const groups = new Map();
    for (const { path, file } of files) {
      const name = path.at(-1);
      if (!name) continue;
      groups.set(name, [...(groups.get(name) ?? []), file]);
    }
    if (!groups.size) return toast("Drop folders here; single pictures go onto a class.", "bad");
    for (const [name, inside] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
      const known = store.classIds().find((id) => store.name(id) === name);
      const id = known ?? (await actions.addClass(name))?.classes[0];
      if (id) await upload(inside, id);
    }
  }
}
customElements.define("class-grid", ClassGrid);
