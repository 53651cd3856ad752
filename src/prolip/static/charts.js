// Charts as SVG, in the colours of the page. The vertical axis is always a fraction, shown in percent.
import { percent, svg } from "./dom.js";

const [WIDTH, HEIGHT] = [400, 270];
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 10, 14, 44];
const BASE = HEIGHT - BOTTOM;

function text(x, y, words, anchor, more = {}) {
  return svg("text", { x, y, "text-anchor": anchor, ...more }, words);
}

function chart(name, parts) {
  return svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name },
    parts,
  );
}

class Plot {
  // The horizontal axis runs from `low` to `high`, the vertical one from `bottom` to 1.
  constructor(low, high, bottom = 0) {
    Object.assign(this, { low, high, bottom });
  }

  x(value) {
    return LEFT + ((WIDTH - LEFT - RIGHT) * (value - this.low)) / (this.high - this.low || 1);
  }

  y(value) {
    return BASE - ((BASE - TOP) * (value - this.bottom)) / (1 - this.bottom || 1);
  }

  points(points) {
    return points.map(([a, b]) => `${this.x(a).toFixed(1)},${this.y(b).toFixed(1)}`).join(" ");
  }

  line(points, kind) {
    return svg("polyline", { class: kind, points: this.points(points) });
  }

  band(high, low) {
    return svg("polygon", { class: "band", points: this.points([...high, ...[...low].reverse()]) });
  }

  mark(a, b, title) {
    return svg("circle", { class: "mark", cx: this.x(a), cy: this.y(b), r: 4 }, svg("title", {}, title));
  }

  // Grid lines, numbers and the names of the axes; `ticks` are [value, text].
  axes(ticks, across, up) {
    const parts = [];
    const step = this.bottom >= 0.5 ? 0.1 : 0.2;
    for (let value = this.bottom; value < 1.001; value += step) {
      parts.push(
        this.line(
          [
            [this.low, value],
            [this.high, value],
          ],
          "grid",
        ),
      );
      parts.push(text(LEFT - 6, this.y(value) + 4, String(Math.round(100 * value)), "end"));
    }
    const middle = (TOP + BASE) / 2;
    return [
      ...parts,
      ...ticks.map(([value, words]) => text(this.x(value), BASE + 16, words, "middle")),
      this.line(
        [
          [this.low, this.bottom],
          [this.high, this.bottom],
        ],
        "axis",
      ),
      text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, "middle", { class: "label" }),
      text(12, middle, up, "middle", { class: "label", transform: `rotate(-90 12 ${middle})` }),
    ];
  }
}

// Accuracy against images per class, measured (with standard errors) and forecast (with a 90 % interval).
export function learningCurve({ points, now, forecasts }) {
  const ahead = [now, ...forecasts];
  const at = (each) => Math.log2(each.shots);
  const lowest = Math.min(...points.map((p) => p.accuracy - p.spread), ...ahead.map((f) => f.low));
  const all = [...points, ...ahead];
  const bottom = Math.max(0, Math.floor(lowest * 5 - 0.25) / 5);
  const plot = new Plot(Math.min(...all.map(at)), Math.max(...all.map(at)), bottom);
  const ticks = [];
  for (const each of [...all].sort((a, b) => b.shots - a.shots))
    if (ticks.every(([other]) => Math.abs(plot.x(at(each)) - plot.x(other)) > 26))
      ticks.push([at(each), String(each.shots)]);
  const last = points.at(-1);
  return chart("Learning curve", [
    ...plot.axes(ticks, "labelled images per class", "held-out accuracy, %"),
    plot.band(
      ahead.map((f) => [at(f), f.high]),
      ahead.map((f) => [at(f), f.low]),
    ),
    plot.line(
      points.map((p) => [at(p), p.trend]),
      "curve",
    ),
    plot.line(
      [last, ...ahead].map((f) => [at(f), f.accuracy]),
      "forecast",
    ),
    ...points.flatMap((p) => [
      plot.line(
        [
          [at(p), p.accuracy - p.spread],
          [at(p), Math.min(1, p.accuracy + p.spread)],
        ],
        "whisker",
      ),
      plot.mark(at(p), p.accuracy, `${p.shots} images per class: ${percent(p.accuracy, 1)}`),
    ]),
  ]);
}

// Accuracy against confidence in bins of [count, confidence, accuracy, low, high], null for an empty one.
export function calibrationChart(bins) {
  const plot = new Plot(0, 1);
  const most = Math.max(...bins.map((bin) => bin?.[0] ?? 0));
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1].map((value) => [value, String(Math.round(100 * value))]);
  const parts = bins.flatMap((bin, k) => {
    if (!bin) return [];
    const [count, confidence, accuracy, low, high] = bin;
    const title = `${count} predictions with ${percent(confidence)}: ${percent(accuracy)} are correct`;
    const [x, y] = [plot.x(k / bins.length) + 2, plot.y((0.22 * count) / most)];
    return [
      svg("rect", { class: "column", x, y, width: 30, height: plot.y(0) - y }, svg("title", {}, title)),
      plot.line(
        [
          [confidence, low],
          [confidence, high],
        ],
        "whisker",
      ),
      plot.mark(confidence, accuracy, title),
    ];
  });
  const axes = plot.axes(ticks, "probability of the prediction, %", "correct predictions, %");
  return chart("Calibration", [
    ...axes,
    plot.line(
      [
        [0, 0],
        [1, 1],
      ],
      "ideal",
    ),
    ...parts,
  ]);
}
