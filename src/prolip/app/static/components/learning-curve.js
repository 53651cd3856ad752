// Accuracy against images per class, measured and forecast, and what that means in a sentence.
import { learningCurve } from "../lib/charts.js";
import { store } from "../store.js";
import { h, percent } from "../ui.js";

class LearningCurve extends HTMLElement {
  connectedCallback() {
    this.sentence = h("p", { class: "small" });
    this.panel = h("div", { class: "panel" }, this.sentence);
    this.append(this.panel);
    store.addEventListener("update", () => this.update());
  }

  update() {
    const curve = store.slow.curve ?? "";
    if (curve === this.drawn) return;
    this.drawn = curve; // undefined before the first
    this.panel.replaceChildren(this.sentence);
    if (typeof curve === "string") return void (this.sentence.textContent = curve);
    const { now, forecasts } = curve;
    const twice = forecasts.find((each) => each.shots >= 2 * now.shots) ?? forecasts.at(-1);
    const gain = Math.round(100 * twice.gain);
    const verdict =
      gain < 1
        ? "More images of the same kind would hardly help."
        : gain < 3
          ? "More images would help a little."
          : "More images would help.";
    const range = `${percent(twice.low)} to ${percent(twice.high)}`;
    const forecast = `expect ${percent(twice.accuracy)} (${range}) instead of ${percent(now.accuracy)}`;
    const more = `With ${twice.shots} images per class instead of ${now.shots}`;
    this.sentence.textContent = `${verdict} ${more}, ${forecast}.`;
    this.panel.append(learningCurve(curve));
  }
}
customElements.define("learning-curve", LearningCurve);
