"""`prolip eval`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, percent, print_json, report_skipped, table
from prolip.cli.parameters import CSV, HTML, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api.evaluate import LabelledPredictions
    from prolip.evaluate.figures import Figures


@command("eval")
@options.saved_model
@argument("source", "DIR", f"Labelled images: {options.LABELLED}; its test split, if there is one.")
@option("--report", type=HTML, help="Write a page with the confusion matrix and mistakes, an .html file.")
@option("--out", "-o", type=CSV, help="Write label, prediction and probability of each image to a .csv file.")
@flag("--per-image", help="With --json: label, prediction and probability of each image.")
@options.image_input
def evaluate(
    saved: options.SavedModelInput,
    source: str,
    report: Path | None,
    out: Path | None,
    per_image: bool,
    images: options.ImageInput,
) -> None:
    """Measure a saved model on labelled images.

    Prints accuracy, zero-shot accuracy, the accuracy of each class, and the calibration error.

    $ prolip eval my-model photos/
    $ prolip eval my-model photos/ --report report.html --out predictions.csv
    """
    from prolip.api.evaluate import figures, predict_labelled, write_predictions
    from prolip.api.support import ImageSource
    from prolip.cli.report import write_page
    from prolip.core import UsageError

    if per_image and not OUTPUT.get().json:
        raise UsageError("--per-image is for --json: add that option")
    clf = saved.load(images)
    model = clf.model_
    tested = ImageSource(model.encoder).labelled(images.labelled(source, "test"), None, "test", model.classes)
    with bar("encoding") as progress:
        found = predict_labelled(model, tested, clf.reading, progress)
    result = figures(model, found)
    if out is not None:
        write_predictions(out, found)
    if report is not None:
        page = found
        if result.duplicates:  # the page shows predictions by fits that did not see them
            page = predict_labelled(model, tested, clf.reading, out_of_fold=True)
        write_page(report, model, page, saved.path.resolve().name, source)
    report_skipped(found.skipped, result.duplicates or 0)
    written = {name: str(path) for name, path in (("out", out), ("report", report)) if path is not None}
    if OUTPUT.get().json:
        each = {"predictions": _per_image(found, source)} if per_image else {}
        print_json({**result.to_json(), **written, **each})
        return
    _show(result)
    for name, path in written.items():
        console().print(
            f"{'Predictions' if name == 'out' else 'Page'}: [bold]{escape(path)}[/]", soft_wrap=True
        )


def _show(found: Figures) -> None:
    """Print the accuracy of each class, and of all images."""
    columns = found.classes or (), found.counts or (), found.per_class or ()
    rows = [[str(name), str(n), percent(a)] for name, n, a in zip(*columns, strict=True) if n]
    table(None, ["class", "images", "accuracy %"], rows)
    console().print()
    low, high = found.accuracy_interval or (None, None)
    console().print(
        f"accuracy [bold]{percent(found.accuracy)} %[/] on {counted(found.images)} "
        f"(95 % interval {percent(low)} to {percent(high)} %, "
        f"zero-shot {percent(found.zero_shot_accuracy)} %), "
        f"balanced {percent(found.balanced_accuracy)} %, "
        f"calibration error {percent(found.calibration_error)} % "
        f"(at temperature 1: {percent(found.calibration_error_before)} %, "
        f"by chance alone {percent(found.calibration_error_floor)} %)"
    )


def _per_image(found: LabelledPredictions, source: str) -> list[dict[str, Any]]:
    """Return label, prediction and probability of every image that can be read."""
    names, classes = found.names, found.predictions.classes
    rows = replace(found.predictions, rejected=None).to_json()
    return [
        {"image": name, "label": classes[y], "class": row["class"], "probability": row["probability"]}
        for name, y, row in zip(names, found.y, rows, strict=True)
    ]
