"""A page on one model: how good it is, what it confuses, and what would make it better."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from prolip.api.evaluate import LabelledPredictions, figures
from prolip.api.model import AdaptedModel
from prolip.core.arrays import Array
from prolip.evaluate import metrics
from prolip.evaluate.curve import Curve, Forecast
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.report.charts import calibration_chart, learning_chart
from prolip.report.html import Html, join, percent, table, tag
from prolip.report.page import cards, gallery, page, section
from prolip.report.thumbnails import thumbnails

SHOWN = 24  # pictures of a gallery
PAIRS = 15
WRONG, RIGHT = 24, 10  # pictures of a cell of the matrix that get a thumbnail
PICTURES = 2000  # thumbnails in all


def model_page(
    model: AdaptedModel, answers: LabelledPredictions, *, title: str, source: str, curve: Curve | str
) -> str:
    """The page as HTML, of answers about labelled images (`api.measure`).

    `title` and `source` are what the model and the images are called; `curve` is the learning curve, or why
    there is none.
    """
    told, p = figures(model, answers).to_json(), answers.probabilities
    counts = metrics.confusion(p, answers.y)
    surest, unsure, out_of_distribution = _galleries(p, answers)
    pictures: dict[int, str] = {}
    if answers.images is not None:
        wanted = dict.fromkeys([*surest, *unsure, *out_of_distribution, *_of_cells(p, answers.y)])
        pictures = thumbnails(answers.images, list(wanted)[:PICTURES])
    images = [
        {
            "name": name,
            "truth": int(answers.y[i]),
            "answer": int(p[i].argmax()),
            "probability": round(float(p[i].max()), 4),
            **({"src": pictures[i]} if i in pictures else {}),
        }
        for i, name in enumerate(_short(answers.names))
    ]
    sections = [
        _cards(told),
        _confusion(model, counts),
        _mistakes(surest, unsure, answers),
        _classes(model, answers, counts),
        _calibration(told, p, answers.y),
        _out_of_distribution(answers, out_of_distribution),
        _learning(curve),
        _skipped(answers.skipped),
        _making(model),
    ]
    data = {"classes": [str(name) for name in model.classes], "images": images}
    return page(title, _lead(model, answers, source), sections, data)


def _lead(model: AdaptedModel, answers: LabelledPredictions, source: str) -> str:
    n, held = len(answers.y), int(answers.held_out.sum())
    about = f"{len(model.classes)} classes, asked about {n} images of {source}."
    if held == n:
        return f"{about} The model learned from these very images: each is answered by a fit without it."
    if held:
        return f"{about} It learned from {held} of them: those are answered by fits without them."
    if answers.in_support.any():
        seen = int(answers.in_support.sum())
        return f"{about} It learned from {seen} of them, so that these figures are too good."
    return f"{about} It had seen none of them."


def _cards(told: dict[str, Any]) -> Html:
    low, high = told["accuracy_interval"]
    gain = 100 * (told["accuracy"] - told["zero_shot_accuracy"])
    return cards(
        [
            ("accuracy", percent(told["accuracy"]), f"95 % interval {percent(low)} to {percent(high)}"),
            ("before the fit", percent(told["zero_shot_accuracy"]), f"zero-shot; {gain:+.1f} points since"),
            ("balanced accuracy", percent(told["balanced_accuracy"]), "each class counts the same"),
            ("macro F1", f"{told['macro_f1']:.3f}", "mean over classes"),
            ("calibration error", percent(told["calibration_error"]),
             f"{percent(told['calibration_error_floor'])} by chance alone"),
            ("images", f"{told['images']:,}", f"{sum(n > 0 for n in told['counts'])} classes have any"),
        ]
    )  # fmt: skip


def _confusion(model: AdaptedModel, counts: Array) -> Html:
    own, wrong = counts.sum(axis=1), counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    pairs = [divmod(int(k), len(counts)) for k in order if wrong.flat[k]]
    rows = []
    for truth, answer in pairs:
        n, names = int(wrong[truth, answer]), (str(model.classes[truth]), str(model.classes[answer]))
        button = tag("button", f"{names[0]} → {names[1]}", class_="link", data_cell=f"{truth},{answer}")
        rows.append([button, f"{n} of {own[truth]}", percent(n / own[truth], 0)])
    most = table(["truth → answer", "images", "of the class"], rows) if rows else tag("p", "No mistakes.")
    note = "Rows are the truth, columns the answer. Choose a cell, or a pair below, to see its pictures."
    return section(
        "What is taken for what", tag("div", id="matrix"), tag("div", id="cell", aria_live="polite"),
        tag("h3", "Most confused"), most, note=note,
    )  # fmt: skip


def _mistakes(surest: list[int], unsure: list[int], answers: LabelledPredictions) -> Html:
    mistakes = section(
        "Surest mistakes", gallery(surest, "There are no mistakes."),
        note="Wrong answers given with the most confidence: look here for wrong labels first.",
    )  # fmt: skip
    right = section(
        "Least sure right answers", gallery(unsure, "There are no right answers."),
        note="Right, but only just: more images like these help the most.",
    )  # fmt: skip
    if answers.images is None:
        hint = (
            "A saved model keeps features, not pictures. Name the folder that it was fitted on, as in "
            "`prolip report MODEL FOLDER`, and this page shows them."
        )
        return join(section("Pictures", note=hint), mistakes, right)
    return join(mistakes, right)


def _classes(model: AdaptedModel, answers: LabelledPredictions, counts: Array) -> Html:
    own, given, hits = counts.sum(axis=1), counts.sum(axis=0), counts.diagonal()
    f1, before = metrics.f1_scores(counts), metrics.per_class_accuracy(answers.zero_shot, answers.y)
    support = _support_counts(model)
    rows = []
    for k, name in enumerate(model.classes):
        if own[k]:
            share, (low, high) = hits[k] / own[k], metrics.wilson(float(hits[k]), int(own[k]))
            bar = tag("span", tag("i", style=f"width:{100 * share:.0f}%"), class_="bar")
            figure = [join(percent(share, 0), " ", bar), f"{percent(low, 0)} to {percent(high, 0)}"]
        else:
            figure = ["-", "-"]
        precision = percent(hits[k] / given[k], 0) if given[k] else "-"
        f1_told = "-" if np.isnan(f1[k]) else f"{f1[k]:.2f}"
        rows.append([str(name), support[k], own[k], *figure, percent(before[k], 0), precision, f1_told])
    header = ["class", "fitted on", "asked about", "accuracy", "95 % interval", "before", "precision", "F1"]
    learned = [n for n in support if n != "-"]
    note = None
    if learned:
        small, large = min(learned), max(learned)
        names = [str(c) for c, n in zip(model.classes, support, strict=True) if n == small]
        note = f"It was fitted on {small} images of each class."
        if small != large:
            few = names[0] if len(names) == 1 else f"{len(names)} classes"
            note = f"It was fitted on {small} ({few}) to {large} images of a class."
    return section("Each class", table(header, rows, sortable=True), note=note)


def _calibration(told: dict[str, Any], p: Array, y: Array) -> Html:
    note = (
        "Of the answers given with 80 %, 80 % should be right: the dots then lie on the dashed line. "
        f"Whiskers are 95 % intervals, columns say how many answers there are. The error is "
        f"{percent(told['calibration_error'])}, {percent(told['calibration_error_before'])} before "
        f"calibration; so many images show {percent(told['calibration_error_floor'])} by chance alone."
    )
    return section("Do probabilities mean what they say?", calibration_chart(p, y), note=note)


def _out_of_distribution(answers: LabelledPredictions, out_of_distribution: list[int]) -> Html:
    rejected = answers.predictions.rejected
    if rejected is None:
        return Html("")
    n, count = len(answers.y), int(rejected.sum())
    note = (
        f"`predict --reject` would refuse {count} of these {n} images ({percent(count / n)}); about "
        f"{percent(FALSE_REJECT, 0)} are to be expected of images that do belong. More of them mean that "
        "these images are unlike those that the model was fitted on."
    )
    return section("None of the classes?", gallery(out_of_distribution, "None is refused."), note=note)


def _learning(curve: Curve | str) -> Html:
    title = "Would more images help?"
    if isinstance(curve, str):
        return section(title, note=curve)
    now = curve.now
    rows = [
        [str(f.shots), percent(f.accuracy), f"{percent(f.low)} to {percent(f.high)}", _gain(f, now)]
        for f in (now, *curve.forecasts)
    ]
    note = (
        "Fits on fewer of the images, each asked about the others (dots), and where that leads (dashed, with "
        "the range that holds 90 % of what is likely)."
    )
    header = ["images of each class", "accuracy", "likely range", "points"]
    return section(title, learning_chart(curve), table(header, rows), note=note)


def _gain(ahead: Forecast, now: Forecast) -> str:
    return "now" if ahead is now else f"{100 * (ahead.accuracy - now.accuracy):+.1f}"


def _skipped(skipped: Sequence[tuple[str, str]]) -> Html:
    if not skipped:
        return Html("")
    rows = [[name, reason] for name, reason in skipped[:100]]
    return section(f"{len(skipped)} images could not be read", table(["image", "why"], rows))


def _making(model: AdaptedModel) -> Html:
    report, encoder = model.report, model.encoder
    lam = report.get("lam")
    facts = {
        "base model": encoder.name,
        "method": report.get("method"),
        "chosen": report.get("chose"),
        "lam": None if lam is None else f"{lam:.4g}",
        "trained numbers": f"{report['parameters']:,}" if report.get("parameters") else None,
        "images": f"{report['images']:,} of {report['classes']} classes",
        "views of each": report.get("views"),
        "prompts": None if model.templates is None else ", ".join(model.templates),
        "temperature": f"{model.confidence.temperature:.3g}",
        "seconds of the fit": f"{report['seconds']:.2f}" if "seconds" in report else None,
        "weights": encoder.fingerprint,
        "licence": encoder.licence,
    }
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", value, class_="text"))
        for name, value in facts.items()
        if value is not None
    ]
    return section("How it was made", tag("table", tag("tbody", *rows), class_="facts"))


def _galleries(p: Array, answers: LabelledPredictions) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the surest mistakes, the least sure right answers, and what seems to be of no class."""
    wrong, sure = p.argmax(axis=1) != answers.y, p.max(axis=1)
    surest = [i for i in np.argsort(-sure, kind="stable").tolist() if wrong[i]][:SHOWN]
    unsure = [i for i in np.argsort(sure, kind="stable").tolist() if not wrong[i]][:SHOWN]
    rejected = answers.predictions.rejected
    out_of_distribution = [] if rejected is None else np.flatnonzero(rejected)[:SHOWN].tolist()
    return surest, unsure, out_of_distribution


