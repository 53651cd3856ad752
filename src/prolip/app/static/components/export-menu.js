// Downloads of the model in each format, as a .zip with a model card.
import { store } from "../store.js";
import { h, reconcile, style, toast } from "../ui.js";

style(`
export-menu { display: block; }
export-menu .formats { display: grid; gap: 8px; }
export-menu .format {
  display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 2px 12px; align-items: center;
  padding: 8px 0; border-top: 1px solid var(--line);
}
export-menu .format:first-child { border-top: 0; padding-top: 0; }
`);

const FORMATS = {
  prolip: ["For prolip", "predict, eval, serve; can grow later"],
  onnx: ["ONNX", "runs anywhere with ONNX Runtime, no Python needed"],
  hf: ["Hugging Face", "loads with transformers' from_pretrained"],
  open_clip: ["open_clip", "loads with local-dir:"],
  web: ["Web page", "runs in any browser, without a server"],
};

class ExportMenu extends HTMLElement {
  connectedCallback() {
    this.list = h("div", { class: "formats" });
    this.append(
      h(
        "div",
        { class: "panel" },
        this.list,
        h(
          "p",
          { class: "muted small" },
          "Each export is run and compared with this model before it is downloaded.",
        ),
      ),
    );
    store.addEventListener("update", () =>
      reconcile(this.list, store.figures.targets ?? [], (target) => {
        const [name, about] = FORMATS[target] ?? [target, ""];
        const link = h(
          "a",
          {
            class: "button",
            href: `/api/export/${target}`,
            download: "",
            "aria-label": `Download ${name}`,
            onclick: () => toast(`Writing and checking the ${name} export …`),
          },
          "Download",
        );
        return h(
          "div",
          { class: "format" },
          h("div", {}, h("strong", {}, name), h("div", { class: "muted small" }, about)),
          link,
        );
      }),
    );
  }
}
customElements.define("export-menu", ExportMenu);
