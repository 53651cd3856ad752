// Try the model on an image or the camera: its prediction, with calibrated probabilities.
import { chooser, dropTarget, upload } from "../files.js";
import { call, store } from "../store.js";
import { button, h, percent, reconcile, style, toast } from "../ui.js";
import "./web-cam.js";

style(`
try-pane { display: block; }
try-pane .panel { display: grid; gap: 12px; }
try-pane .over { border-color: var(--accent); background: var(--tint); }
try-pane .view {
  border-radius: 10px; overflow: hidden; background: var(--sunken); min-height: 150px; display: grid;
  place-items: center; text-align: center; color: var(--muted); font-size: .92rem;
}
try-pane .view img { width: 100%; max-height: 280px; object-fit: contain; display: block; }
try-pane .view p { padding: 0 18px; margin: 0; }
try-pane .verdict { font-size: 1.2rem; font-weight: 650; overflow-wrap: anywhere; }
try-pane :is(.verdict, .note, .bars):empty { display: none; }
try-pane .bars { display: grid; gap: 7px; }
try-pane .bar { display: grid; grid-template-columns: minmax(0, 1fr) auto; font-size: .9rem; gap: 0 8px; }
try-pane .bar span:first-child { overflow-wrap: anywhere; }
try-pane .track {
  grid-column: 1 / -1; height: 8px; background: var(--sunken); border-radius: 4px; overflow: hidden;
}
try-pane .track div { height: 100%; background: var(--accent); transition: width .15s; }
try-pane .none .track div { background: var(--muted); }
`);

const SHOWN = 6;
const PAUSE = 120; // milliseconds between two frames of the camera

class TryPane extends HTMLElement {
  connectedCallback() {
    this.view = h("div", { class: "view" }, h("p", {}, "Drop or paste an image that it has not seen"));
    this.verdict = h("div", { class: "verdict", id: "verdict", role: "status", "aria-live": "polite" });
    this.note = h("div", { class: "small muted note" });
    this.bars = h("div", { class: "bars", id: "bars" });
    this.choice = h("select", { "aria-label": "Add this image to a class", onchange: () => this.add() });
    this.camera = button("Camera", () => this.toggleCamera());
    const panel = h(
      "div",
      { class: "panel" },
      this.view,
      h(
        "div",
        { class: "row" },
        chooser("Image …", ([file]) => file && this.open(file)),
        this.camera,
      ),
      this.verdict,
      this.note,
      this.bars,
      this.choice,
    );
    dropTarget(panel, (files) =>
      files.length ? this.open(files[0]) : toast("There is no image among these files.", "bad"),
    );
    this.append(panel);
    store.addEventListener("update", () => this.update());
  }

  update() {
    const choices = store.classIds().map((id) => h("option", { value: id }, store.name(id)));
    const open = document.activeElement === this.choice;
    if (!open)
      this.choice.replaceChildren(h("option", { value: "" }, "It is in fact … (add it)"), ...choices);
    this.choice.hidden = !this.file || !store.classes.size;
    // Predict the same image by the newer model.
    if (this.file && !this.live && store.figures.ready && store.figures !== this.predictedBy)
      this.predict(this.file);
  }

  async open(file) {
    this.stopCamera();
    URL.revokeObjectURL(this.url);
    this.url = URL.createObjectURL(file);
    const image = h("img", { src: this.url, alt: "The image to try" });
    image.onerror = () => this.view.replaceChildren(h("p", {}, file.name));
    this.view.replaceChildren(image);
    this.file = file;
    await this.predict(file);
    this.update();
  }

  // A response that is overtaken by that to a later request is not shown.
  async predict(file) {
    this.predictedBy = store.figures;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const found = await call("api/try", { body: file });
      if (turn === this.turn) this.show(found);
    } catch (error) {
      if (turn !== this.turn) return;
      this.verdict.textContent = "";
      this.note.textContent = error.message;
      this.bars.replaceChildren();
    }
  }

  show(found) {
    const [best] = found.top;
    this.verdict.textContent = found.rejected ? "None of these" : store.name(best.class);
    const row = store.images.get(found.image);
    this.note.textContent =
      row && row.label !== null
        ? `This image is in the project, labelled ${store.name(row.label)}: it is no test of the model any more.`
        : found.rejected
          ? "It is unlike all training images. If it had to choose:"
          : "";
    this.bars.classList.toggle("none", found.rejected);
    const rows = new Map(found.top.slice(0, SHOWN).map((each) => [each.class, each.probability]));
    reconcile(
      this.bars,
      [...rows.keys()],
      () =>
        h(
          "div",
          { class: "bar" },
          h("span"),
          h("span", { class: "number" }),
          h("div", { class: "track", "aria-hidden": "true" }, h("div")),
        ),
      (bar, id) => {
        bar.children[0].textContent = store.name(id);
        bar.children[1].textContent = percent(rows.get(id));
        bar.children[2].firstChild.style.width = `${100 * rows.get(id)}%`;
      },
    );
  }

  // Add the image to a class.
  add() {
    const label = this.choice.value;
    this.choice.value = "";
    this.choice.blur();
    if (label && this.file) upload([this.file], label);
  }

  async toggleCamera() {
    if (this.live) return this.stopCamera();
    const cam = h("web-cam");
    this.view.replaceChildren(cam);
    this.live = cam;
    this.camera.classList.add("on");
    this.camera.textContent = "Stop camera";
    try {
      await cam.start();
    } catch (error) {
      this.stopCamera();
      return toast(`No camera: ${error.message}`, "bad");
    }
    while (this.live === cam) {
      const file = await cam.frame();
      if (file && store.figures.ready) {
        await this.predict(file);
        this.file = file;
      }
      await new Promise((done) => setTimeout(done, document.hidden ? 1000 : PAUSE));
    }
  }

  stopCamera() {
    if (!this.live) return;
    this.live.stop();
    this.live = null;
    this.camera.classList.remove("on");
    this.camera.textContent = "Camera";
    this.view.replaceChildren(h("p", {}, "Drop or paste an image that it has not seen"));
  }
}
customElements.define("try-pane", TryPane);
