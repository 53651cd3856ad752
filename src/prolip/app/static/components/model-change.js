// A change to another base model: the progress of its download, or why it failed.
import { actions, store } from "../store.js";
import { button, h, style } from "../ui.js";

style(`
model-change .panel { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; }
model-change p { margin: 0; flex: 1 1 20rem; min-width: 0; overflow-wrap: anywhere; }
model-change progress { flex: 1 1 8rem; max-width: 20rem; height: 8px; accent-color: var(--accent); }
`);

const megabytes = (bytes) => Math.round(bytes / 1e6);

class ModelChange extends HTMLElement {
  connectedCallback() {
    this.text = h("p", { role: "status", "aria-live": "polite" });
    this.bar = h("progress", { "aria-label": "Progress of the download" });
    this.count = h("span", { class: "small muted number" });
    this.end = button("", () => actions.cancelModel());
    this.append(h("div", { class: "panel" }, this.text, this.bar, this.count, this.end));
    store.addEventListener("update", () => this.update(store.change));
  }

  update(change) {
    this.hidden = !change;
    if (!change) return (this.text.textContent = "");
    const { model, done, total, error } = change;
    const downloading = total && done < total && !error;
    const words =
      error || `${downloading ? "Downloading" : "Loading"} ${model}; the page works on meanwhile.`;
    if (this.text.textContent !== words) this.text.textContent = words;
    this.text.classList.toggle("bad", Boolean(error));
    this.bar.hidden = this.count.hidden = !downloading;
    this.bar.value = total ? done / total : 0;
    this.count.textContent = `${megabytes(done)} of ${megabytes(total)} MB`;
    this.end.textContent = error ? "Close" : "Cancel";
  }
}
customElements.define("model-change", ModelChange);
