// All classes, and a card that adds classes: by name, or from dropped folders, one class each.
import { chooser, dropTarget, folderOf, testFiles, upload } from "../files.js";
import { actions, store } from "../store.js";
import { askForName, button, groupBy, h, reconcile, style, toast } from "../ui.js";

style(`
class-grid {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(280px, 100%), 1fr)); gap: 14px;
  align-items: start;
}
class-grid .cards { display: contents; }
class-grid .cards:empty + .new { grid-column: 1 / -1; }
class-grid .new {
  display: grid; gap: 10px; border: 2px dashed var(--line); border-radius: var(--radius);
  padding: 14px;
}
class-grid .new.over { border-color: var(--accent); background: var(--tint); }
class-grid .guide { padding: 18px 20px; grid-column: 1 / -1; }
class-grid .guide ol { margin: 6px 0 0; padding-left: 20px; }
class-grid .guide li { margin: 3px 0; }
class-grid .guide .row { margin: 12px 0 10px; }
`);

class ClassGrid extends HTMLElement {
  connectedCallback() {
    this.guide = h(
      "div",
      { class: "panel guide", hidden: true },
      h("h3", {}, "Train a model on your own images"),
      h(
        "ol",
        {},
        h("li", {}, "Add two or more classes: name them below, or drop a folder for each."),
        h(
          "li",
          {},
          "Add a few images to each. Eight are a good start; the model is trained after every change.",
        ),
        h("li", {}, "Try it on an image that it has not seen, and correct what it gets wrong."),
      ),
      h(
        "div",
        { class: "row" },
        button("Add sample photos", actions.addSamples, { class: "primary" }),
        h("span", { class: "muted small" }, "drawn ones, in four classes, to try everything with"),
      ),
      h("p", { class: "muted small" }, "Your images stay on this machine."),
    );
    this.cards = h("div", { class: "cards" });
    this.name = h("input", {
      type: "text",
      id: "new-class",
      maxlength: "100",
      placeholder: "Name of a new class",
      "aria-label": "Name of a new class",
      autocomplete: "off",
    });
    const add = h(
      "form",
      { class: "row", onsubmit: (event) => (event.preventDefault(), this.add()) },
      h("div", { class: "grow" }, this.name),
      h("button", { type: "submit", class: "primary" }, "Add class"),
    );
    const fresh = h(
      "div",
      { class: "new" },
      add,
      h(
        "div",
        { class: "row small muted" },
        h("span", { class: "grow" }, "or drop folders here, or images of the page to make a class of them"),
        chooser("Folders …", (files) => this.takeFolders(files), { folder: true }),
      ),
    );
    dropTarget(
      fresh,
      (files) => this.takeFolders(files),
      (images) => newClassOf(images),
    );
    this.append(this.guide, this.cards, fresh);
    store.addEventListener("update", () => {
      this.guide.hidden = !store.ready || store.classes.size > 0;
      reconcile(
        this.cards,
        store.classIds(),
        (key) => h("class-card", { "data-key": key }),
        (card) => card.update(),
      );
    });
  }

  // The field is cleared for the next name; a rejected name comes back, unless another is being typed.
  async add() {
    const name = this.name.value;
    this.name.value = "";
    this.name.focus();
    if (!(await actions.addClass(name))) this.name.value ||= name;
  }

  // A folder of images becomes a class; a folder of folders several classes. Images below test/ beside train/
  // are kept apart.
  async takeFolders(files) {
    const tests = testFiles(files);
    const groups = groupBy(files.filter(folderOf), folderOf);
    if (!groups.size) return toast("Drop folders here; drop single images on a class.", "bad");
    for (const [name, inside] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
      const known = store.classIds().find((id) => store.name(id) === name);
      const id = known ?? (await actions.addClass(name))?.classes[0];
      if (id) await upload(inside, id, tests);
    }
  }
}
customElements.define("class-grid", ClassGrid);

// Make a class of images of the project; its name is asked for.
export async function newClassOf(images) {
  const name = await askForName(
    `A new class of ${images.length === 1 ? "this image" : `${images.length} images`}`,
  );
  if (name) await actions.addClass(name, images);
}
