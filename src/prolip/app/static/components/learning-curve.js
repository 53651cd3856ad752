// Accuracy against pictures a class, measured and forecast, and what that means in a sentence.
import { store } from "../store.js";
import { h, percent, style, svg } from "../ui.js";

style(`
learning-curve { display: block; }
learning-curve svg { width: 100%; height: auto; display: block; }
learning-curve .grid { stroke: var(--line); stroke-width: 1; }
learning-curve text { fill: var(--muted); font-size: 11px; }
learning-curve .band { fill: var(--accent); opacity: .16; }
learning-curve .line { fill: none; stroke: var(--accent); stroke-width: 2.5; }
learning-curve .ahead { stroke-dasharray: 5 5; }
learning-curve circle { fill: var(--accent); }
`);

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [380, 220, 42, 44];

class LearningCurve extends HTMLElement {
  connectedCallback() {
    this.sentence = h("p", { class: "small" });
    this.chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    this.append(h("div", { class: "panel" }, this.sentence, this.chart));
    store.addEventListener("update", () => this.update());
  }

  update() {
    const curve = store.slow.curve ?? null;
    if (curve === this.drawn) return;
    this.drawn = curve; // undefined before the first
    this.chart.toggleAttribute("hidden", !curve);
    if (!curve) return void (this.sentence.textContent = "With three pictures of each class, this tells whether more are worth it.");
    const twice = curve.forecasts.find((each) => each.shots >= 2 * curve.now.shots) ?? curve.forecasts.at(-1);
    const gain = Math.round(100 * twice.gain);
    const verdict = gain < 1 ? "More pictures of the same kind would hardly help." : gain < 3 ? "A little is to be won." : "It is worth labelling more.";
    this.sentence.textContent = `${verdict} With ${twice.shots} pictures of each class instead of ${curve.now.shots}, expect ${percent(twice.accuracy)} (${percent(twice.low)} to ${percent(twice.high)}) instead of ${percent(curve.now.accuracy)}.`;
    this.draw(curve);
  }

  draw(curve) {
    const ahead = [curve.now, ...curve.forecasts];
    const all = [...curve.points, ...ahead];
    const most = Math.log2(Math.max(...all.map((each) => each.shots)));
    const least = Math.min(...all.map((each) => each.low ?? each.accuracy));
    const floor = Math.max(0, Math.floor(10 * least - 0.2) / 10);
    const x = (shots) => LEFT + (WIDTH - LEFT - 12) * (Math.log2(shots) / most);
    const y = (value) => 10 + (HEIGHT - BOTTOM - 10) * ((1 - value) / (1 - floor || 1));
    const path = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
    const parts = [];
    for (const level of [floor, (1 + floor) / 2, 1]) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(level), y2: y(level) }));
      parts.push(svg("text", { x: LEFT - 6, y: y(level) + 4, "text-anchor": "end" }, `${Math.round(100 * level)} %`));
    }
    for (let shots = 1; Math.log2(shots) <= most + 0.01; shots *= 2) parts.push(svg("text", { x: x(shots), y: HEIGHT - 26, "text-anchor": "middle" }, String(shots)));
    const band = [...ahead.map((f) => [x(f.shots), y(f.high)]), ...ahead.toReversed().map((f) => [x(f.shots), y(f.low)])];
    const last = curve.points.at(-1);
    parts.push(
      svg("path", { class: "band", d: `${path(band)}Z` }),
      svg("path", { class: "line", d: path(curve.points.map((p) => [x(p.shots), y(p.accuracy)])) }),
      svg("path", { class: "line ahead", d: path([[x(last.shots), y(last.accuracy)], ...ahead.map((f) => [x(f.shots), y(f.accuracy)])]) }),
      ...curve.points.map((p) => svg("circle", { cx: x(p.shots), cy: y(p.accuracy), r: 3.5 })),
      svg("text", { x: WIDTH / 2, y: HEIGHT - 7, "text-anchor": "middle" }, "pictures of each class"));
    this.chart.setAttribute("aria-label", `Accuracy against pictures of each class. ${this.sentence.textContent}`);
    this.chart.replaceChildren(...parts);
  }
}
customElements.define("learning-curve", LearningCurve);
