"""Figures of a fit beside the accuracy on other photos: bursts, ordinary photos, intervals and forecasts.

    python benchmarks/bursts.py [--data data] [--cache build/bursts] [--only bursts intervals time]

--data holds images/{pets37,dtd10,clothing10,birds60}/{train,test}/CLASS/. The encoder is `offline`. Features
of the photos, and of six near-copies of each training photo (crops of up to 8 % on each side, brightness by
up to a fifth, JPEG of quality 60), are kept in --cache, so that a second run starts at once.

bursts      two photos of each class, with their near-copies and without; each draw is fitted without groups
            (naive), as a fit does, and with the true groups
intervals   how often 95 % intervals contain the accuracy on all photos that were not drawn: of the fit, and
            of the learning curve's forecast for twice the photos beside that of a fit on so many
time        a fit of 1,632 images of 102 classes, with and without the search for near-copies
"""

from __future__ import annotations

import argparse
import io
import random
import time
from pathlib import Path
from statistics import fmean, median

import numpy as np
from PIL import Image, ImageEnhance

from prolip import methods
from prolip.core import Task, Text
from prolip.data import read_images
from prolip.encoders import load
from prolip.evaluate import metrics
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.curve import learning_curve
from prolip.evaluate.near_copies import near_copy_groups, signature
from prolip.features import extract, load_image

SETS = ("pets37", "dtd10", "clothing10", "birds60")
COPIES, SHOTS, DRAWS = 6, 2, 10
COVERED = ("dtd10", "clothing10", "pets37")
MANY_DRAWS = {"dtd10": 40, "clothing10": 40, "pets37": 20}


def near_copy(content: bytes, seed: str) -> bytes:
    """The photo as the next of a burst."""
    rng = random.Random(seed)
    image = Image.open(io.BytesIO(content)).convert("RGB")
    (width, height), (left, right, top, bottom) = image.size, (rng.uniform(0, 0.08) for _ in range(4))
    image = image.crop(
        (round(left * width), round(top * height), round((1 - right) * width), round((1 - bottom) * height))
    )
    image, file = ImageEnhance.Brightness(image).enhance(rng.uniform(0.8, 1.2)), io.BytesIO()
    image.save(file, "JPEG", quality=60)
    return file.getvalue()


def read(data: Path, cache: Path, name: str, encoder) -> dict[str, np.ndarray]:
    """Features x, labels y and signatures s of a set, and those of the near-copies [n, COPIES, ..]."""
    file = cache / f"{name}.npz"
    if file.exists():
        return dict(np.load(file))
    arrays: dict[str, np.ndarray] = {}
    for split in ("train", "test"):
        found = read_images(data / "images" / name, split=split)
        arrays[f"x_{split}"] = extract(encoder, found.images).features[0]
        arrays[f"y_{split}"] = np.array(found.labels)
        arrays[f"s_{split}"] = np.stack([signature(load_image(image)) for image in found.images])
        if split == "train":
            copies = []
            contents = [Path(image).read_bytes() for image in found.images]
            for copy in range(COPIES):
                made = [near_copy(content, f"{copy} {i}") for i, content in enumerate(contents)]
                signatures = np.stack([signature(load_image(each)) for each in made])
                copies.append((extract(encoder, made).features[0], signatures))
            arrays["x_copies"], arrays["s_copies"] = (np.stack(each, 1) for each in zip(*copies, strict=True))
    arrays["text"] = encoder.text(found.names, ["a photo of a {}."]).rows
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)
    return arrays


def sample(y: np.ndarray, shots: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.choice(np.flatnonzero(y == k), shots, replace=False) for k in range(y.max() + 1)]
    )


def fit(task: Task):
    """The fitted default, and its figures."""
    fitted, held_out = methods.create("anchored").fit_held_out(task)
    return fitted, Confidence.of(fitted, task, held_out).figures


def bursts(sets: dict[str, dict[str, np.ndarray]], encoder) -> None:
    print("two photos of each class: accuracy that is reported minus accuracy on test photos, in points")
    print(f"{'':12}{'photos':9}{'groups':10}{'test':>6}{'held out':>10}{'reported':>10}{'worst':>8}  covered")
    for copies in (COPIES, 0):
        means: dict[str, list[float]] = {}
        for name, arrays in sets.items():
            rows: dict[str, list[tuple[float, float, float, bool]]] = {}
            for seed in range(DRAWS):
                chosen = sample(arrays["y_train"], SHOTS, seed)
                x, s = arrays["x_train"][chosen][:, None], arrays["s_train"][chosen][:, None]
                if copies:
                    x = np.concatenate([x, arrays["x_copies"][chosen]], axis=1)
                    s = np.concatenate([s, arrays["s_copies"][chosen]], axis=1)
                truth, y = np.repeat(np.arange(len(chosen)), 1 + copies), arrays["y_train"][chosen]
                x, s, y = x.reshape(-1, x.shape[-1]), s.reshape(-1, *s.shape[2:]), np.repeat(y, 1 + copies)
                found = near_copy_groups(x, y, lambda i, s=s: s[i])
                groups = {"none": None, "found": found} | ({"true": truth} if copies else {})
                for kind, numbers in groups.items():
                    task = Task(x, y, Text(arrays["text"]), encoder.head, encoder.scale, numbers)
                    fitted, figures = fit(task)
                    test = metrics.accuracy(fitted.logits(arrays["x_test"]), arrays["y_test"])
                    low, high = figures.accuracy_interval
                    measured = figures.held_out_accuracy - test, figures.accuracy - test
                    rows.setdefault(kind, []).append((test, *measured, low <= test <= high))
            for kind, own in rows.items():
                test, held_out, reported = (100 * fmean(row[i] for row in own) for i in range(3))
                worst = 100 * max((row[2] for row in own), key=abs)
                means.setdefault(kind, []).append(reported)
                photos = "bursts" if copies else "single"
                print(
                    f"{name:12}{photos:9}{kind:10}{test:6.1f}{held_out:+10.1f}{reported:+10.1f}{worst:+8.1f}"
                    f"  {sum(row[3] for row in own)} of {len(own)}",
                    flush=True,
                )
        for kind, own in means.items():
            print(f"{'mean':12}{'':9}{kind:10}{'':16}{fmean(own):+10.1f}")


