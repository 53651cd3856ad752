"""What each part of the default is worth, what the paper's method gains from the same, and open classes.

    python benchmarks/anchored.py [--data data] [--draws 10] [--only constants tuning open]

`constants`: accuracy with each constant a third smaller and half as large again, without standardisation,
and with a prior that does not depend on the number of classes. `tuning`: `prolip` as in the paper, at half
the model's scale with a tenth of the penalty, and on standardised features, beside the default: what of the
difference is tuning. `open`: accuracy among all classes where a random half of the classes has images and the
others have names alone, and where one class has a name alone: fitted classes, named classes, and for halves
their harmonic mean. `closed fit` is the default fitted without knowing of the named classes.

Five sets under CLIP (dtd10, clothing10, 24 breeds of pets37, WHU-RS19 with two models), four under `offline`
(birds60, pets37, dtd10, clothing10; training and test photos together), ImageNet under ViT-B/32: N random
images of each class to fit, all others to test. These are development sets as a whole: the constants were
chosen on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from prolip import Head, Task, methods
from prolip.core import Fitted
from prolip.core.arrays import Array
from prolip.evaluate.metrics import accuracy
from prolip.methods import anchored
from tasks import GROUPS, Trial, all_photos, few_shot, imagenet_trial, whole_task

SETS = {"clip": (*GROUPS["clip"], *GROUPS["whu"]), "offline": GROUPS["photos"]}
SIZES = (1, 2, 4, 8, 16)
Fit = Callable[[Task], Fitted]


@cache
def everything(data: Path, kind: str, name: str) -> Task:
    """All images of a set."""
    return all_photos(data, name) if kind == "offline" else whole_task(data, name)


def closed_trial(task: Task, shots: int, draw: int) -> Trial:
    chosen = few_shot(task.y, shots, draw)
    rest = np.setdiff1d(np.arange(task.n), chosen)
    return task.subset(chosen), task.x[0, rest], task.y[rest]


def open_trial(task: Task, shots: int, draw: int, named: int) -> tuple[Task, Array, Array, Array]:
    """A task in which `named` random classes have no image; test images, labels, and which are of these."""
    without = np.random.default_rng(1000 + draw).permutation(task.classes)[:named]
    chosen = few_shot(task.y, shots, draw)
    rest = np.setdiff1d(np.arange(task.n), chosen)
    chosen = chosen[~np.isin(task.y[chosen], without)]
    return task.subset(chosen), task.x[0, rest], task.y[rest], np.isin(task.y[rest], without)


def default(task: Task) -> Fitted:
    return methods.create("anchored").fit(task)


def closed_fit(task: Task) -> Fitted:
    return default(task.select_classes(np.unique(task.y))).with_text(task.text)


def paper(share: float = 1.0, lam: float = 1.0, standardised: bool = False) -> Fit:
    """`prolip` at a share of the model's scale and a multiple of 1/N, on standardised features or not."""

    def fit(task: Task) -> Fitted:
        own = replace(task, scale=share * task.scale)
        if not standardised:
            return methods.create("prolip", lam=lam / task.shots).fit(own)
        problem = anchored.Problem.of(own)
        weights = problem.c * problem.e[:, None]
        head = Head((task.linear.weight / weights).astype(np.float32))
        standard = own.with_features(problem.f.reshape(own.x.shape), head)
        fitted = methods.create("prolip", lam=lam / task.shots).fit(standard).as_projected()
        assert fitted is not None
        return methods.create("zero_shot").fit(
            Task(task.x, task.y, task.text, Head(weights * fitted.head.weight))
        )

    return fit


@contextmanager
def constants(**values: float) -> Iterator[None]:
    before = {name: getattr(anchored, name) for name in values}
    vars(anchored).update(values)
    try:
        yield
    finally:
        vars(anchored).update(before)


def closed_accuracy(data: Path, kind: str, fit: Fit, draws: int) -> Array:
    """Per cent [sets, sizes], mean over draws."""
    cells = []
    for name in SETS[kind]:
        task = everything(data, kind, name)
        sizes = SIZES if kind == "clip" else SIZES[:4]
        trials = [[closed_trial(task, shots, d + 1) for d in range(draws)] for shots in sizes]
        cells.append([np.mean([accuracy(fit(t).logits(x), y) for t, x, y in own]) for own in trials])
    return 100 * np.array(cells)


def line(label: str, values: Array) -> None:
    print(f"{label:<44}" + " ".join(f"{value:5.1f}" for value in values), flush=True)


