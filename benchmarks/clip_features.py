"""The default under real CLIP, from before the projection: accuracy, calibration, rejection and more.

    python benchmarks/clip_features.py [--data data] [--draws 10]
                                       [--only accuracy calibration rejection unlabelled time]

OpenAI's CLIP ViT-B/16 on dtd10, clothing10 and the 24 breeds of pets37 that have a text: N random photos of
each class to fit, all others to test. These are development sets, on which the default was settled. Beside
it: ProLIP at lam = 1/N (the paper), GDA, logistic regression on the features before the projection with C by
cross-validation, and zero-shot.

`calibration` has the calibration error: of the default after calibration inside the support set, of 1/N and
zero-shot at CLIP's own scale. `rejection`: photos of the other two sets that are accepted, and photos of the
classes that are rejected, at 5 %. `unlabelled`: points that a pool of half of the photos brings for the other
half. `time`: seconds of a fit, beside the same
with nothing left to settle and beside 1/N.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np

from default import seconds
from method_tasks import Trial
from prolip import Head, Task, methods
from prolip.core import Fitted
from prolip.core.arrays import Array, softmax
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.metrics import accuracy, calibration_error
from prolip.evaluate.unlabelled import learn_from
from solver_tasks import few_shot

SETS = ("dtd10", "clothing10", "pets37")
SIZES = (1, 2, 4, 8, 16)
METHODS = {
    "default": ("anchored", {}),
    "1/N": ("prolip", {}),
    "GDA": ("gda", {}),
    "regression": ("linear_probe", {"features": "pre"}),
    "zero-shot": ("zero_shot", {}),
}


@cache
def clip_task(data: Path, name: str) -> Task:
    """All photos of the classes that have a text."""
    with np.load(data / "features" / f"{name}_clip_vit_b_16.npz") as stored:
        x, labels, known = (stored[key] for key in ("x", "labels", "text_classes"))
        text, weight = (stored[key].astype(np.float32) for key in ("text", "weight"))
    place = np.full(labels.max() + 1, -1)
    place[known] = np.arange(len(known))
    y = place[labels]
    return Task(x[y >= 0].astype(np.float32), y[y >= 0], text, Head(weight), 100.0)


def clip_trial(data: Path, name: str, shots: int, draw: int) -> Trial:
    """N photos of each class to fit, and all others."""
    task = clip_task(data, name)
    chosen = few_shot(task.y, shots, draw)
    rest = np.setdiff1d(np.arange(task.n), chosen)
    return task.subset(chosen), task.x[0, rest], task.y[rest]


def fit_confident(task: Task) -> tuple[Fitted, Confidence]:
    fitted, held_out = methods.create("anchored").fit_held_out(task)
    return fitted, Confidence.of(fitted, task, held_out)


Measure = Callable[[Path, str, int, int], dict[str, float]]


def show(title: str, measure: Measure, data: Path, sizes: tuple[int, ...], draws: int) -> None:
    """A line for each set and size, with the mean over draws, and one with the mean over sets."""
    for shots in sizes:
        lines = {}
        for name in SETS:
            runs = [measure(data, name, shots, draw) for draw in range(1, draws + 1)]
            lines[name] = {key: fmean(run[key] for run in runs) for key in runs[0]}
            if title == "accuracy":
                lines[name]["least over zero-shot"] = min(run["default"] - run["zero-shot"] for run in runs)
        lines["mean"] = {key: fmean(line[key] for line in lines.values()) for key in lines[SETS[0]]}
        for name, line in lines.items():
            cells = "   ".join(f"{key} {value:5.1f}" for key, value in line.items())
            print(f"{title}, {name}, {shots} a class".ljust(40) + cells, flush=True)


def measure_accuracy(data: Path, name: str, shots: int, draw: int) -> dict[str, float]:
    task, x, y = clip_trial(data, name, shots, draw)
    return {
        key: 100 * accuracy(methods.create(method, **options).fit(task).logits(x), y)
        for key, (method, options) in METHODS.items()
    }


def measure_calibration(data: Path, name: str, shots: int, draw: int) -> dict[str, float]:
    task, x, y = clip_trial(data, name, shots, draw)
    fitted, confidence = fit_confident(task)
    found = {"default": calibration_error(softmax(fitted.logits(x) / confidence.temperature), y)}
    for key in ("1/N", "zero-shot"):
        method, options = METHODS[key]
        found[key] = calibration_error(softmax(methods.create(method, **options).fit(task).logits(x)), y)
    return {key: 100 * value for key, value in found.items()}


def measure_rejection(data: Path, name: str, shots: int, draw: int) -> dict[str, float]:
    task, x, _ = clip_trial(data, name, shots, draw)
    fitted, confidence = fit_confident(task)
    others = np.concatenate([clip_task(data, other).x[0] for other in SETS if other != name])

    def rejected(images: Array) -> float:
        predicted = fitted.logits(images).argmax(axis=1)
        return 100 * float(confidence.out_of_distribution.reject(images, task.linear, predicted).mean())

    return {"others accepted": 100 - rejected(others), "own rejected": rejected(x)}


def measure_unlabelled(data: Path, name: str, shots: int, draw: int) -> dict[str, float]:
    task, x, y = clip_trial(data, name, shots, draw)
    fitted, confidence = fit_confident(task)
    half = np.random.default_rng(draw).random(len(y)) < 0.5
    learned = learn_from(fitted, confidence, task, x[half])
    plain = fitted.logits(x)
    gain = accuracy(learned.fitted.logits(x[~half]), y[~half]) - accuracy(plain[~half], y[~half])
    return {
        "plain": 100 * accuracy(plain, y),
        "pool": 100 * gain,
        "pool used, %": 100.0 * learned.evidence.used,
    }


def show_time(data: Path, draws: int) -> None:
    for name in SETS:
        for shots in (1, 4, 16):
            task = clip_trial(data, name, shots, 1)[0]
            default = methods.create("anchored")
            settled = methods.from_settings(default.fit(task).settings)
            paper = methods.create("prolip")
            chosen, plain, other = (seconds(each, task) for each in (default, settled, paper))
            print(
                f"time, {name}, {shots} a class".ljust(40)
                + f"{chosen:.3f} s   x {chosen / plain:.1f} of a settled fit   x {chosen / other:.1f} of 1/N",
                flush=True,
            )


PARTS: dict[str, Callable[[Path, int], None]] = {
    "accuracy": lambda data, draws: show("accuracy", measure_accuracy, data, SIZES, draws),
    "calibration": lambda data, draws: show("calibration", measure_calibration, data, (1, 2, 4, 16), draws),
    "rejection": lambda data, draws: show("rejection", measure_rejection, data, (2, 4, 16), draws),
    "unlabelled": lambda data, draws: show("unlabelled", measure_unlabelled, data, (1, 2, 4, 16), draws),
    "time": show_time,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    if not given.data.is_dir():
        parser.error(f"no folder {given.data}: give the one with features/ as --data")
    for part in given.only:
        PARTS[part](given.data, given.draws)


if __name__ == "__main__":
    main()
