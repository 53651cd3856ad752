// Downloads: the labelled photos, a report, and the model in each format, with a model card.
import { call, save, store } from "../store.js";
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

const DOWNLOADS = {
  web: [
    "Web page",
    "one file that opens with a double-click, also offline; what runs it (14 MB) is downloaded once",
  ],
  onnx: ["ONNX", "runs anywhere with ONNX Runtime"],
  prolip: ["For prolip", "predict, eval, serve; can grow later"],
  hf: ["Hugging Face", "loads with transformers' from_pretrained"],
  open_clip: ["open_clip", "loads with local-dir:"],
  photos: ["Labelled photos", "a folder for each class, as prolip fit takes it"],
  report: ["Report", "one page: mistakes, calibration, learning curve"],
};

class ExportMenu extends HTMLElement {
  connectedCallback() {
    this.list = h("div", { class: "formats" });
    const note = "An export of the model is compared with it before it is downloaded.";
    this.append(h("div", { class: "panel" }, this.list, h("p", { class: "muted small" }, note)));
    store.addEventListener("update", () => this.update());
  }

  // What can be downloaded changes with the base model, and when accuracy can first be measured.
  async update() {
    const { ready, accuracy } = store.figures;
    const state = JSON.stringify([ready, typeof accuracy, store.about.model, store.images.size > 0]);
    if (!store.ready || state === this.state) return;
    this.state = state;
    const whyNot = await call("api/downloads").catch(() => null);
    if (!whyNot) return (this.state = undefined);
    const known = Object.keys(DOWNLOADS).filter((name) => !whyNot[name]);
    reconcile(this.list, known, (name) => this.row(name));
  }

  row(name) {
    const [title, about] = DOWNLOADS[name];
    const link = h(
      "a",
      {
        class: "button",
        href: `api/downloads/${name}`,
        download: "",
        "aria-label": `Download ${title}`,
        onclick: (event) => {
          toast(`Preparing the download: ${title} …`);
          if (name === "photos") return; // of any size, and nothing that can fail: left to the browser
          event.preventDefault();
          save(`api/downloads/${name}`).catch((error) => toast(error.message, "bad"));
        },
      },
      "Download",
    );
    const words = h("div", {}, h("strong", {}, title), h("div", { class: "muted small" }, about));
    return h("div", { class: "format" }, words, link);
  }
}
customElements.define("export-menu", ExportMenu);
