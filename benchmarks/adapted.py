"""What people do with an adapted model, measured: calibration, outsiders, growing, curves, re-projection.

    python benchmarks/adapted.py [--data ../shared/data] [--only calibration reject ...] [--out results.json]

--data holds images/{pets37,dtd10,clothing10}/{train,test}/CLASS/. The encoder is `offline`; its features come
from the user's feature store, so that a second run starts at once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from prolip import methods
from prolip.core import Head, Task
from prolip.core.arrays import softmax
from prolip.data import read_images, sample_few_shot
from prolip.encoders import load
from prolip.evaluate import metrics
from prolip.evaluate.calibration import fit_factor, fit_temperature
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.curve import learning_curve
from prolip.evaluate.out_of_distribution import OutOfDistribution
from prolip.evaluate.suggest import suggest
from prolip.features import FeatureStore, extract

SEEDS = (1, 2, 3, 4, 5)
DRAWS = range(1, 11)
SHOTS = (1, 4, 8, 16)


class Data:
    """Features, labels and texts of an image set, by split."""

    def __init__(self, root, name, encoder):
        self.name, self.encoder = name, encoder
        self.x, self.y = {}, {}
        for split in ("train", "test"):
            images = read_images(root / "images" / name, split=split)
            self.x[split] = extract(encoder, images.images, store=FeatureStore()).features[0]
            self.y[split] = np.array(images.labels)
        self.text = encoder.text(images.names, ["a photo of a {}."])

    def draw(self, shots, seed):
        """A task, and everything else that is labelled: what was not drawn, and the test images."""
        train, labels = self.x["train"], self.y["train"]
        chosen = sample_few_shot(labels, shots, seed)
        x = np.concatenate([np.delete(train, chosen, axis=0), self.x["test"]])
        y = np.concatenate([np.delete(labels, chosen), self.y["test"]])
        return self._task(train[chosen], labels[chosen]), x, y

    def draw_from_all(self, shots, seed):
        """The same, with the support set drawn from training and test images alike."""
        x, y = (np.concatenate([both["train"], both["test"]]) for both in (self.x, self.y))
        chosen = sample_few_shot(y, shots, seed)
        return self._task(x[chosen], y[chosen]), np.delete(x, chosen, axis=0), np.delete(y, chosen)

    def _task(self, x, y):
        return Task(x, y, self.text, self.encoder.head, self.encoder.scale)


def calibration(sets):
    """Calibration error before and after, of answers about every image outside the support set.

    "Before" is the model as fitted, at the scale of the fit. dtd10 has 200 test images, on which answers that
    mean exactly what they say show an error of 6 %: support sets are drawn from all images, and answers are
    pooled over draws. `floor` is what chance gives on pooled answers, `floor_of_one` on those of one draw.
    """
    rows = []
    for data in (sets["pets37"], sets["dtd10"]):
        for options in ({"lam": "auto"}, {"lam": "1/N", "scale": "fixed"}):
            for shots in SHOTS:
                before, after, best, labels, temperatures = [], [], [], [], []
                for seed in DRAWS:
                    task, x, y = data.draw_from_all(shots, seed)
                    fitted, t = fit_calibrated(methods.create("prolip", **options), task)
                    logits = fitted.logits(x)
                    before.append(softmax(logits * fit_factor(fitted)))
                    after.append(softmax(logits / t))
                    best.append(softmax(logits / fit_temperature(logits, y)))
                    labels.append(y)
                    temperatures.append(round(t * fit_factor(fitted), 3))
                y, last = np.concatenate(labels), after[0]
                before, after, best = (np.concatenate(part) for part in (before, after, best))
                rows.append(
                    {
                        "set": data.name, "shots": shots, **options, "images": len(y),
                        "accuracy": metrics.accuracy(after, y),
                        "before": metrics.calibration_error(before, y),
                        "after": metrics.calibration_error(after, y),
                        "best_temperature": metrics.calibration_error(best, y),
                        "floor": metrics.calibration_floor(after, draws=20),
                        "floor_of_one": metrics.calibration_floor(last),
                        "loss_before": _loss(before, y), "loss": _loss(after, y), "loss_best": _loss(best, y),
                        "temperatures": temperatures,
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def fit_calibrated(method, task):
    """The fitted model, and its temperature."""
    fitted, held_out = method.fit_held_out(task)
    return fitted, Confidence.of(fitted, task, held_out).temperature


def _loss(probabilities, y):
    return -float(np.log(np.maximum(probabilities[np.arange(len(y)), y], 1e-12)).mean())


def reject(sets):
    """Test images refused, and clothing taken for one of the classes, at 5 % false rejects (or accepts)."""
    rows = []
    outside = np.concatenate(list(sets["clothing10"].x.values()))
    for data in (sets["pets37"], sets["dtd10"]):
        for shots in SHOTS:
            found = {"false_reject": [], "false_accept": []}
            for seed in SEEDS:
                task, x, _ = data.draw(shots, seed)
                out_of_distribution = OutOfDistribution.of(task)
                for chosen, rates in found.items():
                    limit, head = out_of_distribution.threshold(**{chosen: 0.05}), data.encoder.head
                    below = [np.mean(out_of_distribution.score(part, head) < limit) for part in (x, outside)]
                    rates.append((below[0], 1 - below[1]))
            for chosen, rates in found.items():
                refused, accepted = np.mean(rates, axis=0).tolist()
                rows.append(
                    {
                        "set": data.name, "shots": shots, "outsiders": len(outside), "chosen": chosen,
                        "false_reject": refused, "false_accept": accepted, "false_accept_without": 1.0,
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def growing(sets):
    """Five classes added to a model of 32, without the old images, against a fit from scratch."""
    rows, data = [], sets["pets37"]
    for shots in (4, 16):
        for seed in SEEDS:
            order = np.random.default_rng(seed).permutation(37)
            order = np.concatenate([np.sort(order[:32]), np.sort(order[32:])])  # old classes, then new ones
            place = np.argsort(order)
            text = data.text.subset(order)
            task, x, y = data.draw(shots, seed)
            labels, y = place[task.y], place[y]
            whole = Task(task.x, labels, text, task.head, task.scale)
            first, new = np.flatnonzero(labels < 32), np.flatnonzero(labels >= 32)
            small = Task(task.x[:, first], labels[first], text.subset(range(32)), task.head, task.scale)
            method = methods.create("prolip", lam="auto")
            before = method.fit(small)
            # What a saved folder keeps of the old images: float16 features.
            kept = np.concatenate([task.x[:, first].astype(np.float16), task.x[:, new]], axis=1)
            joined = Task(kept, labels[np.concatenate([first, new])], text, task.head, task.scale)
            started = time.perf_counter()
            grown = method.fit(joined)
            seconds = time.perf_counter() - started
            started = time.perf_counter()
            scratch = method.fit(whole)
            known = y < 32
            rows.append(
                {
                    "shots": shots, "seed": seed,
                    "grown": metrics.accuracy(grown.logits(x), y),
                    "scratch": metrics.accuracy(scratch.logits(x), y),
                    "old_before": metrics.accuracy(before.logits(x[known]), y[known]),
                    "old_after": metrics.accuracy(grown.logits(x[known]), y[known]),
                    "name_only": metrics.accuracy(before.with_text(text).logits(x), y),
                    "seconds": seconds, "scratch_seconds": time.perf_counter() - started,
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def curves(sets):
    """Forecast from 8 images per class what 16 give, and compare with what 16 gave."""
    rows = []
    for data in sets.values():
        for seed in SEEDS:
            task, _, _ = data.draw(8, seed)
            method = methods.create("prolip", lam="auto")
            curve = learning_curve(method.fit(task), task)
            forecast = next(f for f in curve.forecasts if f.shots == 16)
            full, _, _ = data.draw(16, seed)
            measured = {
                n: metrics.accuracy(method.fit(t).logits(data.x["test"]), data.y["test"])
                for n, t in ((8, task), (16, full))
            }
            rows.append(
                {
                    "set": data.name, "seed": seed, "now": curve.now.accuracy, "now_measured": measured[8],
                    "forecast": forecast.accuracy, "low": forecast.low, "high": forecast.high,
                    "measured": measured[16],
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def suggestions(sets):
    """Accuracy after labelling 4 more images per class: suggested ones against random ones."""
    rows = []
    for data in sets.values():
        for seed in SEEDS:
            task, _, _ = data.draw(4, seed)
            method = methods.create("prolip", lam="auto")
            taken = {own.tobytes() for own in task.x[0]}
            pool = [i for i, own in enumerate(data.x["train"]) if own.tobytes() not in taken]
            x, y = data.x["train"][pool], data.y["train"][pool]
            fitted, t = fit_calibrated(method, task)
            count = 4 * task.classes
            picked = [s.index for s in suggest(x, softmax(fitted.logits(x) / t), task.x[0], count)]
            drawn = np.random.default_rng(seed).permutation(len(pool))[:count]
            accuracy = {}
            for name, places in (("suggested", picked), ("random", drawn)):
                images = np.concatenate([task.x, x[places][None]], axis=1)
                more = Task(images, np.concatenate([task.y, y[places]]), task.text, task.head, task.scale)
                accuracy[name] = metrics.accuracy(method.fit(more).logits(data.x["test"]), data.y["test"])
            rows.append({"set": data.name, "seed": seed, **accuracy})
            print(rows[-1], flush=True)
    return rows


def reprojection(_):
    """1,000,000 x 768 float16 to 512, against the bare product of the same matrices."""
    n, width, dim = 1_000_000, 768, 512
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((width, dim), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "features.npy"
        array = np.lib.format.open_memmap(source, "w+", np.float16, (n, width))
        for start in range(0, n, 50_000):
            array[start : start + 50_000] = rng.normal(size=(50_000, width))
        array.flush()
        del array
        block = rng.standard_normal((10_000, width), np.float32)
        rows = []
        for dtype in ("float32", "float16"):
            started = time.perf_counter()
            for _ in range(n // 10_000):
                block @ weight
            bare = time.perf_counter() - started
            # A process of its own, so that its peak of memory is its own.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                seconds, peak = pool.submit(_reproject, source, weight, dtype).result()
            rows.append(
                {
                    "out": dtype, "seconds": seconds, "bare_product_seconds": bare, "ratio": seconds / bare,
                    "peak_memory_mb": peak / 1024,
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def _reproject(source, weight, dtype):
    from prolip.export.reproject import reproject

    started = time.perf_counter()
    reproject(source, Head(weight), source.with_name(f"{dtype}.npy"), dtype=dtype)
    seconds = time.perf_counter() - started
    # Not getrusage: a child begins with its parent's peak.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return seconds, int(status["VmHWM"].split()[0])


PARTS = {
    "reprojection": reprojection, "calibration": calibration, "reject": reject, "growing": growing,
    "curves": curves, "suggestions": suggestions,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sets = {}
    if set(args.only) - {"reprojection"}:
        encoder = load("offline", "cpu")
        sets = {name: Data(args.data, name, encoder) for name in ("pets37", "dtd10", "clothing10")}
    results = {}
    for name in args.only:
        print(f"\n{name}: {PARTS[name].__doc__.splitlines()[0]}", flush=True)
        results[name] = PARTS[name](sets)
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
