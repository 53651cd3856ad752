"""`prolip demo`: no data, no network. The offline encoder learns digits and textures that it never saw."""

from __future__ import annotations

import base64
import html
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from prolip import methods
from prolip.api import FewShotClassifier
from prolip.bench import plots
from prolip.core import Projected, Task
from prolip.core.files import write_bytes, write_json
from prolip.data import BuiltinSet, builtin, sample_few_shot
from prolip.evaluate import metrics
from prolip.features import FeatureStore, extract

SETS = ("textures", "digits")
SHOTS = (1, 4, 16)
SEEDS = (1, 2, 3)
TRAIN, TEST = 16, 30  # pictures of each class

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class SetResult:
    """What was measured on one built-in set."""

    name: str
    classes: list[str]
    zero_shot: float
    accuracy: dict[int, list[float]]  # shots -> one per seed
    seconds: dict[int, float]  # shots -> mean of the solve
    encoded: int
    encoding_seconds: float
    test: BuiltinSet
    test_features: torch.Tensor
    zero_shot_model: Projected
    adapted: FewShotClassifier


def run(out: Path, store: Path | None, progress: Progress | None = None) -> dict[str, Any]:
    """Measure, draw, and write report.html, the plots, results.json and a saved model into `out`."""
    started = time.perf_counter()
    classifier = FewShotClassifier(store=store)
    results = [_measure(name, classifier, progress) for name in SETS]
    textures = results[0]
    pictures = {
        "accuracy.png": _curves(results),
        "answers.png": _answers(textures),
        "confusion.png": _confusion(results[1]),
    }
    for name, payload in pictures.items():
        write_bytes(out / name, payload)
    textures.adapted.save(out / "textures-model")
    for k, label in enumerate(textures.classes):
        index = textures.test.labels.index(k)
        picture = out / "pictures" / f"{label}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        textures.test.images[index].save(picture)
    summary = {
        "model": "offline",
        "sets": [
            {
                "set": r.name,
                "classes": r.classes,
                "zero_shot_accuracy": r.zero_shot,
                "accuracy": {str(n): sum(a) / len(a) for n, a in r.accuracy.items()},
                "seconds": {str(n): s for n, s in r.seconds.items()},
                "images_encoded": r.encoded,
            }
            for r in results
        ],
        "seconds": time.perf_counter() - started,
        "out": str(out),
    }
    write_json(out / "results.json", summary)
    write_bytes(out / "report.html", _page(summary, pictures).encode())
    return summary


def _measure(name: str, classifier: FewShotClassifier, progress: Progress | None) -> SetResult:
    """Zero-shot, then ProLIP at each number of shots, on features computed once."""
    train, test = builtin(name, TRAIN, part="train"), builtin(name, TEST, part="test")
    encoder = classifier.encoder
    store = FeatureStore(classifier.store)  # type: ignore[arg-type]

    tell = progress or (lambda label, done, total: None)
    found = extract(
        encoder,
        [*train.images, *test.images],
        store=store,
        progress=lambda done, total: tell(f"encoding {name}", done, total),
    )
    x, x_test = found.features[0][: len(train)], found.features[0][len(train) :]
    y, y_test = torch.tensor(train.labels), torch.tensor(test.labels)
    text = encoder.text(train.classes, train.templates)
    zero_shot = Projected(encoder.head, text, encoder.scale)
    accuracy: dict[int, list[float]] = {n: [] for n in SHOTS}
    seconds = dict.fromkeys(SHOTS, 0.0)
    for i, shots in enumerate(SHOTS):
        for j, seed in enumerate(SEEDS):
            chosen = sample_few_shot(train.labels, shots, seed)
            task = Task(x[chosen], y[chosen], text, encoder.head, encoder.scale)
            fitted = methods.create("prolip").fit(task)
            accuracy[shots].append(metrics.accuracy(fitted.logits(x_test), y_test))
            seconds[shots] += fitted.info["seconds"] / len(SEEDS)
            tell(f"fitting {name}", i * len(SEEDS) + j + 1, len(SHOTS) * len(SEEDS))
    adapted = FewShotClassifier(store=classifier.store, templates=train.templates)
    adapted._encoder = encoder
    adapted.fit(train.images, [train.classes[k] for k in train.labels])
    return SetResult(
        name,
        train.classes,
        metrics.accuracy(zero_shot.logits(x_test), y_test),
        accuracy,
        seconds,
        found.encoded,
        found.seconds,
        test,
        x_test,
        zero_shot,
        adapted,
    )


def _curves(results: list[SetResult]) -> bytes:
    curves = {r.name: [r.accuracy[n] for n in SHOTS] for r in results}
    return plots.png(plots.accuracy_curves(SHOTS, curves, {r.name: r.zero_shot for r in results}))


def _answers(result: SetResult) -> bytes:
    """The first two test pictures of each class."""
    chosen = [k * TEST + i for k in range(len(result.classes)) for i in range(2)][:18]
    x = result.test_features[chosen]
    before = result.zero_shot_model.predict(x).tolist()
    after = result.adapted.fitted_.predict(x).tolist()
    return plots.png(
        plots.answer_sheet(
            [result.test.images[i] for i in chosen],
            [result.classes[result.test.labels[i]] for i in chosen],
            [result.classes[k] for k in before],
            [result.adapted.classes_[k] for k in after],
        )
    )


def _confusion(result: SetResult) -> bytes:
    order = [result.adapted.classes_.index(name) for name in result.classes]
    logits = result.adapted.fitted_.logits(result.test_features)[:, order]
    counts = metrics.confusion(logits, torch.tensor(result.test.labels))
    return plots.png(plots.confusion_matrix(counts.numpy(), result.classes))


def _page(summary: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """One self-contained page."""
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
        "confusion.png": "Digits after 16 pictures a class: truth in rows, answer in columns, percent.",
    }
    figures = "".join(
        f'<figure><img alt="{html.escape(text)}" src="data:image/png;base64,'
        f'{base64.b64encode(pictures[name]).decode()}"><figcaption>{html.escape(text)}</figcaption></figure>'
        for name, text in captions.items()
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
<p>The <code>offline</code> encoder (EfficientNet-Lite0 and MiniLM; it is not CLIP) learned two sets of
pictures that it had never seen. Only its visual projection was tuned. Accuracy in percent on {TEST} unseen
pictures a class, mean of {len(SEEDS)} random choices of the labelled ones:</p>
<table><tr><th>set</th><th>zero-shot</th>{head}</tr>{rows}</table>
{figures}
<p>Try the saved model: <code>prolip predict textures-model pictures --top 3</code> in this folder. Your own
photos, a folder for each class: <code>prolip fit photos/ -o my-model</code>.</p>
</body></html>
"""
