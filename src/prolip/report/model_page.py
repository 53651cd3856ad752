"""The report on a model: how accurate it is, what it confuses, and what would improve it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from prolip.api.evaluate import Report
from prolip.api.model import AdaptedModel
from prolip.core.arrays import Array
from prolip.evaluate import metrics
from prolip.evaluate.curve import Curve
from prolip.evaluate.metrics import Figures
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.io.progress import counted
from prolip.report.html import Html, join, percent, table, tag
from prolip.report.page import cards, chart, gallery, matrix, page, section
from prolip.report.thumbnails import thumbnails

GALLERY = 24  # images
PAIRS = 15  # of classes that are confused
CALIBRATION_BINS = 10


def model_page(model: AdaptedModel, labelled: Report, *, title: str, source: str, curve: Curve | str) -> str:
    """Make the HTML of a report on predictions for labelled images.

    `title` and `source` are the names of the model and of the images; `curve` is the learning curve, or why
    there is none.
    """
    found, p = labelled.figures, labelled.probabilities
    counts = metrics.confusion(p, labelled.y)
    best, confidence = labelled.predictions.best, labelled.predictions.confidence
    wrong = best != labelled.y
    by_confidence = np.argsort(-confidence, kind="stable")
    label_errors = [each.index for each in labelled.label_errors()][:GALLERY]
    mistakes = by_confidence[wrong[by_confidence]].tolist()
    rejected = np.flatnonzero(labelled.predictions.is_rejected)[:GALLERY].tolist()
    small: dict[int, str] = {}
    if labelled.images is not None:
        small = thumbnails(labelled.images, [*label_errors, *rejected, *mistakes, *by_confidence.tolist()])
    images = [
        {
            "name": name,
            "label": int(labelled.y[i]),
            "predicted": int(best[i]),
            "probability": round(float(confidence[i]), 4),
            **({"src": small[i]} if i in small else {}),
        }
        for i, name in enumerate("/".join(name.split("/")[-2:]) for name in labelled.names)
    ]
    sections = [
        _cards(found),
        _confusion(model, counts),
        _galleries(label_errors, mistakes[:GALLERY], has_images=labelled.images is not None),
        _classes(model, labelled, counts),
        _calibration(found, p, labelled.y),
        _out_of_distribution(found, rejected),
        _learning_curve(curve),
        _skipped(labelled.skipped),
        _facts(model),
    ]
    data = {"classes": [str(name) for name in model.classes], "images": images}
    return page(title, _lead(model, labelled, source), sections, data)


def _lead(model: AdaptedModel, labelled: Report, source: str) -> str:
    n, held_out, seen = len(labelled.y), int(labelled.held_out.sum()), int(labelled.in_support.sum())
    about = f"{len(model.classes)} classes, evaluated on {n} images of {source}."
    if held_out:
        return f"{about} {held_out} of them are training images: each is predicted by a fit without it."
    if seen:
        return f"{about} {seen} of them are training images, so these figures are optimistic."
    return f"{about} None of them is a training image."


def _cards(found: Figures) -> Html:
    low, high = found.accuracy_interval or (None, None)
    gain = 100 * ((found.accuracy or 0.0) - (found.zero_shot_accuracy or 0.0))
    floor, filled = percent(found.calibration_error_floor), sum(n > 0 for n in found.counts or ())
    return cards(
        [
            ("accuracy", percent(found.accuracy), f"95 % interval {percent(low)} to {percent(high)}"),
            ("zero-shot accuracy", percent(found.zero_shot_accuracy), f"{gain:+.1f} points since"),
            ("balanced accuracy", percent(found.balanced_accuracy), "mean over classes"),
            ("macro F1", f"{found.macro_f1:.3f}", "mean over classes"),
            ("calibration error", percent(found.calibration_error), f"{floor} by chance alone"),
            ("images", f"{found.images:,}", f"of {filled} classes"),
        ]
    )


def _confusion(model: AdaptedModel, counts: Array) -> Html:
    totals, wrong = counts.sum(axis=1), counts - np.diag(counts.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    rows = []
    for label, predicted in (divmod(int(k), len(counts)) for k in order if wrong.flat[k]):
        n, names = wrong[label, predicted], f"{model.classes[label]} → {model.classes[predicted]}"
        button = tag("button", names, class_="link", data_cell=f"{label},{predicted}")
        rows.append([button, f"{n} of {totals[label]}", percent(n / totals[label], 0)])
    pairs = (
        table(["label → prediction", "images", "of the class"], rows) if rows else tag("p", "No mistakes.")
    )
    note = "Rows are labels, columns predictions. Choose a cell, or a pair below, to see its images."
    return section("Confusion matrix", matrix(), tag("h3", "Most confused"), pairs, note=note)


def _galleries(label_errors: list[int], mistakes: list[int], has_images: bool) -> Html:
    hint = (
        "A saved model has features, not images. To see images here, name the folder that it was fitted on: "
        "`prolip report MODEL FOLDER`."
    )
    return join(
        "" if has_images else section("Images", note=hint),
        section(
            "Label errors",
            gallery(label_errors),
            note="Labels that predictions and similar images contradict, as `prolip check` finds them.",
        ),
        section(
            "Most confident mistakes",
            gallery(mistakes),
            note="Wrong predictions with the highest probability.",
        ),
    )


def _classes(model: AdaptedModel, labelled: Report, counts: Array) -> Html:
    totals, predicted, hits = counts.sum(axis=1), counts.sum(axis=0), counts.diagonal()
    before = metrics.per_class_accuracy(metrics.confusion(labelled.zero_shot, labelled.y))
    task = model.support.task
    training = None if task is None else np.bincount(task.y, minlength=task.classes)
    rows = []
    for k, name in enumerate(model.classes):
        accuracy: list[Any] = ["-", "-"]
        if totals[k]:
            share, (low, high) = hits[k] / totals[k], metrics.wilson(float(hits[k]), int(totals[k]))
            bar = tag("span", tag("i", style=f"width:{100 * share:.0f}%"), class_="bar")
            accuracy = [join(percent(share, 0), " ", bar), f"{percent(low, 0)} to {percent(high, 0)}"]
        precision = percent(hits[k] / predicted[k] if predicted[k] else None, 0)
        numbers = ["-" if training is None else training[k], totals[k], *accuracy, percent(before[k], 0)]
        rows.append([str(name), *numbers, precision])
    figures = ["accuracy", "95 % interval", "zero-shot", "precision"]
    return section("Classes", table(["class", "training images", "images", *figures], rows, sortable=True))


def calibration_bins(p: Array, y: Array) -> list[list[float] | None]:
    """Bin predictions by probability: [count, mean probability, accuracy, 95 % interval] or None each."""
    confidence, hits = p.max(axis=1), p.argmax(axis=1) == y
    bin_of = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    bins: list[list[float] | None] = []
    for chosen in (bin_of == k for k in range(CALIBRATION_BINS)):
        n, right = int(chosen.sum()), float(hits[chosen].sum())
        mean = float(confidence[chosen].mean()) if n else 0.0
        bins.append([n, mean, right / n, *metrics.wilson(right, n)] if n else None)
    return bins


def _calibration(found: Figures, p: Array, y: Array) -> Html:
    note = (
        "Of the predictions with a probability of 80 %, 80 % should be correct: the dots then lie on the "
        "dashed line. Whiskers are 95 % intervals, columns show how many predictions there are. The "
        f"calibration error, by how much probabilities are off on average, is "
        f"{percent(found.calibration_error)}; by chance alone, so many images show "
        f"{percent(found.calibration_error_floor)}."
    )
    return section("Calibration", chart("calibrationChart", calibration_bins(p, y)), note=note)


def _out_of_distribution(found: Figures, rejected: list[int]) -> Html:
    if found.rejected is None:
        return Html("")
    note = (
        f"`predict --reject` would reject {round(found.rejected * found.images)} of these {found.images} "
        f"images ({percent(found.rejected)}); about {percent(FALSE_REJECT, 0)} are to be expected of images "
        "of the classes. More mean that these images are unlike the training images."
    )
    return section("None of these", gallery(rejected, "None is rejected."), note=note)


def _learning_curve(curve: Curve | str) -> Html:
    if isinstance(curve, str):
        return section("Learning curve", note=curve)
    last = curve.forecasts[-1]
    note = (
        "Would more images help? Dots are fits on fewer of the training images, evaluated on the others; the "
        "last one is the held-out accuracy of the training images, whatever images are above. The dashed "
        f"line is a forecast, with its 95 % interval: {percent(last.low)} to {percent(last.high)} with "
        f"{last.shots} images per class."
    )
    return section("Learning curve", chart("learningCurve", curve.report()), note=note)


def _skipped(skipped: Sequence[tuple[str, str]]) -> Html:
    if not skipped:
        return Html("")
    rows: list[list[Any]] = [[name, reason] for name, reason in skipped[:100]]
    return section(f"{counted(len(skipped))} could not be read", table(["image", "reason"], rows))


def _facts(model: AdaptedModel) -> Html:
    report, encoder, lam = model.report, model.encoder, model.report.get("lam")
    facts = {
        "base model": encoder.name,
        "method": report.get("method"),
        "lam": None if lam is None else f"{lam:.4g}",
        "trained parameters": f"{report['parameters']:,}" if report.get("parameters") else None,
        "training images": f"{report['images']:,} of {report['classes']} classes",
        "views of each": report.get("views"),
        "prompts": ", ".join(model.recipe.prompts),
        "temperature": f"{model.confidence.temperature:.3g}",
        "seconds of the fit": f"{report['seconds']:.2f}" if "seconds" in report else None,
        "weights": encoder.fingerprint,
        "licence": encoder.licence,
    }
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", value))
        for name, value in facts.items()
        if value is not None
    ]
    return section("How it was made", tag("table", tag("tbody", *rows), class_="facts"))