def intervals(sets: dict[str, dict[str, np.ndarray]], encoder) -> None:
    print("95 % intervals that contain the accuracy on all other photos of a set")
    total: dict[str, list[bool]] = {}
    for name in COVERED:
        arrays = sets[name]
        x, y = (np.concatenate([arrays[f"{each}_train"], arrays[f"{each}_test"]]) for each in "xy")

        def task_of(chosen: np.ndarray, x=x, y=y, text=arrays["text"]) -> Task:
            return Task(x[chosen], y[chosen], Text(text), encoder.head, encoder.scale)

        hits: dict[str, list[bool]] = {}
        for seed in range(MANY_DRAWS[name]):
            more = sample(y, 8, seed).reshape(-1, 8)
            other = np.setdiff1d(np.arange(len(y)), more)
            for shots in (2, 4, 8):
                task = task_of(more[:, :shots].ravel())
                fitted, figures = fit(task)
                truth = metrics.accuracy(fitted.logits(x[other]), y[other])
                low, high = figures.accuracy_interval
                hits.setdefault(f"fit, {shots} photos of each", []).append(low <= truth <= high)
                # The accuracy on so many others differs by chance from that on all.
                chance = metrics.wilson(truth * len(other), len(other))
                low = figures.accuracy - np.hypot(figures.accuracy - low, chance[1] - truth)
                high = figures.accuracy + np.hypot(high - figures.accuracy, truth - chance[0])
                hits.setdefault(f"... and their chance, {shots}", []).append(low <= truth <= high)
                if shots == 4:
                    curve = learning_curve(fitted, task, figures, repeats=5)
                    forecast = next(each for each in curve.forecasts if each.shots == 8)
            # What the last fit reached is what the curve of the one before has to contain.
            hits.setdefault("curve, 8 from 4", []).append(forecast.low <= truth <= forecast.high)
        for kind, own in hits.items():
            print(f"{name:12}{kind:24}{sum(own)} of {len(own)}", flush=True)
            total.setdefault(kind, []).extend(own)
    for kind, own in total.items():
        print(f"{'all':12}{kind:24}{sum(own)} of {len(own)}, {100 * fmean(own):.1f} %")


def seconds(sets: dict[str, dict[str, np.ndarray]], encoder) -> None:
    """Photos of two sets, with labels of 102 classes of 16 photos each, in the order of their similarity."""
    x = np.concatenate([sets[name]["x_train"] for name in ("birds60", "pets37", "dtd10")])[: 102 * 16]
    s = np.concatenate([sets[name]["s_train"] for name in ("birds60", "pets37", "dtd10")])[: 102 * 16]
    y = np.repeat(np.arange(102), 16)
    text = np.random.default_rng(0).normal(size=(102, sets["pets37"]["text"].shape[1])).astype(np.float32)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    opened: set[int] = set()
    times: dict[str, list[float]] = {"fit": [], "near-copies": []}
    for _ in range(5):
        began = time.perf_counter()
        groups = near_copy_groups(x, y, lambda i: (opened.add(i), s[i])[1])
        times["near-copies"].append(time.perf_counter() - began)
        task = Task(x, y, Text(text), encoder.head, encoder.scale, groups)
        began = time.perf_counter()
        fit(task)
        times["fit"].append(time.perf_counter() - began)
    fit_seconds, search_seconds = median(times["fit"]), median(times["near-copies"])
    print(f"{len(x)} images of 102 classes: fit and figures {fit_seconds:.2f} s, search for near-copies")
    print(f"{search_seconds:.3f} s, for which {len(opened)} images are opened")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, default=Path("build/bursts"))
    parts = {"bursts": bursts, "intervals": intervals, "time": seconds}
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    arguments = parser.parse_args()
    encoder = load("offline", "cpu")
    sets = {name: read(arguments.data, arguments.cache, name, encoder) for name in SETS}
    for name in arguments.only:
        parts[name](sets, encoder)


if __name__ == "__main__":
    main()
