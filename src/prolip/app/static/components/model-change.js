// A change to another base model: its progress, then held-out accuracy before and after, and the way back.
import { actions, store } from "../store.js";
import { button, h, percent, plural, style } from "../ui.js";

style(`
model-change .panel { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; }
model-change p { margin: 0; flex: 1 1 20rem; min-width: 0; overflow-wrap: anywhere; }
model-change progress { flex: 1 1 8rem; max-width: 20rem; height: 8px; accent-color: var(--accent); }
`);

const STEPS = {
  download: (model) => `Downloading ${model} …`,
  load: (model) => `Loading ${model} …`,
  encode: (model) => `Encoding your images with ${model}; meanwhile the page uses ${store.about.model}.`,
  fit: (model) => `Training with ${model} …`,
};

class ModelChange extends HTMLElement {
  connectedCallback() {
    this.text = h("p", { role: "status", "aria-live": "polite" });
    this.bar = h("progress", { "aria-label": "Progress of the new base model" });
    this.count = h("span", { class: "small muted number" });
    this.back = button("", () => actions.chooseModel(this.previous));
    this.end = button("", () => actions.cancelModel());
    this.append(
      h(
        "div",
        { class: "panel" },
        this.text,
        this.bar,
        this.count,
        h("div", { class: "row" }, this.back, this.end),
      ),
    );
    store.addEventListener("update", () => this.update(store.change));
  }

  update(change) {
    this.hidden = !change;
    if (!change) return (this.text.textContent = "");
    const running = change.step in STEPS;
    const words = running ? STEPS[change.step](change.model) : change.error || this.comparison(change);
    if (this.text.textContent !== words) this.text.textContent = words;
    this.text.classList.toggle("bad", change.step === "failed");
    this.bar.hidden = this.count.hidden = !running || !change.total;
    this.bar.value = change.total ? change.done / change.total : 0;
    const megabytes = (bytes) => Math.round(bytes / 1e6);
    this.count.textContent =
      change.step === "download"
        ? `${megabytes(change.done)} of ${megabytes(change.total)} MB`
        : `${change.done} of ${plural(change.total, "image")}`;
    this.previous = change.before?.model;
    this.back.hidden = change.step !== "done";
    this.back.textContent = `Go back to ${this.previous}`;
    this.end.textContent = running ? "Cancel" : change.step === "done" ? `Keep ${change.model}` : "Close";
  }

  // The same images were held out both times, so the two accuracies can be compared.
  comparison({ before, after }) {
    const known = (one) => one.accuracy !== null && one.accuracy !== undefined;
    if (!known(before) || !known(after)) return `The base model is now ${after.model}.`;
    const accuracy = ({ accuracy, interval }) =>
      `${percent(accuracy, 1)} (${percent(interval[0])} to ${percent(interval[1])})`;
    const { right, wrong } = after.flips;
    return (
      `Held-out accuracy is ${accuracy(after)} with ${after.model}; it was ${accuracy(before)} with ` +
      `${before.model}, on the same ${plural(after.images, "image")}: ${right} became correct, ${wrong} wrong.`
    );
  }
}
customElements.define("model-change", ModelChange);
