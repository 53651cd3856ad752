"""What unlabelled images bring: `fit --unlabelled` and `predict --transductive` beside the plain answer.

    python benchmarks/unlabelled.py [--data ../shared/data] [--sets birds60 ..] [--shots 1 4 16] [--seeds 3]
                                    [--reported] [--scale 100000]

Development, where everything was settled: birds60; built-in digits and textures; the training photos of
pets37, dtd10 and clothing10 and 16 images a class of WHU-RS19, N of a class to fit and the others to ask
about. With --reported the test photos, and all other images of WHU-RS19, are asked about instead; with 16
images a class of photos, all that are not labelled (of 16 training photos there is one way to take 16).

Per set and number of images a class, mean over draws, in points of accuracy against the plain answer: all
images answered together; the same with a quarter of the classes present; a pool (a random half of the images)
for the other half; the same with as many foreign images in it. Then how often the evidence let each be used,
and how long it took, in plain fits. --scale times both on so many images, made from pairs of birds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from functools import cache
from pathlib import Path

import numpy as np

from prolip import Task, methods
from prolip.core.arrays import Array
from prolip.data import builtin, sample_few_shot
from prolip.encoders import load
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.metrics import accuracy
from prolip.evaluate.unlabelled import learn_from, predict_transductive
from prolip.features import FeatureStore, extract
from solver_tasks import all_photos, photos, whu

BACKBONES = {"whu_rn50": "rn50", "whu_vit_b_32": "vit_b_32"}
PHOTOS = ("pets37", "dtd10", "clothing10")
SETS = ("birds60", *PHOTOS, "digits", "textures", *BACKBONES)
FOREIGN = {"clothing10": "birds60", "dtd10": "pets37"}  # where the offline encoder is; the others: clothing10
COLUMNS = ("together", "few classes", "pool", "with foreign")
ASKED = {"pool": (89.0, 93.0, 97.0), "together": (92.0, 94.0, 97.5)}  # WHU-RS19 RN50, 1, 4 and 16 images


def trial(data: Path, name: str, shots: int, seed: int, reported: bool) -> tuple[Task, Array, Array]:
    """A support set, and images to ask about with their labels."""
    if name in BACKBONES:
        x, y, text = whu(data, BACKBONES[name])
        whole = Task(x, y, text)
        if not reported:
            whole = whole.subset(np.array(sample_few_shot(y.tolist(), 16, seed=777)))
    else:
        whole, x, y = drawn(name) if name in ("digits", "textures") else photos(data, name)
    again = shots == 16 and reported and name in PHOTOS
    whole = all_photos(data, name) if again else whole
    chosen = np.array(sample_few_shot(whole.y.tolist(), shots, seed))
    if not again and (name not in (*PHOTOS, *BACKBONES) or (reported and name in PHOTOS)):
        return whole.subset(chosen), x, y
    rest = np.setdiff1d(np.arange(whole.n), chosen)
    return whole.subset(chosen), whole.x[0, rest], whole.y[rest]


@cache
def drawn(name: str) -> tuple[Task, Array, Array]:
    """64 images a class of a built-in set to fit, 60 to ask about."""
    encoder = load("offline")
    train, test = (builtin(name, count, seed=5, split=part) for count, part in ((64, "train"), (60, "test")))
    x = extract(encoder, [*train.images, *test.images], store=FeatureStore()).features[0]
    text = encoder.text(train.classes, train.templates)
    task = Task(x[: len(train)], train.labels, text, encoder.head, encoder.scale)
    return task, x[len(train) :], np.array(test.labels)


def measure(task: Task, x: Array, y: Array, foreign: Array | None, seed: int) -> dict[str, float]:
    """Accuracies in percent, whether each was used, and seconds in plain fits."""
    started = time.perf_counter()
    fitted, held_out = methods.create("prolip").fit_held_out(task)
    confidence = Confidence.of(fitted, task, held_out)
    plain_seconds = time.perf_counter() - started
    plain, rng = fitted.logits(x), np.random.default_rng(seed)
    present = rng.permutation(task.classes)[: max(2, round(0.26 * task.classes))]
    some, half = np.isin(y, present), rng.random(len(y)) < 0.5
    found = {"plain": 100 * accuracy(plain, y), "plain fit": plain_seconds}
    for column, asked in (("together", np.ones(len(y), bool)), ("few classes", some)):
        started = time.perf_counter()
        joint = predict_transductive(fitted, confidence, task, x[asked])
        found[f"{column} time"] = (time.perf_counter() - started) / plain_seconds
        gain = accuracy(joint.probabilities, y[asked]) - accuracy(plain[asked], y[asked])
        found |= {column: 100 * gain, f"{column} used": joint.evidence.used}
    for column, more in (("pool", None), ("with foreign", foreign)):
        if column == "with foreign" and more is None:
            continue
        pool = x[half] if more is None else np.concatenate([x[half], more[: half.sum()]])
        started = time.perf_counter()
        learned = learn_from(fitted, confidence, task, pool)
        found[f"{column} time"] = (time.perf_counter() - started) / plain_seconds
        gain = accuracy(learned.fitted.logits(x[~half]), y[~half]) - accuracy(plain[~half], y[~half])
        found |= {column: 100 * gain, f"{column} used": learned.evidence.used}
        found[f"{column} accuracy"] = 100 * accuracy(learned.fitted.logits(x[~half]), y[~half])
    return found


def foreign_images(data: Path, name: str, count: int, seed: int) -> Array | None:
    """Images of no class of this set, where there are any under its encoder; repeated if they are too few."""
    if name in BACKBONES:
        return None
    x = photos(data, FOREIGN.get(name, "clothing10"))[0].x[0]
    return x[np.random.default_rng(seed).choice(len(x), count, replace=count > len(x))]


def show(name: str, shots: int, found: dict[str, float]) -> None:
    """One row of the table."""
    cells = ""
    for column in COLUMNS:
        used, took = found.get(f"{column} used", 0), found.get(f"{column} time", 0)
        cell = f"{found[column]:+.1f} ({used:.0%}, {took:.1f})" if column in found else "-"
        cells += f"{cell:>22}"
    print(f"{name:<14}{shots:>7}{found['plain']:>7.1f}{cells}", flush=True)


def summarise(means: dict[tuple[str, int], dict[str, float]]) -> None:
    """Mean and least gain over the sets."""
    for shots in sorted({shots for _, shots in means}):
        rows = [found for (_, n), found in means.items() if n == shots]
        gains = [[row[column] for row in rows if column in row] for column in COLUMNS]
        told = ", ".join(
            f"{column} {statistics.mean(each):+.2f} (least {min(each):+.1f})"
            for column, each in zip(COLUMNS, gains, strict=True)
            if each
        )
        print(f"mean of {len(rows)} sets, {shots} images a class: {told}")


def compare(means: dict[tuple[str, int], dict[str, float]]) -> None:
    """WHU-RS19, CLIP RN50, beside what was asked."""
    for place, shots in enumerate((1, 4, 16)):
        if found := means.get(("whu_rn50", shots)):
            seen = {"pool": found["pool accuracy"], "together": found["plain"] + found["together"]}
            for name, asked in ASKED.items():
                met = "ok  " if seen[name] >= asked[place] - 0.3 else "LESS"
                print(f"{met}  WHU-RS19 RN50, {shots}: {name} {seen[name]:.1f}, asked {asked[place]}")


def scale(data: Path, count: int) -> None:
    """Seconds and memory of a pool of so many images."""
    task, x, _ = trial(data, "birds60", 4, 1, reported=False)
    rng = np.random.default_rng(0)
    a, b = rng.integers(len(x), size=count), rng.integers(len(x), size=count)
    pool = (0.7 * x[a] + 0.3 * x[b]).astype(np.float32)
    fitted, held_out = methods.create("prolip").fit_held_out(task)
    confidence = Confidence.of(fitted, task, held_out)
    for name, run in (("pool", learn_from), ("together", predict_transductive)):
        started = time.perf_counter()
        found = run(fitted, confidence, task, pool)
        seconds, memory = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = f"{seconds:.1f} s, {memory / 2**20:.1f} GB in all; {found.evidence.why}"
        print(f"{name}, {count:,} images of 60 classes: {told}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 2, 4, 8, 12, 16])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--reported", action="store_true", help="ask about the test images: once, at the end")
    parser.add_argument("--scale", type=int, help="only time a pool of so many images")
    given = parser.parse_args()
    if given.scale:
        scale(given.data, given.scale)
        return
    header = "".join(f"{column:>22}" for column in COLUMNS)
    print(f"{'set':<14}{'images':>7}{'plain':>7}{header}    gain (used, time in plain fits)")
    means: dict[tuple[str, int], dict[str, float]] = {}
    for name in given.sets:
        inside = not given.reported and name in (*PHOTOS, *BACKBONES)  # 16 images a class in all
        for shots in (shots for shots in given.shots if shots != (16 if inside else 12)):
            runs = []
            for seed in range(1, given.seeds + 1):
                task, x, y = trial(given.data, name, shots, seed, given.reported)
                runs.append(measure(task, x, y, foreign_images(given.data, name, len(y), seed), seed))
            means[name, shots] = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
            show(name, shots, means[name, shots])
    summarise(means)
    if given.reported:
        compare(means)


if __name__ == "__main__":
    main()
