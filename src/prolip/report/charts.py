"""Charts as SVG inside a page: they take its colours, light or dark."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array
from prolip.evaluate.curve import Curve
from prolip.evaluate.metrics import wilson
from prolip.report.html import Html, tag

WIDTH, HEIGHT = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 14, 44
BINS = 10


@dataclass(frozen=True)
class Plot:
    """A frame whose vertical axis is a fraction, and whose horizontal one runs from `low` to `high`."""

    low: float
    high: float
    bottom: float = 0.0

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.bottom) / (1 - self.bottom)

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> Html:
        """A line through points."""
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        return tag("polyline", points=path, class_=kind)

    def mark(self, a: float, b: float, title: str) -> Html:
        """A dot that tells its figures."""
        dot = {"cx": f"{self.x(a):.1f}", "cy": f"{self.y(b):.1f}", "r": 4}
        return tag("circle", tag("title", title), class_="mark", **dot)

    def axes(self, ticks: Mapping[float, str], across: str, up: str) -> list[Html]:
        """Grid lines, numbers and the names of the axes."""
        drawn = []
        for value in np.arange(self.bottom, 1.001, 0.1 if self.bottom >= 0.5 else 0.2):
            drawn.append(self.line([(self.low, value), (self.high, value)], "grid"))
            drawn.append(_text(LEFT - 6, self.y(value) + 4, f"{100 * value:.0f}", "end"))
        base = HEIGHT - BOTTOM
        drawn += [_text(self.x(value), base + 16, name, "middle") for value, name in ticks.items()]
        middle = (LEFT + WIDTH - RIGHT) / 2
        turned = f"rotate(-90 12 {(TOP + base) / 2:.0f})"
        return [
            *drawn,
            self.line([(self.low, self.bottom), (self.high, self.bottom)], "axis"),
            _text(middle, HEIGHT - 8, across, "middle", "label"),
            _text(12, (TOP + base) / 2, up, "middle", "label", transform=turned),
        ]


def calibration_chart(probabilities: Array, y: Array) -> Html:
    """How often answers are right, against the probability that they were given with, in ten bins.

    Whiskers are 95 % intervals; columns at the foot say how many answers a bin has.
    """
    confidence, hits = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bin_of = np.minimum((confidence * BINS).astype(int), BINS - 1)
    plot = Plot(0.0, 1.0)
    parts: list[Html] = []
    most = np.bincount(bin_of, minlength=BINS).max()
    for k in range(BINS):
        chosen = bin_of == k
        n = int(chosen.sum())
        if not n:
            continue
        said, right = float(confidence[chosen].mean()), float(hits[chosen].mean())
        low, high = wilson(float(hits[chosen].sum()), n)
        told = f"{n} answers given with {100 * said:.0f} %: {100 * right:.0f} % are right"
        top = plot.y(0.22 * n / most)
        column = {"x": f"{plot.x(k / BINS) + 2:.1f}", "y": f"{top:.1f}", "height": f"{plot.y(0) - top:.1f}"}
        parts.append(tag("rect", tag("title", told), class_="column", width=30, **column))
        parts.append(plot.line([(said, low), (said, high)], "whisker"))
        parts.append(plot.mark(said, right, told))
    ticks = {value / 100: f"{value}" for value in range(0, 101, 20)}
    axes = plot.axes(ticks, "probability of the answer, %", "answers that are right, %")
    return _svg("Calibration", *axes, plot.line([(0, 0), (1, 1)], "ideal"), *parts)


def learning_chart(curve: Curve) -> Html:
    """Accuracy against images per class, and the forecast with its 90 % interval."""
    ahead = [curve.now, *curve.forecasts]
    lowest = min([p.accuracy - p.spread for p in curve.points] + [f.low for f in ahead])
    shots = sorted({p.shots for p in curve.points} | {f.shots for f in ahead})
    at: Callable[[int], float] = math.log2
    plot = Plot(at(shots[0]), at(shots[-1]), bottom=max(0.0, math.floor(lowest * 5 - 0.25) / 5))
    outline = [(at(f.shots), f.high) for f in ahead] + [(at(f.shots), f.low) for f in reversed(ahead)]
    path = " ".join(f"{plot.x(a):.1f},{plot.y(b):.1f}" for a, b in outline)
    parts = [tag("polygon", points=path, class_="band")]
    parts.append(plot.line([(at(p.shots), p.accuracy) for p in curve.points], "curve"))
    last = curve.points[-1]
    onward = [(at(last.shots), last.accuracy)] + [(at(f.shots), f.accuracy) for f in ahead]
    parts.append(plot.line(onward, "forecast"))
    for point in curve.points:
        ends = [(at(point.shots), min(1, point.accuracy + sign * point.spread)) for sign in (-1, 1)]
        parts.append(plot.line(ends, "whisker"))
        told = f"{point.shots} images of each class: {100 * point.accuracy:.1f} %"
        parts.append(plot.mark(at(point.shots), point.accuracy, told))
    axes = plot.axes(_apart(plot, shots, at), "labelled images of each class", "accuracy, %")
    return _svg("Learning curve", *axes, *parts)


def accuracy_chart(shots: Sequence[int], curves: Mapping[str, Sequence[Sequence[float]]]) -> Html:
    """Accuracy against shots, a line for each set; `curves` has values of several draws at 0 and at each."""
    plot = Plot(0, len(shots))
    parts = []
    for place, (name, columns) in enumerate(curves.items()):
        means = [sum(column) / len(column) for column in columns]
        low = [(i, min(column)) for i, column in enumerate(columns)]
        high = [(i, max(column)) for i, column in enumerate(columns)]
        path = " ".join(f"{plot.x(a):.1f},{plot.y(b):.1f}" for a, b in [*high, *reversed(low)])
        line = [tag("polygon", points=path, class_="band"), plot.line(enumerate(means), "curve")]
        for i, mean in enumerate(means):
            line.append(plot.mark(i, mean, f"{name}: {100 * mean:.1f} %"))
        line.append(_text(plot.x(len(shots)), plot.y(means[-1]) + 22, name, "end"))
        parts.append(tag("g", *line, class_="second" if place else None))
    ticks = {0.0: "zero-shot"} | {i + 1.0: str(n) for i, n in enumerate(shots)}
    axes = plot.axes(ticks, "labelled images of each class", "accuracy, %")
    return _svg("Accuracy against labelled images", *axes, *parts)


def _apart(plot: Plot, shots: Sequence[int], at: Callable[[int], float]) -> dict[float, str]:
    """Numbers for the axis that do not run into each other."""
    ticks: dict[float, str] = {}
    for count in reversed(shots):
        if all(abs(plot.x(at(count)) - plot.x(other)) > 26 for other in ticks):
            ticks[at(count)] = str(count)
    return ticks


def _text(x: float, y: float, words: str, anchor: str, kind: str | None = None, **more: str) -> Html:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    return tag("text", words, class_=kind, **place, **more)


def _svg(name: str, *parts: Html) -> Html:
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=name)
