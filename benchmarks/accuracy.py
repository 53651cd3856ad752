"""Accuracy of methods beside each other, and of the default beside itself with more to learn from.

    python benchmarks/accuracy.py [--data data] [--only methods views unlabelled]
                                  [--sets pets37 ..] [--shots 1 4 16] [--seeds 5]
                                  [--methods gda rla:lam=1/N ..] [--csv runs.csv] [--markdown table.md]
                                  [--test] [--pool 100000]

`methods`: every method on cached features, on the sets of `method_tasks.py`, with its seconds. A method may
have options: name:option=value:option=value. Runs are added to the --csv file as they end, and not repeated.

`views`: N training photos of each class in several augmented views, the other training photos to predict; the
gain over one view with its standard error over draws.

`unlabelled`: `fit --unlabelled` beside the plain prediction, in points: a pool (a random half of the images)
for the other half; the same with as many out-of-distribution images in the pool. Then how often the evidence
let it be used, and its time in plain fits. Development sets by default; --test predicts the test images
instead. --pool only times a pool of that many images, made from pairs of birds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import resource
import statistics
import time
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from method_tasks import DEFAULT, DEVELOPMENT, REPORTED, Trial, drawn, has, trial
from prolip import Task, methods
from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.data import as_templates, read_images, sample_few_shot
from prolip.encoders import Encoder, load
from prolip.evaluate import metrics
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.unlabelled import learn_from
from prolip.features import FeatureStore, extract
from solver_tasks import TEMPLATES, all_photos, few_shot, photos, whu

PHOTOS = ("pets37", "dtd10", "clothing10")
BACKBONES = {"whu_rn50": "rn50", "whu_vit_b_32": "vit_b_32"}
DRAWN = ("digits", "textures")
UNLABELLED_SETS = ("birds60", *PHOTOS, *DRAWN, *BACKBONES)
METHODS = (
    *("zero_shot", "linear_probe", "linear_probe:features=pre", "lp_plus_plus", "cross_modal", "clap"),
    *("task_res", "clip_adapter", "tip_adapter", "tip_adapter_f", "tip_adapter_f_star", "gda", "proker"),
    *("rla:lam=1/N", "prolip_text", "prolip", "prolip+rla", "prolip+tip_adapter_f"),
    *("prolip+task_res", DEFAULT),
)


def percent(logits: Array, y: Array) -> float:
    return 100 * metrics.accuracy(logits, y)


# Methods


def show_methods(options: argparse.Namespace) -> None:
    done = read_runs(options.csv)
    sets = options.sets or REPORTED
    wanted = [
        (name, shots, seed, method)
        for name in sets
        for shots in options.shots
        for seed in range(1, options.seeds + 1)
        for method in options.methods
        if has(name, shots, seed)
    ]
    for key in wanted:
        if key not in done:
            name, shots, seed, method = key
            done[key] = run(method, seed, cached_trial(options.data, name, shots, seed))
            write_run(options.csv, key, done[key])
    tables = [table(name, {key: done[key] for key in wanted if key[0] == name}) for name in sets]
    print("\n\n".join(tables))
    if options.markdown:
        options.markdown.write_text("\n\n".join(tables) + "\n", encoding="utf-8")


@cache
def cached_trial(data: Path, name: str, shots: int, seed: int) -> Trial:
    return trial(data, name, shots, seed)


def run(spec: str, seed: int, found: Trial) -> tuple[float, float, float]:
    """Accuracy in percent, and the wall and processor seconds of the fit; NaN where text features lack."""
    task, x, y = found
    method = create(spec, seed)
    started, worked = time.perf_counter(), time.process_time()
    try:
        fitted = method.fit(task)
    except ProlipError:  # a method on text features, and a task without them
        return float("nan"), 0.0, 0.0
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    return percent(fitted.logits(x), y), seconds, cpu


def create(spec: str, seed: int) -> methods.Method:
    """Make a method from name:option=value:option=value."""
    name, *pairs = spec.split(":")
    chosen: dict = {}
    for pair in pairs:
        option, _, value = pair.partition("=")
        for kind in (int, float, str):
            with contextlib.suppress(ValueError):
                chosen[option] = kind(value)
                break
    if "seed" in methods.options(name):
        chosen.setdefault("seed", seed)
    return methods.create(name, **chosen)


def table(title: str, runs: dict) -> str:
    """Mean and standard deviation over seeds, and seconds of a fit, as Markdown."""
    shots = sorted({key[1] for key in runs})
    lines = [
        f"| {title} | " + " | ".join(f"{n} a class" for n in shots) + " | s, mean | s, most | CPU s, most |",
        "| --- |" + " ---: |" * (len(shots) + 3),
    ]
    for method in dict.fromkeys(key[3] for key in runs):
        cells = []
        for n in shots:
            own = [run[0] for key, run in runs.items() if key[1] == n and key[3] == method]
            cells.append(f"{np.mean(own):.1f} ± {np.std(own):.1f}" if own else "-")
        seconds, cpu = ([run[i] for key, run in runs.items() if key[3] == method] for i in (1, 2))
        times = f"{np.mean(seconds):.2f} | {max(seconds):.2f} | {max(cpu):.2f}"
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {times} |")
    return "\n".join(lines)


def read_runs(path: Path | None) -> dict:
    """Read the runs that a CSV file already has."""
    if path is None or not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (name, int(shots), int(seed), method): tuple(map(float, figures))
            for name, shots, seed, method, *figures in csv.reader(file)
        }


def write_run(path: Path | None, key: tuple, figures: tuple[float, ...]) -> None:
    if path is not None:
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([*key, *(f"{figure:.4f}" for figure in figures)])


# Views


def show_views(options: argparse.Namespace) -> None:
    encoder, gains, counts = load("offline"), defaultdict(list), (2, 5, 9)
    for name in options.sets or ("birds60", *PHOTOS, *DRAWN):
        task = task_of_views(encoder, options.data, name, max(counts))
        for shots in options.shots:
            draws = [few_shot(task.y, shots, seed + 1) for seed in range(options.seeds)]
            found = np.array([[views_accuracy(task, draw, v) for v in (1, *counts)] for draw in draws])
            gap = found[:, 1:] - found[:, :1]
            gains[shots].append(gap.mean(axis=0))
            error = gap.std(axis=0, ddof=1) / len(draws) ** 0.5
            columns = zip(counts, gap.mean(axis=0), error, strict=True)
            cells = "   ".join(f"{v} views {g:+5.1f} ± {e:3.1f}" for v, g, e in columns)
            print(f"{name:<12} {shots} a class, one view {found[:, 0].mean():5.1f}   {cells}", flush=True)
    for shots, each in gains.items():
        cells = "   ".join(f"{v} views {g:+.2f}" for v, g in zip(counts, np.mean(each, axis=0), strict=True))
        print(f"mean, {shots} a class: {cells}")


def task_of_views(encoder: Encoder, data: Path, name: str, views: int) -> Task:
    """All training images of a set, every view; built-in sets have 16 images of each class here."""
    if name in DRAWN:
        found, templates = drawn(name, 16, "train")
        images, labels, names = found.images, found.labels, found.classes
    else:
        found = read_images(data / "images" / name, split="train")
        images, labels, names, templates = found.images, found.labels, found.names, TEMPLATES.get(name)
    x = extract(encoder, images, views=range(views), store=FeatureStore()).features
    return Task(x, labels, encoder.text(list(names), as_templates(templates)), encoder.head, encoder.scale)


def views_accuracy(task: Task, chosen: Array, views: int) -> float:
    rest = np.setdiff1d(np.arange(task.n), chosen)
    few = Task(task.x[:views, chosen], task.y[chosen], task.text, task.head, task.scale)
    return percent(methods.create(DEFAULT).fit(few).logits(task.x[0, rest]), task.y[rest])


# Unlabelled images

COLUMNS = ("pool", "mixed pool")


def show_unlabelled(options: argparse.Namespace) -> None:
    if options.pool:
        time_pool(options.data, options.pool)
        return
    header = "".join(f"{column:>22}" for column in COLUMNS)
    print(f"{'set':<14}{'images':>7}{'plain':>7}{header}    gain (used, time in plain fits)")
    means = {}
    for name in options.sets or UNLABELLED_SETS:
        inside = not options.test and name in (*PHOTOS, *BACKBONES)  # 16 images a class in all
        for shots in (shots for shots in options.shots if shots != (16 if inside else 12)):
            runs = []
            for seed in range(1, options.seeds + 1):
                found = unlabelled_trial(options.data, name, shots, seed, options.test)
                others = other_images(options.data, name, len(found[2]), seed)
                runs.append(unlabelled_gains(found, others, seed))
            means[name, shots] = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
            show_gains(name, shots, means[name, shots])
    for shots in sorted({shots for _, shots in means}):
        rows = [found for (_, n), found in means.items() if n == shots]
        gains = {column: [row[column] for row in rows if column in row] for column in COLUMNS}
        cells = (f"{c} {statistics.mean(g):+.2f} (least {min(g):+.1f})" for c, g in gains.items() if g)
        print(f"mean of {len(rows)} sets, {shots} images a class: {', '.join(cells)}")


def show_gains(name: str, shots: int, found: dict[str, float]) -> None:
    cells = ""
    for column in COLUMNS:
        used, took = found.get(f"{column} used", 0), found.get(f"{column} time", 0)
        cells += f"{f'{found[column]:+.1f} ({used:.0%}, {took:.1f})' if column in found else '-':>22}"
    print(f"{name:<14}{shots:>7}{found['plain']:>7.1f}{cells}", flush=True)


def unlabelled_trial(data: Path, name: str, shots: int, seed: int, test: bool) -> Trial:
    """A support set, and images to predict with their labels."""
    if name in BACKBONES:
        x, y, text = whu(data, BACKBONES[name])
        whole = Task(x, y, text)
        whole = whole if test else whole.subset(np.array(sample_few_shot(y.tolist(), 16, seed=777)))
    else:
        whole, x, y = drawn_set(name) if name in DRAWN else photos(data, name)
    mixed = shots == 16 and test and name in PHOTOS  # the training photos hold one set of 16
    whole = all_photos(data, name) if mixed else whole
    chosen = few_shot(whole.y, shots, seed)
    if not mixed and (name not in (*PHOTOS, *BACKBONES) or (test and name in PHOTOS)):
        return whole.subset(chosen), x, y
    rest = np.setdiff1d(np.arange(whole.n), chosen)
    return whole.subset(chosen), whole.x[0, rest], whole.y[rest]


@cache
def drawn_set(name: str) -> Trial:
    """64 images a class of a built-in set to fit, 60 to predict."""
    encoder = load("offline")
    (train, templates), (test, _) = drawn(name, 64, "train"), drawn(name, 60, "test")
    x = extract(encoder, [*train.images, *test.images], store=FeatureStore()).features[0]
    text = encoder.text(train.classes, templates)
    task = Task(x[: len(train)], train.labels, text, encoder.head, encoder.scale)
    return task, x[len(train) :], np.array(test.labels)


def other_images(data: Path, name: str, count: int, seed: int) -> Array | None:
    """Out-of-distribution images, where there are any under the encoder of this set."""
    if name in BACKBONES:
        return None
    x = photos(data, {"clothing10": "birds60", "dtd10": "pets37"}.get(name, "clothing10"))[0].x[0]
    return x[np.random.default_rng(seed).choice(len(x), count, replace=count > len(x))]


def fit_with_confidence(task: Task) -> tuple:
    fitted, held_out = methods.create(DEFAULT).fit_held_out(task)
    return fitted, Confidence.of(fitted, task, held_out)


def unlabelled_gains(found: Trial, others: Array | None, seed: int) -> dict[str, float]:
    """Gains in points, whether each was used, and seconds in plain fits."""
    task, x, y = found
    started = time.perf_counter()
    fitted, confidence = fit_with_confidence(task)
    plain_seconds = time.perf_counter() - started
    plain, rng = fitted.logits(x), np.random.default_rng(seed)
    gains = {"plain": percent(plain, y)}
    half = rng.random(len(y)) < 0.5
    pools = {"pool": x[half]}
    if others is not None:
        pools["mixed pool"] = np.concatenate([x[half], others[: half.sum()]])
    for column, pool in pools.items():
        started = time.perf_counter()
        learned = learn_from(fitted, confidence, task, pool)
        gains[f"{column} time"] = (time.perf_counter() - started) / plain_seconds
        gains[column] = percent(learned.fitted.logits(x[~half]), y[~half]) - percent(plain[~half], y[~half])
        gains[f"{column} used"] = learned.evidence.used
    return gains


def time_pool(data: Path, count: int) -> None:
    task, x, _ = unlabelled_trial(data, "birds60", 4, 1, test=False)
    rng = np.random.default_rng(0)
    a, b = rng.integers(len(x), size=count), rng.integers(len(x), size=count)
    pool = (0.7 * x[a] + 0.3 * x[b]).astype(np.float32)
    fitted, confidence = fit_with_confidence(task)
    started = time.perf_counter()
    found = learn_from(fitted, confidence, task, pool)
    seconds, memory = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{count:,} images: {seconds:.1f} s, {memory / 2**20:.1f} GB; {found.evidence.why}")


PARTS = {
    "methods": show_methods,
    "views": show_views,
    "unlabelled": show_unlabelled,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sets", nargs="+", choices=sorted({*REPORTED, *DEVELOPMENT, *UNLABELLED_SETS}))
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 2, 4, 8, 12, 16])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--pool", type=int)
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(f"no folder {options.data}: give the one with features/ and images/ as --data")
    for part in options.only:
        PARTS[part](options)


if __name__ == "__main__":
    main()
