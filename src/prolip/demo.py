"""`prolip demo`: no data, no network. The offline encoder learns textures and numbers that it never saw."""

from __future__ import annotations

import base64
import html
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip import demo_charts, encoders, methods
from prolip.api import FewShotClassifier
from prolip.core import ModelError, Projected, Task
from prolip.core.arrays import Array
from prolip.core.writing import write_bytes, write_json
from prolip.data import BuiltinSet, builtin, sample_few_shot
from prolip.evaluate import metrics
from prolip.features import FeatureStore, extract

SETS = ("textures", "numbers")
SHOTS = (1, 4, 16)
SEEDS = (1, 2, 3)
TRAIN, TEST = 16, 30  # pictures of each class

Progress = Callable[[str, int, int], None]  # (what, done, total)


@dataclass(frozen=True, eq=False)
class SetResult:
    """What was measured on one built-in set.

    Attributes
    ----------
    test, features
        The test pictures, and their features [n, width].
    zero_shot, adapted
        The model before, and after all training pictures.
    accuracy
        Of the adapted model by shots, one for each seed.
    seconds
        Of the solve by shots, the mean.
    encoded
        Pictures that the tower was run on.
    """

    test: BuiltinSet
    features: Array
    zero_shot: Projected
    adapted: FewShotClassifier
    accuracy: dict[int, list[float]]
    seconds: dict[int, float]
    encoded: int

    def summary(self) -> dict[str, Any]:
        """The figures, as JSON has them."""
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
        """Accuracy of the model before training, on the test pictures."""
        return metrics.accuracy(self.zero_shot.logits(self.features), np.array(self.test.labels))


def run(out: Path, store: Path | None, progress: Progress | None = None) -> dict[str, Any]:
    """Measure, draw, and write report.html, the plots, results.json and a saved model into `out`."""
    started = time.perf_counter()
    encoder = encoders.load("offline")
    results = [_measure(name, encoder, store, progress or (lambda *_: None)) for name in SETS]
    textures, numbers = results
    pictures, note = {}, None
    try:
        pictures = {
            "accuracy.png": _curves(results),
            "answers.png": _answers(textures),
            "confusion.png": _confusion(numbers),
        }
    except ModelError as missing:  # matplotlib is an extra
        note = str(missing)
    for name, payload in pictures.items():
        write_bytes(out / name, payload)
    textures.adapted.save(out / "textures-model")
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    for k, label in enumerate(textures.test.classes):
        textures.test.images[textures.test.labels.index(k)].save(out / "pictures" / f"{label}.png")
    summary = {
        "model": "offline",
        "sets": [result.summary() for result in results],
        "seconds": time.perf_counter() - started,
        "note": note,
        "out": str(out),
    }
    write_json(out / "results.json", summary)
    write_bytes(out / "report.html", _page(summary, pictures).encode())
    return summary


def _measure(name: str, encoder: encoders.Encoder, store: Path | None, progress: Progress) -> SetResult:
    """Zero-shot, then ProLIP at each number of shots, on features computed once."""
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
        fitted = methods.create("prolip").fit(Task(x[chosen], y[chosen], text, encoder.head, encoder.scale))
        accuracy[shots].append(metrics.accuracy(fitted.logits(x_test), y_test))
        seconds[shots] += fitted.report["seconds"] / len(SEEDS)
        progress(f"fitting {name}", done, len(trials))
    adapted = FewShotClassifier(encoder, store=store, templates=train.templates)
    adapted.fit(train.images, [train.classes[k] for k in train.labels])
    zero_shot = Projected(encoder.head, text, encoder.scale)
    return SetResult(test, x_test, zero_shot, adapted, accuracy, seconds, found.encoded)


def _curves(results: list[SetResult]) -> bytes:
    curves = {r.test.name: [r.accuracy[n] for n in SHOTS] for r in results}
    before = {r.test.name: r.zero_shot_accuracy for r in results}
    return demo_charts.png(demo_charts.accuracy_curves(SHOTS, curves, before))


def _answers(result: SetResult) -> bytes:
    """The first two test pictures of each class."""
    test = result.test
    chosen = [k * TEST + i for k in range(len(test.classes)) for i in range(2)][:18]
    x = result.features[chosen]
    return demo_charts.png(
        demo_charts.answer_sheet(
            [test.images[i] for i in chosen],
            [test.classes[test.labels[i]] for i in chosen],
            [test.classes[k] for k in result.zero_shot.predict(x)],
            [result.adapted.classes_[k] for k in result.adapted.fitted_.predict(x)],
        )
    )


def _confusion(result: SetResult) -> bytes:
    order = [result.adapted.classes_.index(name) for name in result.test.classes]
    logits = result.adapted.fitted_.logits(result.features)[:, order]
    counts = metrics.confusion(logits, np.array(result.test.labels))
    return demo_charts.png(demo_charts.confusion_matrix(counts, result.test.classes))


def _page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The report: HTML with the pictures inside."""
    head = "".join(f"<th>{n} shot{'s' if n > 1 else ''}</th>" for n in SHOTS)
    rows = "".join(
        f"<tr><td>{html.escape(s['set'])} ({len(s['classes'])} classes)</td>"
        f"<td>{100 * s['zero_shot_accuracy']:.1f}</td>"
        + "".join(f"<td>{100 * s['accuracy'][str(n)]:.1f}</td>" for n in SHOTS)
        + "</tr>"
        for s in summary["sets"]
    )
    captions = {
        "accuracy.png": "Accuracy on unseen pictures; the band spans three random choices of support sets.",
        "answers.png": "Unseen textures: the answer before (zero-shot) and after 16 pictures a class.",
        "confusion.png": "Numbers after 16 pictures a class: truth in rows, answer in columns, percent.",
    }
    figures = "".join(
        f'<figure><img alt="{html.escape(text)}" src="data:image/png;base64,'
        f'{base64.b64encode(pictures[name]).decode()}"><figcaption>{html.escape(text)}</figcaption></figure>'
        for name, text in captions.items()
        if name in pictures
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>prolip demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; color: #222 }}
body {{ max-width: 46rem; margin: 2.5rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
th, td {{ padding: .35rem .9rem; border-bottom: 1px solid #ddd; text-align: right }}
th:first-child, td:first-child {{ text-align: left }}
img {{ max-width: 100% }} figure {{ margin: 2rem 0 }} figcaption {{ color: #555; font-size: .9rem }}
code {{ background: #f3f3f3; padding: .1rem .3rem; border-radius: 3px }}
</style></head><body>
<h1>prolip demo</h1>
<p>The <code>offline</code> encoder (EfficientNet-Lite0 and a multilingual sentence encoder; it is not CLIP)
learned two sets of pictures that it had never seen. Only its visual projection was tuned. Accuracy in percent
on {TEST} unseen pictures a class, mean of {len(SEEDS)} random choices of the labelled ones:</p>
<table><tr><th>set</th><th>zero-shot</th>{head}</tr>{rows}</table>
{figures}
<p>Try the saved model: <code>prolip predict textures-model pictures --top 3</code> in this folder. Your own
photos, a folder for each class: <code>prolip fit photos/ -o my-model</code>.</p>
</body></html>
"""
