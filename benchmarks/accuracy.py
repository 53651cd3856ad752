"""Methods beside each other on real features: accuracy, calibration, rejection, unlabelled images, time.

    python benchmarks/accuracy.py [--data data] [--sets clip whu photos imagenet drawn or single sets]
                                  [--measure accuracy calibration rejection unlabelled sure sets
                                  views time]
                                  [--methods gda rla:lam=1/N ..] [--shots 1 2 4 8 16] [--draws 5] [--test]

Every figure is the mean over draws with its standard deviation; the last rows are means over sets. Sets:

    clip      dtd10, clothing10 and 24 breeds of pets37 under OpenAI's CLIP ViT-B/16, before the projection
    whu       WHU-RS19 under CLIP RN50 and ViT-B/32, embeddings
    photos    birds60, pets37, dtd10 and clothing10 under `offline`
    imagenet  one few-shot set of training images under ViT-B/32 to fit, the others to test
    drawn     textures that are drawn, under `offline`

N photos of each class to fit, the others to test; of `photos` the test photos with --test, training photos
without, so that defaults are not settled on what is reported. Of WHU-RS19 sixteen images of each class
without --test. All of `clip` and birds60 are development sets: the default was settled on them.

A method may have options: name:option=value:option=value. Other measures:

    calibration  the default after calibration inside the support set, others as they are
    rejection    photos of other sets that are accepted, and photos of the classes that are rejected, at 5 %;
                 of unknown classes, half of the set, without and with 20 negatives of these; of another set,
                 with 20 negatives of a third
    unlabelled   points that a pool of half of the photos brings for the other half
    sure         those that its sure predictions bring as labels, and how far held-out accuracy of the
                 labelled photos is then above accuracy on others
    sets         how often prediction sets at 95 % hold the label, and how many classes they have
    views        points that more views of each training photo bring
    time         seconds of a fit, and how many times those of the same with nothing left to choose
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from prolip import Task, methods
from prolip.core import Fitted, ProlipError
from prolip.core.arrays import Array, softmax
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.metrics import accuracy, calibration_error
from prolip.evaluate.out_of_distribution import OutOfDistribution, directions
from prolip.evaluate.prediction_sets import prediction_sets, set_threshold
from prolip.evaluate.unlabelled import fit_with_pool
from prolip.features import FeatureStore, extract
from prolip.research.running.plan import parse_entry
from tasks import DEFAULT, GROUPS, few_shot, source_photos, trial, whole_task

METHODS = (DEFAULT, "prolip", "gda", "linear_probe:features=pre", "zero_shot")
VIEWS = (2, 5, 9)
NEGATIVES = 20
SURE = 0.9  # the probability from which the page offers predictions as labels


def create(spec: str, seed: int) -> methods.Method:
    """Make a method from name:option=value:option=value."""
    name, options = parse_entry(spec)
    if "seed" in methods.options(name):
        options.setdefault("seed", seed)
    return methods.create(name, **options)


def fit_with_confidence(task: Task) -> tuple[Fitted, Confidence]:
    fitted, held_out = methods.create(DEFAULT).fit_held_out(task)
    return fitted, Confidence.of(fitted, task, held_out)


def measure_accuracy(run: Run) -> dict[str, float]:
    figures = {}
    for spec in run.methods:
        try:
            figures[spec] = 100 * accuracy(create(spec, run.draw).fit(run.task).logits(run.x), run.y)
        except ProlipError:  # a method on text features, and a task without them
            figures[spec] = float("nan")
    return figures


def measure_calibration(run: Run) -> dict[str, float]:
    fitted, confidence = fit_with_confidence(run.task)
    figures = {DEFAULT: calibration_error(softmax(fitted.logits(run.x) / confidence.temperature), run.y)}
    for spec in run.methods:
        if spec != DEFAULT:
            logits = create(spec, run.draw).fit(run.task).logits(run.x)
            figures[spec] = calibration_error(softmax(logits), run.y)
    return {name: 100 * value for name, value in figures.items()}


def measure_rejection(run: Run) -> dict[str, float]:
    fitted, confidence = fit_with_confidence(run.task)
    group = next(names for names in GROUPS.values() if run.name in names)
    others = [whole_task(run.data, name) for name in group if name != run.name]

    def rejected(images: Array) -> float:
        predicted = fitted.logits(images).argmax(axis=1)
        return 100 * float(confidence.out_of_distribution.reject(images, run.task.linear, predicted).mean())

    same = [task.x[0] for task in others if task.x.shape[2] == run.x.shape[1]]
    figures = {"own rejected": rejected(run.x)}
    if len(same) > 1:
        figures |= {"others accepted": 100 - rejected(np.concatenate(same)), **measure_negatives(run, same)}
    return figures


def measure_negatives(run: Run, others: list[Array]) -> dict[str, float]:
    """What is accepted without and with 20 negatives."""
    task, rng = run.task, np.random.default_rng(run.draw)
    known = np.sort(rng.permutation(task.classes)[: task.classes // 2])
    few = task.select_classes(known)
    unknown = rng.permutation(run.x[~np.isin(run.y, known)])
    own = run.x[np.isin(run.y, known)]

    def accepted(strangers: Array, support: Task, negatives: Array | None) -> float:
        negatives = None if negatives is None else directions(negatives, task.linear)
        out = OutOfDistribution.of(support, negatives)
        return 100 * float(np.mean(out.score(strangers, task.linear) >= out.threshold()))

    mixed, first = rng.permutation(np.concatenate(others)), rng.permutation(others[0])
    return {
        "unknown": accepted(unknown[NEGATIVES:], few, None),
        "with": accepted(unknown[NEGATIVES:], few, unknown[:NEGATIVES]),
        "own rejected with": 100 - accepted(own, few, unknown[:NEGATIVES]),
        "others with": accepted(mixed[NEGATIVES:], task, mixed[:NEGATIVES]),
        "third set": accepted(others[1], task, None),
        "third with": accepted(others[1], task, first[:NEGATIVES]),
    }


def measure_unlabelled(run: Run) -> dict[str, float]:
    fitted, confidence = fit_with_confidence(run.task)
    half = np.random.default_rng(run.draw).random(len(run.y)) < 0.5
    with_pool, _, evidence = fit_with_pool(fitted, confidence, run.task, run.x[half])
    plain, after = (100 * accuracy(one.logits(run.x[~half]), run.y[~half]) for one in (fitted, with_pool))
    return {"plain": plain, "gain": after - plain, "used, %": 100.0 * evidence.used}


def measure_sure(run: Run) -> dict[str, float]:
    """What the sure predictions for half of the photos bring as labels, for the other half."""
    fitted, confidence = fit_with_confidence(run.task)
    half = np.random.default_rng(run.draw).random(len(run.y)) < 0.5
    p = softmax(fitted.logits(run.x[half]) / confidence.temperature)
    sure = p.max(axis=1) >= SURE
    x = np.concatenate([run.task.x[0], run.x[half][sure]])
    y = np.concatenate([run.task.y, p.argmax(axis=1)[sure]])
    after, held_out = methods.create(DEFAULT).fit_held_out(
        Task(x, y, run.task.text, run.task.head, run.task.scale)
    )
    person = held_out.images < run.task.n
    plain, new = (100 * accuracy(one.logits(run.x[~half]), run.y[~half]) for one in (fitted, after))
    own = 100 * accuracy(held_out.logits[person], held_out.y[person])
    return {"plain": plain, "gain": new - plain, "held-out accuracy too high by": own - new}


def measure_sets(run: Run) -> dict[str, float]:
    """How often prediction sets at 95 % have the label, and how many classes."""
    fitted, confidence = fit_with_confidence(run.task)
    held_out, temperature = confidence.held_out, confidence.temperature
    p, every = softmax(held_out.logits / temperature), np.arange(len(held_out.y))
    weights = run.task.weights[held_out.images]
    threshold = set_threshold(p[every, held_out.y], weights, 0.95)
    sets = prediction_sets(softmax(fitted.logits(run.x) / temperature), threshold)
    return {
        "in the set, %": 100 * float(np.mean([y in own for own, y in zip(sets, run.y, strict=True)])),
        "classes": float(np.mean([len(own) for own in sets])),
        "accuracy": 100 * accuracy(fitted.logits(run.x), run.y),
    }


def measure_views(run: Run) -> dict[str, float]:
    """What more views of the training photos bring, on the other training photos."""
    images, task = views_of(run.data, run.name)
    chosen = few_shot(task.y, run.shots, run.draw)
    rest = np.setdiff1d(np.arange(task.n), chosen)

    def percent(views: int) -> float:
        few = Task(images[:views, chosen], task.y[chosen], task.text, task.head, task.scale)
        return 100 * accuracy(methods.create(DEFAULT).fit(few).logits(images[0, rest]), task.y[rest])

    one = percent(1)
    return {"one view": one, **{f"{views} views": percent(views) - one for views in VIEWS}}


@cache
def views_of(data: Path, name: str) -> tuple[Array, Task]:
    """Features [V, n, Do] of all training photos of a set, and their task in one view."""
    encoder, photos, task = source_photos(data, name)
    return extract(encoder, photos, views=range(max(VIEWS)), store=FeatureStore()).features, task


def measure_time(run: Run) -> dict[str, float]:
    def seconds(method: methods.Method) -> float:
        began = time.perf_counter()
        method.fit(run.task)
        return time.perf_counter() - began

    figures = {}
    for spec in run.methods:
        method = create(spec, run.draw)
        settled = methods.from_settings(method.fit(run.task).settings)
        figures[f"{spec}, s"] = min(seconds(method) for _ in range(3))
        figures[f"{spec}, times settled"] = figures[f"{spec}, s"] / min(seconds(settled) for _ in range(3))
    return figures


MEASURES: dict[str, Callable[[Run], dict[str, float]]] = {
    "accuracy": measure_accuracy,
    "calibration": measure_calibration,
    "rejection": measure_rejection,
    "unlabelled": measure_unlabelled,
    "sure": measure_sure,
    "sets": measure_sets,
    "views": measure_views,
    "time": measure_time,
}


class Run:
    """One draw of a set."""

    def __init__(self, data: Path, name: str, shots: int, draw: int, test: bool, specs: list[str]) -> None:
        self.data, self.name, self.shots, self.draw, self.methods = data, name, shots, draw, specs
        self.task, self.x, self.y = trial(data, name, shots, draw, test)


def show(measure: str, options: argparse.Namespace) -> None:
    """Print a row for each set and size, and the means over sets."""
    means: dict[int, list[dict[str, float]]] = {}
    sets = [name for word in options.sets for name in GROUPS.get(word, (word,))]
    for shots in options.shots:
        for name in sets:
            try:
                runs = [
                    MEASURES[measure](Run(options.data, name, shots, draw, options.test, options.methods))
                    for draw in range(1, options.draws + 1)
                ]
            except ValueError as error:  # a set without so many images, or without photos
                print(f"{measure}, {name}, {shots} a class: {error}", flush=True)
                continue
            table = {key: np.array([run[key] for run in runs]) for key in runs[0]}
            means.setdefault(shots, []).append({key: float(values.mean()) for key, values in table.items()})
            cells = (f"{key} {values.mean():.1f} ± {values.std():.1f}" for key, values in table.items())
            print(f"{measure}, {name}, {shots} a class".ljust(44) + "   ".join(cells), flush=True)
    for shots, rows in means.items():
        keys = [key for key in rows[0] if all(key in row for row in rows)]
        cells = (f"{key} {np.nanmean([row[key] for row in rows]):.1f}" for key in keys)
        print(f"{measure}, mean of {len(rows)}, {shots} a class".ljust(44) + "   ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--sets", nargs="+", default=["clip"])
    parser.add_argument("--measure", nargs="+", choices=MEASURES, default=["accuracy"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--test", action="store_true", help="test images of the reported sets")
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(f"no folder {options.data}: give the one with features/ and images/ as --data")
    for measure in options.measure:
        show(measure, options)


if __name__ == "__main__":
    main()
