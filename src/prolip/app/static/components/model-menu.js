// The base model: a button that shows it, and a dialog with those that can be chosen.
import { actions, call, store } from "../store.js";
import { button, h, style, toast } from "../ui.js";

style(`
model-menu > button { font-size: .86rem; min-height: 28px; padding: 2px 8px; color: var(--muted); }
model-menu dialog { width: min(720px, calc(100vw - 24px)); }
model-menu .head { display: flex; align-items: center; gap: 8px; padding: 12px 16px; }
model-menu h2 { margin: 0; flex: 1 1 auto; }
model-menu dialog > p { padding: 0 16px; }
model-menu ul { list-style: none; margin: 0; padding: 0 16px 12px; }
model-menu li {
  display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 2px 12px; align-items: center;
  padding: 9px 0; border-top: 1px solid var(--line);
}
`);

class ModelMenu extends HTMLElement {
  connectedCallback() {
    this.button = button("", () => this.open(), { "aria-haspopup": "dialog" });
    this.list = h("ul");
    const close = button("Close", () => this.dialog.close());
    this.dialog = h(
      "dialog",
      { "aria-labelledby": "models-title" },
      h("div", { class: "head" }, h("h2", { id: "models-title" }, "Base model"), close),
      h(
        "p",
        { class: "small muted" },
        "The network that sees your images. CLIP and SigLIP know far more than offline, and are slower. " +
          "A model that is not here is downloaded from the Hugging Face hub; your images stay here. Compare the " +
          "accuracy before and after: both are kept, and going back takes a moment.",
      ),
      this.list,
    );
    this.append(this.button, this.dialog);
    store.addEventListener("update", () => this.update());
  }

  // The model in use, and the recommended one if that is another.
  async update() {
    const { model } = store.about;
    this.button.hidden = !model;
    if (!model) return;
    this.models ??= call("api/models").catch(() => (this.models = undefined));
    const better = ((await this.models) ?? []).find((each) => each.recommended && each.name !== model);
    const size = better && (better.downloaded ? "here" : `${better.megabytes} MB`);
    const weak = better && model === "offline";
    this.button.textContent = `Base model: ${model}${weak ? ` · better: ${better.name} (${size})` : ""} ▾`;
  }

  async open() {
    try {
      this.list.replaceChildren(...(await call("api/models")).map((model) => this.row(model)));
    } catch (error) {
      return toast(error.message, "bad");
    }
    this.dialog.showModal();
  }

  row(model) {
    const used = model.name === store.about.model;
    const facts = [model.title];
    if (model.recommended) facts.unshift("recommended");
    if (!model.downloaded) facts.push(`${model.megabytes} MB to download`);
    if (model.licence) facts.push(`licence: ${model.licence}`);
    const about = h("div", { class: "muted small" }, facts.join(" · "));
    const choose = () => {
      this.dialog.close();
      actions.chooseModel(model.name);
    };
    const use = button(used ? "In use" : model.downloaded ? "Use" : "Download", choose, {
      disabled: used,
      "aria-label": `${used ? "In use" : model.downloaded ? "Use" : "Download and use"}: ${model.name}`,
    });
    return h("li", {}, h("div", {}, h("strong", {}, model.name), about), use);
  }
}
customElements.define("model-menu", ModelMenu);