def show_closed(data: Path, draws: int, variants: dict[str, tuple[Fit, dict[str, float]]]) -> None:
    for label, (fit, values) in variants.items():
        with constants(**values):
            for kind in ("clip", "offline"):
                line(f"{kind}: {label}", closed_accuracy(data, kind, fit, draws).mean(axis=0))
            trials = [imagenet_trial(data, 1000, shots, 1) for shots in (1, 2, 4)]
            line(f"ImageNet: {label}", [100 * accuracy(fit(t).logits(x), y) for t, x, y in trials])


def show_constants(data: Path, draws: int) -> None:
    def plain(task: Task) -> Fitted:
        """Fit on features that were rotated at random: all have about the same deviation."""
        head = task.linear
        rotation = np.linalg.qr(np.random.default_rng(0).normal(size=head.weight.shape[:1] * 2))[0]
        rotated = Head((rotation.T @ head.weight).astype(np.float32), head.bias)
        own = task.with_features((task.x @ rotation).astype(np.float32), rotated)
        fitted = default(own).as_projected()
        assert fitted is not None
        return methods.create("zero_shot").fit(
            Task(task.x, task.y, task.text, Head(rotation @ fitted.head.weight, head.bias))
        )

    def same_prior(task: Task) -> Fitted:
        lam = np.log(10) / (anchored.PRIOR_LOGIT**2 * task.independent)
        return methods.create("anchored", lam=float(lam)).fit(task)

    variants: dict[str, tuple[Fit, dict[str, float]]] = {"the default": (default, {})}
    for name in ("TEXT_SHARE", "PRIOR_LOGIT"):
        for factor in (2 / 3, 1.5):
            value = getattr(anchored, name) * factor
            variants[f"{name} = {value:.2f}"] = default, {name: value}
    variants["not standardised (rotated features)"] = plain, {}
    variants["lam of ten classes for any number"] = same_prior, {}
    show_closed(data, draws, variants)


def show_tuning(data: Path, draws: int) -> None:
    fits = {
        "anchored": default,
        "prolip, lam = 1/N": paper(),
        "prolip, s/2, lam = 0.1/N": paper(0.5, 0.1),
        "prolip, s/2, lam = 1/N, standardised": paper(0.5, 1.0, True),
        "prolip, s/2, lam = 0.1/N, standardised": paper(0.5, 0.1, True),
    }
    for label, fit in fits.items():
        line(f"clip: {label}", closed_accuracy(data, "clip", fit, draws).mean(axis=0))


def show_open(data: Path, draws: int) -> None:
    variants: dict[str, tuple[Fit, dict[str, float]]] = {
        "zero-shot": (methods.create("zero_shot").fit, {}),
        "prolip, lam = 1/N": (methods.create("prolip").fit, {}),
        "anchored": (default, {}),
        "anchored, closed fit": (closed_fit, {}),
        "anchored, OPEN_SCALE = 0.47": (default, {"OPEN_SCALE": 0.7 * 2 / 3}),
        "anchored, OPEN_SCALE = 1.05": (default, {"OPEN_SCALE": 0.7 * 1.5}),
        "anchored, EXPLAINED = 0.2": (default, {"EXPLAINED": 0.2}),
        "anchored, EXPLAINED = 0.8": (default, {"EXPLAINED": 0.8}),
    }
    for kind, names in SETS.items():
        for half in (True, False):
            print(
                f"{kind}, {'half of the classes' if half else 'one class'} by name: fitted / named",
                flush=True,
            )
            for label, (fit, values) in variants.items():
                with constants(**values):
                    cells = [
                        [open_accuracy(data, kind, n, fit, s, draws, half) for s in (1, 4, 16)] for n in names
                    ]
                means = np.mean(cells, axis=0)
                row = [f"{fitted:.1f} / {named:.1f}" for fitted, named in means]
                if half:
                    row = [f"{r} ({2 * f * n / (f + n):.1f})" for r, (f, n) in zip(row, means, strict=True)]
                print(f"  {label:<42}" + "   ".join(row), flush=True)


def open_accuracy(
    data: Path, kind: str, name: str, fit: Fit, shots: int, draws: int, half: bool
) -> tuple[float, float]:
    """Accuracy among all classes, of fitted and of named ones, mean over draws."""
    task = everything(data, kind, name)
    found = []
    for draw in range(1, draws + 1):
        support, x, y, named = open_trial(task, shots, draw, task.classes - task.classes // 2 if half else 1)
        right = fit(support).predict(x) == y
        found.append((100 * right[~named].mean(), 100 * right[named].mean()))
    fitted, named = np.mean(found, axis=0)
    return float(fitted), float(named)


PARTS = {"constants": show_constants, "tuning": show_tuning, "open": show_open}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(f"no folder {options.data}: give the one with features/ and images/ as --data")
    for part in options.only:
        PARTS[part](options.data, options.draws)


if __name__ == "__main__":
    main()
