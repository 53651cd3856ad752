"""`prolip demo`, without data or network: the offline encoder learns built-in textures and numbers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip import encoders, methods
from prolip.api import FewShotClassifier
from prolip.core import Projected, Task
from prolip.core.arrays import Array
from prolip.data import BuiltinSet, builtin, sample_few_shot
from prolip.evaluate import metrics
from prolip.features import FeatureStore, extract
from prolip.io.writing import write_bytes, write_json
from prolip.report.html import join, prose, table
from prolip.report.page import chart, gallery, matrix, page, section
from prolip.report.thumbnails import thumbnails

SETS = ("textures", "numbers")
SHOTS = (1, 4, 16)
SEEDS = (1, 2, 3)
TRAIN, TEST = 16, 30  # images of each class
SAVED = 4  # test images of each class that are written

Progress = Callable[[str, int, int], None]  # (what, done, total)


@dataclass(frozen=True, eq=False)
class SetResult:
    """The measurements on one built-in set."""

    train: BuiltinSet
    test: BuiltinSet
    features: Array  # of the test images, [n, width]
    zero_shot: Projected
    adapted: FewShotClassifier  # on all training images
    accuracy: dict[int, list[float]]  # of adapted models by shots, for each seed
    seconds: dict[int, float]  # of a fit by shots, the mean
    encoded: int  # number of images that the tower was run on

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {
            "set": self.test.name,
            "classes": self.test.classes,
            "zero_shot_accuracy": self.zero_shot_accuracy,
            "accuracy": {str(n): sum(a) / len(a) for n, a in self.accuracy.items()},
            "seconds": {str(n): s for n, s in self.seconds.items()},
            "images_encoded": self.encoded,
        }

    @property
    def zero_shot_accuracy(self) -> float:
        """Accuracy of the model before training, on the test images."""
        return metrics.accuracy(self.zero_shot.logits(self.features), np.array(self.test.labels))


def run(out: Path, store: Path | None, progress: Progress | None = None) -> dict[str, Any]:
    """Measure, and write report.html, results.json, a saved model and its photos into `out`."""
    started = time.perf_counter()
    encoder = encoders.load("offline")
    results = [_measure(name, encoder, store, progress or (lambda *_: None)) for name in SETS]
    textures, numbers = results
    textures.adapted.save(out / "textures-model")
    for split, photos, count in (("train", textures.train, TRAIN), ("test", textures.test, SAVED)):
        for k, label in enumerate(photos.classes):
            folder = out / "photos" / split / label
            folder.mkdir(parents=True, exist_ok=True)
            for i, image in enumerate(photos.images[photos.labels.index(k) :][:count]):
                image.save(folder / f"{i}.jpg", quality=95)
    summary = {
        "model": "offline",
        "sets": [result.summary() for result in results],
        "seconds": time.perf_counter() - started,
        "out": str(out),
    }
    write_json(out / "results.json", summary)
    write_bytes(out / "report.html", _page(textures, numbers).encode())
    return summary


def _measure(name: str, encoder: encoders.Encoder, store: Path | None, progress: Progress) -> SetResult:
    """Evaluate zero-shot, then the default method with each number of shots, on features computed once."""
    train, test = builtin(name, TRAIN, split="train"), builtin(name, TEST, split="test")
    found = extract(
        encoder,
        [*train.images, *test.images],
        store=FeatureStore(store),
        progress=lambda done, total: progress(f"encoding {name}", done, total),
    )
    x, x_test = np.split(found.features[0], [len(train)])
    y, y_test = np.array(train.labels), np.array(test.labels)
    text = encoder.text(train.classes, train.templates)
    accuracy: dict[int, list[float]] = {n: [] for n in SHOTS}
    seconds = dict.fromkeys(SHOTS, 0.0)
    trials = [(shots, seed) for shots in SHOTS for seed in SEEDS]
    for done, (shots, seed) in enumerate(trials, 1):
        chosen = sample_few_shot(train.labels, shots, seed)
        fitted = methods.create("anchored").fit(Task(x[chosen], y[chosen], text, encoder.head, encoder.scale))
        accuracy[shots].append(metrics.accuracy(fitted.logits(x_test), y_test))
        seconds[shots] += fitted.report["seconds"] / len(SEEDS)
        progress(f"fitting {name}", done, len(trials))
    adapted = FewShotClassifier(encoder, store=store, templates=train.templates)
    adapted.fit(train.images, [train.classes[k] for k in train.labels])
    zero_shot = Projected(encoder.head, text, encoder.scale)
    return SetResult(train, test, x_test, zero_shot, adapted, accuracy, seconds, found.encoded)


def _page(textures: SetResult, numbers: SetResult) -> str:
    """Build the report as one HTML page."""
    results = [textures, numbers]
    curves = {r.test.name: [[r.zero_shot_accuracy], *(r.accuracy[n] for n in SHOTS)] for r in results}
    rows = [
        [f"{r.test.name} ({len(r.test.classes)} classes)", f"{100 * r.zero_shot_accuracy:.1f}",
         *(f"{100 * sum(r.accuracy[n]) / len(r.accuracy[n]):.1f}" for n in SHOTS)]
        for r in results
    ]  # fmt: skip
    header = ["set", "zero-shot", *(f"{n} shot{'s' if n > 1 else ''}" for n in SHOTS)]
    lead = (
        "The `offline` encoder (EfficientNet-Lite0 and a multilingual sentence encoder; it is not CLIP) "
        "learned two sets of images that it had never seen. Only its visual projection was tuned."
    )
    on_test = f"unseen images of each class; the mean of {len(SEEDS)} random choices of the labelled ones"
    compared, predicted = _before_and_after(textures), _predictions(numbers)
    places = list(range(len(predicted), len(predicted) + len(compared)))
    sections = [
        section(
            "Accuracy", chart("accuracyChart", {"shots": SHOTS, "curves": curves}), table(header, rows),
            note=f"In percent, on {TEST} {on_test}, which the bands span.",
        ),
        section(
            "Before and after", gallery(places),
            note=f"Unseen textures, predicted before (zero-shot) and after {TRAIN} images per class.",
        ),
        section(
            "Confusion matrix", matrix(),
            note=f"Numbers, after a fit on {TRAIN} images per class. Rows are labels, columns predictions; "
            "choose a cell to see its images.",
        ),
        section(
            "Next",
            note="Try the saved model, in this folder: `prolip predict textures-model photos/test`. "
            "Your own photos, a folder for each class: `prolip fit photos/ -o my-model`, then "
            "`prolip report my-model photos/`.",
        ),
    ]  # fmt: skip
    data = {"classes": numbers.test.classes, "images": predicted + compared}
    return page("prolip demo", join(prose(lead)), sections, data)


def _before_and_after(result: SetResult) -> list[dict[str, Any]]:
    """Return the first two test images of each class, with both predictions."""
    test = result.test
    chosen = [k * TEST + i for k in range(len(test.classes)) for i in range(2)]
    x, small = result.features[chosen], thumbnails(test.images, chosen)
    before = [test.classes[k] for k in result.zero_shot.predict(x)]
    after = [result.adapted.model_.classes[k] for k in result.adapted.fitted_.predict(x)]
    entries = []
    for i, *predicted in zip(chosen, before, after, strict=True):
        label = test.classes[test.labels[i]]
        lines = [
            [f"{when}: {name}", "good" if name == label else "bad"]
            for when, name in zip(("before", "after"), predicted, strict=True)
        ]
        entries.append({"name": "", "lines": [[label, ""], *lines], "src": small[i]})
    return entries


def _predictions(result: SetResult) -> list[dict[str, Any]]:
    """Return every test image with its label and the prediction of the adapted model."""
    test, adapted = result.test, result.adapted
    order = [adapted.model_.classes.index(name) for name in test.classes]
    p = adapted.model_.probabilities(result.features)[:, order]
    small = thumbnails(test.images, range(len(test)))
    return [
        {
            "name": f"image {i + 1}", "label": test.labels[i], "predicted": int(p[i].argmax()),
            "probability": round(float(p[i].max()), 4), "src": small[i],
        }
        for i in range(len(test))
    ]  # fmt: skip