def _of_cells(p: Array, y: Array) -> list[int]:
    """Images for the cells of the matrix, mistakes first, the surest of each cell; some of each."""
    answers, taken = p.argmax(axis=1), dict[tuple[int, int], int]()
    chosen: list[list[int]] = [[], []]
    for i in np.argsort(-p.max(axis=1), kind="stable").tolist():
        cell = int(y[i]), int(answers[i])
        right = cell[0] == cell[1]
        taken[cell] = taken.get(cell, 0) + 1
        if taken[cell] <= (RIGHT if right else WRONG):
            chosen[right].append(i)
    return chosen[0] + chosen[1]


def _support_counts(model: AdaptedModel) -> list[Any]:
    task = model.support.task
    if task is None:
        return ["-"] * len(model.classes)
    return np.bincount(task.y, minlength=task.classes).tolist()


def _short(names: Sequence[str]) -> list[str]:
    """Paths without the folder that they share."""
    folders = [name.rpartition("/")[0] for name in names]
    shared = 0
    if len(set(folders)) > 1 or any("/" in name for name in names):
        parts = [name.split("/")[:-2] for name in names]
        while all(len(p) > shared and p[shared] == parts[0][shared] for p in parts):
            shared += 1
    return ["/".join(name.split("/")[shared:]) for name in names]
