// A class: its name, its images, its accuracy, and the words that the model reads for it.
import { chooser, dropTarget, upload } from "../files.js";
import { actions, store } from "../store.js";
import { button, findImages, h, percent, plural, reconcile, style, toast } from "../ui.js";
import { openImages } from "./image-dialog.js";
import { describeTile, tile } from "./image-tile.js";
import "./web-cam.js";

style(`
class-card {
  display: flex; flex-direction: column; gap: 10px; background: var(--surface);
  border: 1px solid var(--line); border-radius: var(--radius); padding: 12px; min-width: 0;
}
class-card.over { border-color: var(--accent); box-shadow: 0 0 0 3px var(--tint); background: var(--tint); }
class-card .head { display: flex; align-items: center; gap: 6px; }
class-card .name {
  font-weight: 650; border-color: transparent; padding-left: 6px; background: none; display: block;
  resize: none; overflow: hidden; overflow-wrap: anywhere; width: 100%; color: inherit; font-size: inherit;
}
class-card .name:hover { border-color: var(--line); }
class-card .figure { font-size: 1.25rem; font-weight: 650; letter-spacing: -.01em; line-height: 1; }
class-card .meter { height: 6px; border-radius: 3px; background: var(--sunken); overflow: hidden; }
class-card .meter div {
  height: 100%; background: var(--accent); border-radius: 3px; transition: width .25s;
}
class-card .tiles { grid-template-columns: repeat(auto-fill, minmax(76px, 1fr)); }
class-card .add { display: flex; flex-wrap: wrap; gap: 6px; }
class-card .add button { flex: 1 1 auto; justify-content: center; padding: 5px 6px; }
class-card .more { aspect-ratio: 1; justify-content: center; padding: 0; min-height: 0; }
class-card .empty {
  border: 2px dashed var(--line); border-radius: 10px; padding: 22px 10px; text-align: center;
  color: var(--muted); font-size: .9rem;
}
class-card details { font-size: .88rem; }
class-card summary { cursor: pointer; color: var(--muted); padding: 4px 0; }
class-card .stack { display: grid; gap: 8px; padding-top: 6px; }
`);

const SHOWN = 11;
const EXAMPLES = 50; // newest images of a class that a search for more of them uses
const BURST = 250; // milliseconds between images while the camera's button is held

class ClassCard extends HTMLElement {
  connectedCallback() {
    if (this.built) return;
    this.built = true;
    const id = this.dataset.key;
    this.setAttribute("role", "group");
    this.key = h("kbd", { "aria-hidden": "true" });
    this.name = h("textarea", {
      rows: 1,
      class: "name",
      maxlength: "100",
      spellcheck: "false",
      "aria-label": "Name of the class",
      onchange: () => this.rename(),
      oninput: () => this.fitName(),
      onkeydown: (event) => event.key === "Enter" && (event.preventDefault(), this.name.blur()),
    });
    this.figure = h("span", { class: "figure number", title: "accuracy, from held-out images" });
    this.fill = h("div");
    this.meter = h("div", { class: "meter", "aria-hidden": "true" }, this.fill);
    this.count = h("div", { class: "small muted", "data-count": "" });
    this.tiles = h("div", { class: "tiles" });
    this.empty = h("div", { class: "empty" }, "Drop photos or a folder here, or paste");
    this.camera = h("div", { class: "stack", hidden: true });
    this.find = button("Find", () => this.findMore(), { title: "Search the images without a class" });
    this.append(
      h("div", { class: "head" }, this.key, h("div", { class: "grow" }, this.name), this.figure),
      this.meter,
      this.count,
      this.empty,
      this.tiles,
      this.camera,
      h(
        "div",
        { class: "add" },
        chooser("Photos", (files) => upload(files, id)),
        chooser("Folder", (files) => upload(files, id), { folder: true }),
        button("Camera", () => this.toggleCamera()),
        this.find,
      ),
      this.more(),
    );
    dropTarget(
      this,
      (files) => upload(files, id),
      (images) => actions.label(images, id),
    );
    new ResizeObserver(() => this.fitName()).observe(this);
  }

  // A name is shown in full, on as many lines as it needs.
  fitName() {
    this.name.style.height = "auto";
    this.name.style.height = `${this.name.scrollHeight + 2}px`;
  }

  // Words, removing: seldom needed, so collapsed.
  more() {
    const id = this.dataset.key;
    this.words = h("input", {
      type: "text",
      maxlength: "300",
      onchange: () => actions.editClass(id, { text: this.words.value }),
    });
    this.reads = h("div", { class: "small muted" });
    const label = h("label", { class: "small" }, "In other words (what the model reads)", this.words);
    const remove = button("Remove class", () => this.removeClass());
    return h(
      "details",
      {},
      h("summary", {}, "Words, remove"),
      h("div", { class: "stack" }, label, this.reads, remove),
    );
  }

  findMore() {
    const id = this.dataset.key;
    const { name, text } = store.classes.get(id);
    findImages({ words: text || name, like: store.members(id).slice(-EXAMPLES), label: id });
  }

