// The head of the page: the project, the accuracy of its model, progress, undo.
import { actions, store } from "../store.js";
import { button, h, percent, plural, style } from "../ui.js";

style(`
app-header {
  position: sticky; top: 0; z-index: 9; display: flex; flex-wrap: wrap; gap: 6px 22px;
  align-items: center; padding: 12px max(20px, calc((100vw - 1760px) / 2 + 20px));
  background: color-mix(in srgb, var(--back) 88%, transparent); backdrop-filter: blur(10px);
  border-bottom: 1px solid var(--line);
}
app-header h1 { font-size: 1.02rem; margin: 0; overflow-wrap: anywhere; }
app-header .score { min-width: 0; display: flex; align-items: baseline; gap: 9px; }
app-header .score strong { font-size: 1.7rem; line-height: 1; letter-spacing: -.02em; }
app-header .busy { display: flex; align-items: center; gap: 8px; min-width: 150px; }
app-header progress { width: 110px; height: 8px; accent-color: var(--accent); }
app-header .right { margin-left: auto; }
@media (max-width: 860px) {
  app-header { padding: 8px 12px; gap: 4px 14px; }
  app-header .score { flex: 1 1 60%; }
  app-header .title { order: 1; flex: 1 1 100%; display: flex; flex-wrap: wrap; gap: 0 10px; align-items: center; }
  app-header .busy { order: 2; }
  app-header .interval { display: none; }
  app-header .score strong { font-size: 1.35rem; }
}
`);

class AppHeader extends HTMLElement {
  connectedCallback() {
    this.title_ = h("h1");
    this.strong = h("strong", { class: "number" });
    this.about = h("span", { class: "small muted" });
    this.score = h(
      "div",
      { class: "score", role: "status", "aria-live": "polite", id: "score" },
      this.strong,
      " ",
      this.about,
    );
    this.bar = h("progress", { max: "1", "aria-label": "Encoded images" });
    this.task = h("span", { class: "small muted" });
    this.busy = h("div", { class: "busy" }, this.bar, this.task);
    this.undo = button("Undo", actions.undo, { id: "undo" });
    this.append(
      h("div", { class: "title" }, this.title_, h("model-menu")),
      this.score,
      this.busy,
      h("div", { class: "right" }, this.undo),
    );
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches?.("input[type=text], textarea");
      if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.shiftKey && !typing) {
        event.preventDefault();
        actions.undo();
      }
    });
    store.addEventListener("update", () => this.update());
  }

  update() {
    const { figures, waiting, pending } = store;
    this.title_.textContent = store.about.name || "prolip";
    this.strong.textContent = figures.ready && !figures.too_few ? percent(figures.accuracy, 1) : "";
    this.score.dataset.revision = figures.revision;
    this.about.replaceChildren(...this.sentence(figures));
    this.busy.hidden = !(pending || waiting);
    this.bar.value = 1 - waiting / (store.images.size || 1);
    this.task.textContent = pending
      ? `uploading ${plural(pending, "image")}`
      : `encoding ${plural(waiting, "image")}`;
    this.undo.disabled = !store.undo;
    this.undo.title = store.undo ? `Undo: ${store.undo} (Ctrl+Z)` : "";
    this.undo.setAttribute("aria-label", store.undo ? `Undo: ${store.undo}` : "Undo");
  }

  sentence(figures) {
    if (!store.ready) return ["Loading …"];
    if (!figures.ready) return ["Not trained yet: add images to two classes."];
    if (figures.accuracy === null || figures.accuracy === undefined)
      return ["Trained. With two images of each class, its accuracy can be measured."];
    const count = Object.keys(figures.held_out).length;
    const interval = `95\u00a0% interval ${figures.interval.map((end) => percent(end)).join(" to ")}`;
    if (figures.too_few)
      return [
        `${Math.round(count * figures.held_out_accuracy)} of ${count} held-out images are correct: ` +
          `too few to measure the accuracy (${interval}).`,
      ];
    const parts = [
      "accuracy, from held-out images ",
      h("span", { class: "interval" }, `(${interval}, ${plural(count, "image")}) `),
    ];
    if (figures.test) {
      const images = plural(Object.keys(figures.test.predictions).length, "test image");
      parts.push(h("span", { id: "test-score" }, `· ${percent(figures.test.accuracy, 1)} of ${images} `));
    }
    // Since the fit before, on the images that both predicted.
    const flips = [...store.flips.values()];
    const [right, wrong] = [flips.filter(([was, is]) => is && !was), flips.filter(([was, is]) => was && !is)];
    const by = ((100 * (right.length - wrong.length)) / (flips.length || 1)).toFixed(1);
    if (Number(by))
      parts.push(h("span", { class: by > 0 ? "good" : "bad" }, `${by > 0 ? "+" : "−"}${Math.abs(by)} `));
    if (right.length || wrong.length)
      parts.push(
        [right.length && `${right.length} now correct`, wrong.length && `${wrong.length} now wrong`]
          .filter(Boolean)
          .join(", "),
      );
    if (figures.learned_little)
      parts.push(h("span", { class: "bad" }, " · That may be guessing: the model has learned little."));
    if (figures.near_copies) {
      const count = figures.independent - (figures.images - figures.near_copies);
      parts.push(
        ` · ${plural(figures.near_copies, "near-copy", "near-copies")} count as ${count}: photos of other ` +
          "moments and places teach the model more.",
      );
    }
    return parts;
  }
}
customElements.define("app-header", AppHeader);
