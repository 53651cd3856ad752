"""The default method beside what people would try instead: accuracy, the worst case, and time.

    python benchmarks/default.py [--development | --test] [--data data] [--draws 5]
                                 [--only photos whu imagenet switching time]

--development, the default, predicts no test image of a reported set: birds60 is a development set as a whole;
of pets37, dtd10 and clothing10 it has the training photos, N of 16 to fit and the others to predict (so 12
instead of 16); of WHU-RS19 sixteen images of each class, likewise. --test predicts their test images; with 16
images per class, support sets are drawn from all photos and the others are predicted, since the training
photos hold only one such set. ImageNet is the same in both: one few-shot set to fit, the others to predict.

Beside the default: `prolip` at lam = 1/N (the paper), logistic regression on the features before the
projection with C by cross-validation, GDA, zero-shot. `switching`: whether a fit should switch to another
method by itself where its folds say so. `time`: ratios to the same fit with nothing left to choose, and to
`prolip`. `clip_features.py` has the same for CLIP's features from before the projection.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from method_tasks import DEFAULT, Trial
from prolip import Task, methods
from prolip.core.arrays import Array
from prolip.evaluate.metrics import accuracy
from solver_tasks import all_photos, few_shot, imagenet, photos, training_photos, whu

METHODS = {
    "default": (DEFAULT, {}),
    "prolip": ("prolip", {"lam": "1/N"}),
    "regression": ("linear_probe", {"features": "pre"}),
    "GDA": ("gda", {}),
    "zero-shot": ("zero_shot", {}),
}
PHOTOS = ("birds60", "pets37", "dtd10", "clothing10")
BACKBONES = ("rn50", "vit_b_32")
PART = 777  # the draw of WHU-RS19's development part


def sizes(name: str, test: bool) -> tuple[int, ...]:
    return (1, 2, 4, 8, 16 if test or name == "birds60" else 12)


def photo_trial(data: Path, name: str, shots: int, draw: int, test: bool) -> Trial:
    again = shots == 16 and name != "birds60"
    task = all_photos(data, name) if again else training_photos(data, name)
    chosen = few_shot(task.y, shots, draw)
    if name == "birds60" or (test and not again):
        return task.subset(chosen), *photos(data, name)[1:]
    rest = np.setdiff1d(np.arange(task.n), chosen)
    return task.subset(chosen), task.x[0, rest], task.y[rest]


def whu_trial(data: Path, backbone: str, shots: int, draw: int, test: bool) -> Trial:
    x, y, text = whu(data, backbone)
    if not test:
        part = few_shot(y, 16, PART)
        x, y = x[part], y[part]
    chosen = few_shot(y, shots, draw)
    rest = np.setdiff1d(np.arange(len(y)), chosen)
    return Task(x[chosen], y[chosen], text), x[rest], y[rest]


def accuracies(trial: Trial, names: tuple[str, ...] = tuple(METHODS)) -> dict[str, float]:
    """Return percent by method."""
    task, x, y = trial
    found = {}
    for name in names:
        method, options = METHODS[name]
        found[name] = 100 * accuracy(methods.create(method, **options).fit(task).logits(x), y)
    return found


def mean_accuracies(trials: Iterator[Trial]) -> dict[str, float]:
    runs = [accuracies(trial) for trial in trials]
    return {name: fmean(run[name] for run in runs) for name in METHODS}


def line(what: str, found: dict[str, float]) -> None:
    print(
        f"      {what:<32}" + "".join(f"{name} {value:5.1f}   " for name, value in found.items()), flush=True
    )


def worst(cells: dict[tuple[str, int], dict[str, float]]) -> None:
    """Print the set and size at which the default is furthest behind the best of the others."""
    gaps = {
        cell: found["default"] - max(value for name, value in found.items() if name != "default")
        for cell, found in cells.items()
    }
    cell = min(gaps, key=gaps.__getitem__)
    print(f"      least against the best of the others: {cell[0]}, {cell[1]} a class, {gaps[cell]:+.1f}")


def show_photos(data: Path, test: bool, draws: int) -> None:
    cells = {}
    for name in PHOTOS:
        for shots in sizes(name, test):
            times = 1 if (name, shots) == ("birds60", 16) else draws  # all draws would be the same
            trials = (photo_trial(data, name, shots, d + 1, test) for d in range(times))
            cells[name, shots] = mean_accuracies(trials)
            line(f"{name}, {shots} a class", cells[name, shots])
    for place, shots in enumerate(sizes("birds60", test)):
        own = [cells[name, sizes(name, test)[place]] for name in PHOTOS]
        line(f"mean, {shots} a class", {name: fmean(found[name] for found in own) for name in METHODS})
    worst(cells)


def show_whu(data: Path, test: bool, draws: int) -> None:
    cells = {}
    for backbone in BACKBONES:
        for shots in (1, 2, 4, 8, 16 if test else 12):
            trials = (whu_trial(data, backbone, shots, d + 1, test) for d in range(draws))
            found = cells[f"WHU-RS19 {backbone}", shots] = mean_accuracies(trials)
            line(f"WHU-RS19 {backbone}, {shots} a class", found)
    worst(cells)


def imagenet_trial(data: Path, shots: int) -> Trial:
    x, y, text = imagenet(data)
    fit = np.repeat((4, 2, 1), (4000, 2000, 1000)) == shots
    return Task(x[fit], y[fit], text), x[~fit], y[~fit]


def show_imagenet(data: Path, test: bool, draws: int) -> None:
    for shots in (1, 2, 4):
        found = accuracies(imagenet_trial(data, shots), ("default", "prolip", "zero-shot"))
        line(f"ImageNet, ViT-B/32, {shots} a class", found)


def held_out_hits(method: str, options: dict, task: Task) -> tuple[Callable[[Array], Array], Array]:
    """Return the logits of a fit, and which images of the folds it predicts correctly, in their order."""
    fitted, held_out = methods.create(method, **options).fit_held_out(task)
    order = np.argsort(held_out.images)
    return fitted.logits, (held_out.logits[order].argmax(axis=1) == held_out.y[order]).astype(float)


def show_switching(data: Path, test: bool, draws: int) -> None:
    """Print what a fit would gain by switching to a method that is ahead in its folds."""
    gains = defaultdict(list)
    trials = [(photo_trial, name, shots) for name in PHOTOS for shots in sizes(name, test)[1:]]
    trials += [(whu_trial, name, shots) for name in BACKBONES for shots in (2, 4, 8)]
    for trial, name, shots in trials:
        for draw in range(1, draws + 1):
            task, x, y = trial(data, name, shots, draw, test)
            found = {k: held_out_hits(*METHODS[k], task) for k in ("default", "regression", "GDA")}
            scored = {k: 100 * accuracy(logits(x), y) for k, (logits, _) in found.items()}
            for errors in (0, 1, 2):
                taken = switch({k: hits for k, (_, hits) in found.items()}, errors)
                gains[errors].append((taken != "default", scored[taken] - scored["default"]))
    for errors, each in gains.items():
        mean, lowest = fmean(gain for _, gain in each), min(gain for _, gain in each)
        switched = sum(other for other, _ in each)
        print(
            f"      switching beyond 0.5 points and {errors} standard errors: {switched} of {len(each)} "
            f"fits, mean gain {mean:+.2f}, worst {lowest:+.1f}"
        )


def switch(hits: dict[str, Array], errors: float) -> str:
    gaps = {k: own - hits["default"] for k, own in hits.items()}
    ahead = {
        k: gap.mean()
        for k, gap in gaps.items()
        if gap.mean() > max(0.005, errors * gap.std(ddof=1) / len(gap) ** 0.5)
    }
    return max(ahead, key=ahead.__getitem__) if ahead else "default"


def seconds(method: methods.Method, task: Task) -> float:
    """Return the best of three fits."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        method.fit(task)
        found.append(time.perf_counter() - began)
    return min(found)