  async removeClass() {
    const name = store.name(this.dataset.key);
    const done = await actions.removeClass(this.dataset.key);
    if (done) toast(`Removed ${name}; ${plural(done.images, "image")} of it now without a class`, "", true);
  }

  async rename() {
    const wanted = this.name.value;
    if (!(await actions.editClass(this.dataset.key, { name: wanted })))
      this.name.value = store.name(this.dataset.key);
  }

  update() {
    const id = this.dataset.key;
    const row = store.classes.get(id);
    if (!row) return;
    const accuracy = store.figures.classes[id];
    const members = store.members(id);
    const place = store.classIds().indexOf(id) + 1;
    this.setAttribute("aria-label", `Class ${row.name}`);
    this.key.textContent = place;
    this.key.hidden = place > 9;
    if (document.activeElement !== this.name && this.name.value !== row.name) {
      this.name.value = row.name;
      this.fitName();
    }
    const measured = typeof accuracy === "number";
    this.figure.textContent = measured && !store.figures.too_few ? percent(accuracy) : "";
    this.fill.style.width = `${100 * (accuracy ?? 0)}%`;
    this.meter.hidden = !this.figure.textContent;
    this.count.replaceChildren(...this.counted(members, measured));
    this.empty.hidden = members.length > 0;
    this.find.hidden = !store.unlabelled;
    this.drawTiles(members);
    if (document.activeElement !== this.words) this.words.value = row.text;
    const words = row.text.replace(/^(an?|the) /i, "") || row.name;
    const prompt = store.about.templates[0].replace("{}", words);
    const { accuracy: all, too_few, zero_shot_accuracy: zero } = store.figures;
    this.reads.textContent =
      `The model reads “${prompt}”. ` +
      (zero === null || zero === undefined || too_few
        ? ""
        : `The words of all classes alone (zero-shot) get ${percent(zero)} of all held-out images right, ` +
          `words and images together ${percent(all)}.`);
  }

  // The number of images, and of those that are misclassified; and whether that is better than before.
  counted(members, measured) {
    if (!members.length) return ["No images yet"];
    const of = (name) => members.filter((image) => store.images.get(image)[name]).length;
    const parts = [plural(members.length, "image")];
    const [tests, machine] = [of("test"), of("machine")];
    if (tests) parts.push(` (${tests} for testing)`);
    if (machine) parts.push(` (${machine} labelled by the model)`);
    if (store.figures.negatives?.includes(this.dataset.key))
      return [...parts, " of none of the classes: they teach what “none of these” is"];
    const training = members.length - tests - machine;
    if (!measured)
      return [...parts, store.figures.ready && training < 2 ? ": one more, and it can be measured" : ""];
    const wrong = members.filter((image) => store.mistake(image)).length;
    parts.push(wrong ? `, ${wrong} misclassified` : ", all correct");
    const flips = members.map((image) => store.flips.get(image)).filter(Boolean);
    const by = flips.reduce((sum, [was, is]) => sum + is - was, 0);
    if (by)
      parts.push(" ", h("span", { class: by > 0 ? "good" : "bad" }, `${by > 0 ? "+" : "−"}${Math.abs(by)}`));
    return parts;
  }

  // Label errors first, then other wrong predictions, then the newest images.
  drawTiles(members) {
    const id = this.dataset.key;
    const rank = (image) => (store.suggestion(image) ? 0 : store.mistake(image) ? 1 : 2);
    const ordered = [...members].reverse().sort((a, b) => rank(a) - rank(b));
    const shown = ordered.length > SHOWN + 1 ? ordered.slice(0, SHOWN) : ordered;
    const open = (image) =>
      openImages(
        () => store.name(id),
        () => store.members(id),
        image,
      );
    const keys = ordered.length > shown.length ? [...shown, "more"] : shown;
    reconcile(
      this.tiles,
      keys,
      (image) =>
        image === "more" ? button("", () => open(null), { class: "more" }) : tile(image, () => open(image)),
      (element, image) => {
        if (image !== "more") return describeTile(element, image);
        element.textContent = `+${ordered.length - shown.length}`;
        element.setAttribute("aria-label", `Show all ${ordered.length} images of ${store.name(id)}`);
      },
    );
  }

  async toggleCamera() {
    if (!this.camera.hidden) {
      this.camera.hidden = true;
      return this.camera.replaceChildren();
    }
    const cam = h("web-cam");
    const take = async () => {
      const file = await cam.frame();
      if (file) upload([file], this.dataset.key);
    };
    let burst;
    const hold = () => {
      clearInterval(burst);
      take();
      burst = setInterval(take, BURST);
    };
    const release = () => clearInterval(burst);
    const shoot = button("Take image (hold for several)", () => {}, {
      class: "primary",
      onpointerdown: hold,
      onpointerup: release,
      onpointerleave: release,
      onkeydown: (event) => (event.key === "Enter" || event.key === " ") && !event.repeat && take(),
    });
    this.camera.replaceChildren(cam, shoot);
    this.camera.hidden = false;
    try {
      await cam.start();
      shoot.focus();
    } catch (error) {
      this.camera.hidden = true;
      toast(`No camera: ${error.message}`, "bad");
    }
  }
}
customElements.define("class-card", ClassCard);
