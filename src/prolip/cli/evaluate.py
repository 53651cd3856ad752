"""`prolip eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, percent, print_json, report_skipped, table
from prolip.cli.parameters import CSV, HTML, argument, command, flag, option

if TYPE_CHECKING:
    from prolip.api import FewShotClassifier
    from prolip.api.reading import Labelled


@command("eval")
@options.saved_model
@argument("source", "DIR", f"Labelled images: {options.LABELLED}; its test split, if there is one.")
@option("--report", type=HTML, help="Write a page too, an .html file: confusion matrix, mistakes as images.")
@option("--out", "-o", type=CSV, help="A .csv file with path, truth, answer and probability of each image.")
@options.groups
@flag("--per-image", help="With --json: truth, answer and probability of every image.")
@options.image_input
def evaluate(
    saved: options.SavedModel,
    source: str,
    report: Path | None,
    out: Path | None,
    groups: Path | None,
    per_image: bool,
    images: options.ImageInput,
) -> None:
    """Measure a saved model on labelled images.

    Prints accuracy, zero-shot accuracy, the accuracy of each class, and the calibration error.

    $ prolip eval my-model photos/
    $ prolip eval my-model photos/ --report report.html --out answers.csv
    """
    from prolip.api.evaluate import figures, predict_labelled, write_predictions
    from prolip.api.groups import read_groups
    from prolip.api.reading import read_labelled
    from prolip.cli.report import write_page
    from prolip.core import UsageError

    if per_image and not OUTPUT.get().json:
        raise UsageError("--per-image is for --json: add that option")
    clf = saved.load(images)
    model = clf.model_
    by_group = None if groups is None else read_groups(groups, model.classes)
    labelled = images.labelled(source, "test")
    tested = read_labelled(model.encoder, labelled, None, "test", model.classes)
    with bar("encoding") as progress:
        answers = predict_labelled(model, tested, clf.reading, progress)
    result = figures(model, answers, by_group)
    if out is not None:
        write_predictions(out, model, answers, by_group)
    if report is not None:
        if result["duplicates"]:  # the page has answers of fits that did not see them
            answers = predict_labelled(model, tested, clf.reading, out_of_fold=True)
        write_page(report, model, answers, saved.path.resolve().name, source)
    report_skipped(answers.skipped, result["duplicates"])
    written = {name: str(path) for name, path in (("out", out), ("report", report)) if path is not None}
    if OUTPUT.get().json:
        each = {"answers": _answers(clf, tested, source)} if per_image else {}
        print_json({**result, **written, **each})
        return
    _show(result)
    for name, path in written.items():
        console().print(f"{'Answers' if name == 'out' else 'Page'}: [bold]{escape(path)}[/]", soft_wrap=True)


def _show(result: dict[str, Any]) -> None:
    """Figures of an evaluation: each class, each group, all images."""
    tables = [("class", result["classes"], result["counts"], result["per_class"])]
    if by_group := result.get("groups"):
        tables.append(("group", by_group["names"], by_group["counts"], by_group["per_group"]))
    for kind, *columns in tables:
        rows = [[str(name), str(n), percent(a)] for name, n, a in zip(*columns, strict=True) if n]
        table(None, [kind, "images", "accuracy %"], rows)
        console().print()
    if by_group:
        console().print(f"accuracy by group [bold]{percent(by_group['accuracy'])} %[/]")
    low, high = result["accuracy_interval"]
    console().print(
        f"accuracy [bold]{percent(result['accuracy'])} %[/] on {result['images']} images "
        f"(95 % interval {percent(low)} to {percent(high)} %, "
        f"zero-shot {percent(result['zero_shot_accuracy'])} %), "
        f"balanced {percent(result['balanced_accuracy'])} %, "
        f"calibration error {percent(result['calibration_error'])} % "
        f"(uncalibrated {percent(result['calibration_error_before'])} %, "
        f"by chance alone {percent(result['calibration_error_floor'])} %)"
    )


def _answers(clf: FewShotClassifier, asked: Labelled, source: str) -> list[dict[str, Any]]:
    """Truth, answer and probability of every image that can be read."""
    from prolip.io.files import readable

    found = clf.features(asked.images)
    probabilities, truths = clf.model_.probabilities(found.features[0]), asked.names()
    pictures = clf.model_.encoder.encodes_images
    answers = []
    for i, row in zip(found.kept, probabilities, strict=True):
        best = int(row.argmax())
        name = str(asked.images[i]) if pictures else f"{source}:{i}"
        answer = {"image": readable(name), "truth": truths[i], "class": clf.model_.classes[best]}
        answers.append({**answer, "probability": round(float(row[best]), 6)})
    return answers
