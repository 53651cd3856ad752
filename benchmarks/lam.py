"""lam = "auto" beside 1/N on the sets where its constants were settled, apart from those that are reported.

    python benchmarks/lam.py [--data ../shared/data] [--seeds 5] [--no-regression]

The built-in textures and digits with the offline encoder; random subsets of ImageNet's classes with CLIP
ViT-B/32 (black box), trained on one few-shot set and tested on another; the training photos of three folders,
4, 8 or 12 of the 16 of a class to fit and the others to test. Mean accuracy in percent, beside that of
cross-validated logistic regression (which takes most of the time) where the encoder is the offline one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from prolip import Task
from prolip.core.arrays import Array
from prolip.data import builtin, sample_few_shot
from prolip.encoders import load
from prolip.features import FeatureStore, extract
from prolip.solvers import automatic, exact
from solver_tasks import photos

Trial = tuple[Task, Array, Array]  # a task, test features, test labels


def builtin_trials(name: str, shots: int, seeds: int) -> Iterator[Trial]:
    encoder = load("offline")
    train, test = (builtin(name, count, seed=5, split=part) for count, part in ((64, "train"), (60, "test")))
    x = extract(encoder, [*train.images, *test.images], store=FeatureStore()).features[0]
    text = encoder.text(train.classes, train.templates)
    for seed in range(1, seeds + 1):
        chosen = sample_few_shot(train.labels, shots, seed)
        y = [train.labels[i] for i in chosen]
        task = Task(x[chosen], y, text, encoder.head, encoder.scale)
        yield task, x[len(train) :], np.array(test.labels)


def imagenet_trials(data: Path, classes: int, shots: int, seeds: int) -> Iterator[Trial]:
    with np.load(data / "features" / "imagenet_fewshot_clip_vit_b_32.npz") as stored:
        held_out = 2 if shots == 4 else 4
        x, y = stored[f"train{shots}_x"].astype(np.float32), stored[f"train{shots}_y"]
        x_test, y_test = stored[f"train{held_out}_x"].astype(np.float32), stored[f"train{held_out}_y"]
        text = stored["text"]
    for seed in range(1, seeds + 1):
        chosen = np.sort(np.random.default_rng(seed).permutation(1000)[:classes])
        place = np.full(1000, -1)
        place[chosen] = np.arange(classes)
        mine, theirs = place[y] >= 0, place[y_test] >= 0
        yield Task(x[mine], place[y[mine]], text[chosen]), x_test[theirs], place[y_test[theirs]]


def photo_trials(data: Path, name: str, shots: int, seeds: int) -> Iterator[Trial]:
    """4, 8 or 12 of the 16 photos of a class to fit; every photo takes its turn, in `seeds` random orders."""
    task, _, _ = photos(data, name)
    part = min(shots, 16 - shots)
    for seed in range(1, seeds + 1):
        turn = np.empty_like(task.y)
        for label in range(task.classes):
            images = np.flatnonzero(task.y == label)
            turn[np.random.default_rng([seed, label]).permutation(images)] = np.arange(len(images)) // part
        for k in range(16 // part):
            fitted = turn == k if shots == part else turn != k
            yield task.subset(np.flatnonzero(fitted)), task.x[0][~fitted], task.y[~fitted]


def accuracy(task: Task, weight: Array, x: Array, y: Array) -> float:
    embedded = task.linear.with_weight(weight)(x)
    return 100 * float(np.mean((embedded @ task.text.rows.T).argmax(axis=1) == y))


def regression(task: Task, x: Array, y: Array) -> float:
    from solver import logistic_regression  # which imports torch

    return 100 * logistic_regression(task, x, y)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-regression", action="store_true")
    arguments = parser.parse_args()
    settings = [
        (f"{name}, {n} per class", builtin_trials(name, n, arguments.seeds))
        for name in ("textures", "digits")
        for n in (1, 4, 16)
    ]
    if (arguments.data / "features").is_dir():
        settings += [
            (
                f"{name}, training photos, {n} per class",
                photo_trials(arguments.data, name, n, arguments.seeds),
            )
            for name in ("pets37", "dtd10", "clothing10")
            for n in (4, 8, 12)
        ]
        settings += [
            (f"ImageNet, {k} classes, {n} per class", imagenet_trials(arguments.data, k, n, arguments.seeds))
            for k in (20, 60, 200)
            for n in (1, 2, 4)
        ]
    else:
        print(f"skip  ImageNet, photos: no folder {arguments.data / 'features'}")
    for name, trials in settings:
        scores = []
        for task, x, y in trials:
            weights = (automatic(task)[0].weight, exact(task, 1 / task.shots).weight)
            scores.append([accuracy(task, weight, x, y) for weight in weights])
            if not (task.black_box or task.shots == 1 or arguments.no_regression):
                scores[-1].append(regression(task, x, y))
        auto, plain, *rest = (statistics.mean(column) for column in zip(*scores, strict=True))
        beside = f"   regression {rest[0]:5.1f}" if rest else ""
        print(f"{name:<40} auto {auto:5.1f}   1/N {plain:5.1f}   {auto - plain:+5.1f}{beside}", flush=True)


if __name__ == "__main__":
    main()