def show_time(data: Path, test: bool, draws: int) -> None:
    tasks = {f"birds60, {n} a class": photo_trial(data, "birds60", n, 1, False)[0] for n in (1, 4, 16)}
    tasks |= {f"pets37, {n} a class": photo_trial(data, "pets37", n, 1, False)[0] for n in (4, 12)}
    tasks |= {f"WHU-RS19 rn50, {n} a class": whu_trial(data, "rn50", n, 1, False)[0] for n in (1, 12)}
    tasks |= {f"ImageNet, {n} a class": imagenet_trial(data, n)[0] for n in (1, 4)}
    for name, task in tasks.items():
        default = methods.create(DEFAULT)
        settled = methods.from_settings(default.fit(task).settings)
        paper = methods.create("prolip", lam="1/N")
        chosen, plain, other = (seconds(each, task) for each in (default, settled, paper))
        ratios = f"x {chosen / plain:.1f} of a fit with nothing to choose, x {chosen / other:.1f} of prolip"
        print(f"      time, {name:<32}{chosen:.2f} s, {ratios}", flush=True)


PARTS = {
    "photos": show_photos,
    "whu": show_whu,
    "imagenet": show_imagenet,
    "switching": show_switching,
    "time": show_time,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--development", action="store_true", help="the default")
    mode.add_argument("--test", action="store_true", help="test images of the reported sets")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(f"no folder {options.data}: give the one with features/ and images/ as --data")
    for part in options.only:
        PARTS[part](options.data, options.test, options.draws)


if __name__ == "__main__":
    main()
